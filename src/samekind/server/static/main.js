// Entry point: login, top bar, and start of all parts.
import { api } from "./api.js";
import { $, button, count } from "./dom.js";
import { exportDialog, help, importDialog, startDialogs, loginDialog } from "./dialogs.js";
import { startGrid } from "./grid.js";
import { startInspector } from "./inspector.js";
import { startJob, pollNow } from "./refit.js";
import { startKeys } from "./shortcuts.js";
import { startMap } from "./map.js";
import { startPanel } from "./panel.js";
import {
  emit, loadRun, on, onAnnounce, readFragment, readOnly, reconnected, announce, show, state, text, undoOrRedo,
  handleProblem,
} from "./state.js";

/** Exchange the token in the fragment, which is never sent to a server, for a cookie, and remove it from the address. */
async function enter() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (!given.has("token")) return;
  const token = given.get("token");
  given.delete("token");
  history.replaceState(null, "", given.size ? `#${given}` : location.pathname);
  await api.login(token).catch(handleProblem);
}

onAnnounce((message, tone) => {
  const place = $("#message");
  place.textContent = message;
  place.className = tone;
});

function drawTop() {
  $("#centre").setAttribute("aria-label", text`Images`);
  $("#grid").setAttribute("aria-label", text`Images`);
  $("#to-grid").textContent = text`Skip to the images`;
  $("#search").placeholder = { rows: "filter by name", texts: "search the texts" }[state.run.kind] ?? "filter by path";
  $("#title").textContent = state.run.name || "samekind";
  document.title = `${state.run.name || "run"} · samekind`;
  const off = readOnly() ? { disabled: true } : {};
  $("#tools").replaceChildren(...[
    readOnly() && button("read-only", () => announce("Started with --read-only: nothing can be changed."), { variant: "pill" }),
    button("Import", importDialog, off), button("Export", exportDialog),
    button("?", help, { variant: "round", title: "Help and keys", "aria-label": "Help and keys" }),
  ].filter(Boolean));
}
function drawSaved() {
  const place = $("#saved");
  place.textContent = state.pending ? `saving ${state.pending}` : "saved ✓";
  place.setAttribute("aria-label", state.pending ? `saving ${count(state.pending, "change")}` : "everything is saved");
  place.className = state.pending ? "busy" : "";
}
let prompted = false;
function drawBanner() {
  const banner = $("#banner");
  banner.hidden = state.online && !state.locked;
  const waits = state.pending ? ` ${count(state.pending, "change")} will be saved when it is back; keep this tab open.` : "";
  const gone = `The server does not respond. Is samekind serve still running?${waits}`;
  if (!state.online) banner.replaceChildren(gone, button("Try again", pollNow));
  else banner.replaceChildren(`This browser is not logged in.${waits}`, button("Enter the link", loginDialog));
  if (state.locked && !prompted) { prompted = true; loginDialog(); }
  if (!banner.hidden) return;
  prompted = false;
  if (!state.run) begin().catch(handleProblem);
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

// For tests and for the console.
globalThis.samekind = { state, emit, undoOrRedo, reconnected };
main().catch(handleProblem);
