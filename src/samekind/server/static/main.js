// The page, put together.
import { api } from "./api.js";
import { $, button, count } from "./dom.js";
import { exporting, help, importing, startDialogs, unlock } from "./dialogs.js";
import { startGrid } from "./grid.js";
import { startInspector } from "./inspector.js";
import { startJob, wake } from "./job.js";
import { startKeys } from "./keys.js";
import { startMap } from "./map.js";
import { startPanel } from "./panel.js";
import { emit, loadRun, on, onSay, readFragment, readOnly, returned, say, show, state, travel, trouble } from "./store.js";

/** The token comes in the fragment, which no server and no log sees; it is exchanged for a cookie and wiped. */
async function enter() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (!given.has("token")) return;
  const token = given.get("token");
  given.delete("token");
  history.replaceState(null, "", given.size ? `#${given}` : location.pathname);
  await api.login(token).catch(trouble);
}

onSay((text, kind) => {
  const place = $("#say");
  place.textContent = text;
  place.className = kind;
});

function drawTop() {
  $("#title").textContent = state.run.name || "samekind";
  document.title = `${state.run.name || "run"} · samekind`;
  const off = readOnly() ? { disabled: true } : {};
  $("#tools").replaceChildren(...[
    readOnly() && button("read-only", () => say("Started with --read-only: look, but change nothing."), { kind: "pill" }),
    button("Import", importing, off), button("Export", exporting),
    button("?", help, { kind: "round", title: "Help and keys", "aria-label": "Help and keys" }),
  ].filter(Boolean));
}
function drawSaved() {
  const place = $("#saved");
  const text = state.pending ? `saving ${state.pending}` : "saved ✓";
  place.textContent = text;
  place.setAttribute("aria-label", state.pending ? `saving ${count(state.pending, "change")}` : "everything is saved");
  place.className = state.pending ? "busy" : "";
}
let asked = false;
function drawBanner() {
  const banner = $("#banner");
  banner.hidden = state.online && !state.locked;
  const waits = state.pending ? ` ${count(state.pending, "change")} will be saved when it is back; keep this tab open.` : "";
  const gone = `The server does not answer. Is samekind serve still running?${waits}`;
  if (!state.online) banner.replaceChildren(gone, button("Try again", wake));
  else banner.replaceChildren(`The server does not know this browser.${waits}`, button("Enter the link", unlock));
  if (state.locked && !asked) { asked = true; unlock(); }
  if (!banner.hidden) return;
  asked = false;
  if (!state.run) begin().catch(trouble);
}

async function begin() {
  await loadRun();
  state.seq = state.run.last_seq;
  const { view, focus } = readFragment();
  await show(view, { keep: focus, push: "reload" });
  if (document.activeElement === document.body) $("#grid").focus();
  startJob();
}

async function main() {
  startGrid();
  startPanel();
  startInspector();
  startDialogs();
  startMap();
  startKeys();
  on("run", drawTop);
  on("saving run", drawSaved);
  on("online", drawBanner);
  $("#to-grid").addEventListener("click", (event) => { event.preventDefault(); $("#grid").focus(); });
  addEventListener("popstate", () => {
    const { view, focus } = readFragment();
    show(view, { keep: focus, push: false });
  });
  addEventListener("beforeunload", (event) => { if (state.pending) event.preventDefault(); });
  await enter();
  if (state.locked || !state.online) return;
  await begin();
}

// Read by the tests and handy in the console; it can do nothing that the page cannot.
globalThis.samekind = { state, emit, travel, returned };
main().catch(trouble);
