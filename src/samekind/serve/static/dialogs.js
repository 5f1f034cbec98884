// What opens over the page and goes away again.
import { api, requestId } from "./api.js";
import { $, button, count, crisp, el, percent } from "./dom.js";
import { chip, describe } from "./grid.js";
import { KEYS, act } from "./keys.js";
import { changes, clock, refit } from "./job.js";
import {
  activeClasses, auditing, className, classOf, focused, loadOrder, loadRun, on, prefer, returned, say, show, state, trouble,
} from "./store.js";

let modal = null;
/** Open a dialog; `fill` gets a way to close it. Resolves when it is closed, with what it was closed with. */
function open(title, fill, kind = "") {
  modal?.close();
  const dialog = el("dialog", { class: `dialog ${kind}`, "aria-labelledby": "dialog-title" });
  const close = (value = "") => dialog.close(value);
  dialog.append(el("header", {}, el("h2", { id: "dialog-title" }, title), button("", () => close(), { symbol: "close", kind: "plain", title: "Close" })), ...[fill(close, dialog)].flat());
  document.body.append(dialog);
  dialog.showModal();
  modal = dialog;
  dialog.querySelector("[autofocus]")?.focus();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    dialog.remove();
    if (modal === dialog) modal = null;
    if (document.activeElement === document.body) $("#grid").focus();
    resolve(dialog.returnValue);
  }));
}
const row = (text, control) => el("label", { class: "field" }, el("span", {}, text), control);
const select = (options, value) => {
  const node = el("select", {}, ...options.map(([v, text]) => el("option", { value: v }, text)));
  node.value = value ?? options[0][0];
  return node;
};
const foot = (...buttons) => el("footer", {}, ...buttons);

export async function confirmMany(n, op, classId) {
  const what = op === "set" ? `Label ${count(n, "image")} as ${className(classId)}?` : `${{ accept: "Accept the predictions of", clear: "Clear the labels of", skip: "Skip" }[op]} ${count(n, "image")}?`;
  const answer = await open(what, (close) => [el("p", {}, "One undo takes it all back."), foot(button("Cancel", () => close()), button("Yes", () => close("yes"), { kind: "primary", autofocus: true }))]);
  return answer === "yes";
}

// -- classes

/** Type, Enter. Offers a new class when no name fits. */
export function palette(title = "Label as", then = (one) => act("set", one.id)) {
  if (typeof title !== "string") title = "Label as"; // called by a click
  return open(title, (close) => {
    const input = el("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-label": "Class name", autofocus: true, autocomplete: "off", placeholder: "type a name" });
    const list = el("ul", { id: "palette-list", role: "listbox", "aria-label": "Classes", class: "palette" });
    let at = 0;
    const pick = async (option) => {
      close();
      then(option.one || (await addClass(option.fresh)));
    };
    const draw = () => {
      const typed = input.value.trim();
      const fits = activeClasses().filter((c) => c.name.toLowerCase().includes(typed.toLowerCase())).map((one) => ({ one }));
      fits.sort((a, b) => b.one.name.toLowerCase().startsWith(typed.toLowerCase()) - a.one.name.toLowerCase().startsWith(typed.toLowerCase()));
      const options = typed && !fits.some((f) => f.one.name === typed) ? [...fits, { fresh: typed }] : fits;
      at = Math.max(0, Math.min(at, options.length - 1));
      list.replaceChildren(...options.map((option, i) => el("li", { role: "option", id: `option-${i}`, "aria-selected": String(i === at), onclick: () => pick(option) },
        option.one ? chip(option.one.id, true) : `new class “${option.fresh}”`, option.one?.key ? el("kbd", {}, option.one.key.replace("shift+", "⇧")) : null)));
      input.setAttribute("aria-activedescendant", options.length ? `option-${at}` : "");
      list.children[at]?.scrollIntoView({ block: "nearest" });
      return options;
    };
    input.addEventListener("input", () => { at = 0; draw(); });
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") { at += event.key === "ArrowDown" ? 1 : -1; draw(); event.preventDefault(); }
      if (event.key === "Enter" && draw()[at]) { event.preventDefault(); pick(draw()[at]).catch(trouble); }
    });
    draw();
    return [input, list];
  }, "narrow-dialog");
}

async function addClass(name) {
  const added = await api.addClass({ name });
  await loadRun();
  return added;
}
export function newClass() {
  return open("New class", (close) => {
    const input = el("input", { type: "text", autofocus: true, autocomplete: "off", maxlength: 200 });
    const add = () => input.value.trim() && addClass(input.value.trim()).then((c) => { say(`New class ${c.name}.`); close(); }, trouble);
    input.addEventListener("keydown", (e) => e.key === "Enter" && add());
    return [row("Name", input), foot(button("Add", add, { kind: "primary" }))];
  }, "narrow-dialog");
}
export function editClass(one) {
  return open(`Class ${one.name}`, (close) => {
    const name = el("input", { type: "text", value: one.name, autofocus: true });
    const key = select([["", "none"], ...[..."1234567890"].map((d) => [d, d]), ...[..."1234567890"].map((d) => [`shift+${d}`, `Shift+${d}`])], one.key || "");
    const colour = el("input", { type: "color", value: one.colour });
    const other = select([["", "keep it"], ...activeClasses().filter((c) => c.id !== one.id).map((c) => [c.id, `merge into ${c.name}`]), ["archive", "archive (labels stay in the log)"]]);
    const save = async () => {
      const body = {};
      if (name.value.trim() !== one.name) body.name = name.value.trim();
      if (key.value !== (one.key || "")) body.key = key.value || null;
      if (colour.value !== one.colour) body.colour = colour.value;
      if (other.value === "archive") body.archived = true;
      else if (other.value) body.merge_into = Number(other.value);
      if (Object.keys(body).length) await api.changeClass(one.id, body);
      close();
      await loadRun();
      if (body.merge_into !== undefined) await loadOrder();
      say(`Class ${name.value.trim()} is saved.`);
    };
    return [row("Name", name), row("Key", key), row("Colour", colour), row("Also", other), foot(button("Save", () => save().catch(trouble), { kind: "primary" }))];
  }, "narrow-dialog");
}

// -- looking

let full = null;
export function fullScreen() {
  if (full) return full.close();
  const image = el("img", { alt: "", onload: crisp });
  const line = el("div", { class: "line" });
  full = el("dialog", { id: "full", "aria-label": "Full screen" }, image, line);
  document.body.append(full);
  const shown = full;
  drawFull();
  full.showModal();
  full.addEventListener("click", () => shown.close());
  full.addEventListener("close", () => { shown.remove(); full = null; $("#grid").focus(); });
  return undefined;
}
function drawFull() {
  const item = focused();
  if (!full || !item) return;
  const [image, line] = full.childNodes;
  if (item.v && !item.error) image.src = api.full(item);
  else image.removeAttribute("src");
  image.alt = describe(item);
  const given = item.status === "labelled";
  line.replaceChildren(chip(classOf(item), given), el("span", {}, given ? "labelled" : item.status === "skipped" ? "skipped" : ""), el("span", { class: "path" }, item.path), el("span", { class: "muted" }, "arrows move · digits label · f goes back"));
}

export function help() {
  const named = { " ": "Space", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", "Ctrl+a": "Ctrl+A", "Ctrl+z": "Ctrl+Z", "Ctrl+Shift+z": "Ctrl+Shift+Z", "Ctrl+y": "Ctrl+Y" };
  const words = new Map();
  KEYS.forEach(([key, text]) => words.set(text, [...(words.get(text) || []), named[key] || key]));
  const line = (keys, text) => el("li", {}, el("span", { class: "keys" }, ...keys.map((k) => el("kbd", {}, k))), el("span", {}, text));
  const own = activeClasses().filter((c) => c.key).map((c) => line([c.key.replace("shift", "Shift")], `label ${c.name}`));
  const single = el("input", { type: "checkbox", onchange: (e) => prefer({ keys: e.target.checked }) });
  single.checked = state.preferences.keys;
  return open("Keys", () => [
    el("div", { class: "keylist", tabindex: "0", role: "group", "aria-label": "List of keys", autofocus: true }, el("ul", {}, ...[...words].map(([text, keys]) => line(keys, text))), own.length ? el("ul", {}, ...own) : null),
    el("label", { class: "choice" }, single, "single-letter keys are on"),
    el("p", { class: "muted" }, "Keys work while the grid, the map or the inspector has the focus, never while you type. Everything is saved at once, and every change can be undone.")], "wide-dialog");
}

const jobBody = el("div", { class: "job-body" });
function drawJob() {
  const job = state.job;
  const bar = el("progress", { max: 1, "aria-label": "Refit" });
  if (job?.total) bar.value = job.step / job.total;
  const numbers = Object.entries(job?.metrics || {}).map(([name, value]) => `${name} ${typeof value === "number" ? value.toPrecision(3) : value}`).join(" · ");
  jobBody.replaceChildren(...[el("p", {}, job ? `${job.state}${job.phase ? ` · ${job.phase}` : ""}${job.total ? ` · step ${job.step} of ${job.total}` : ""}${job.eta_s ? ` · ${clock(job.eta_s)} left` : ""}` : "No refit yet."),
    job?.state === "running" ? bar : null, numbers && el("p", { class: "muted" }, numbers), changes(job) && el("p", {}, changes(job)), job?.error && el("p", { class: "bad" }, job.error),
    job?.log_tail && el("pre", { tabindex: "0", "aria-label": "Log" }, [job.log_tail].flat().join("\n"))].filter(Boolean));
}
export function progress() {
  drawJob();
  return open("Refit", () => jobBody);
}

export async function models() {
  const answer = await api.models().catch(trouble);
  if (!answer) return;
  open("Models of this run", (close) => [el("ul", { class: "models" }, ...answer.models.map((m) => el("li", {},
    el("span", {}, `model ${m.version}${m.active ? " (in use)" : ""}`), el("span", { class: "muted" }, m.created ? new Date(m.created).toLocaleString() : ""),
    m.active || state.run.read_only ? null : button("use this one", () => api.activate(m.version).then(() => { close(); return loadRun(); }).then(() => say(`Model ${m.version} is in use.`), trouble))))),
    state.run.read_only ? null : foot(button("Refit from the start (slower)", () => { close(); refit("full"); }))].filter(Boolean));
}

// -- in and out

export function exporting() {
  const format = select([["csv", "CSV (comes back without loss)"], ["csv-spreadsheet", "CSV for spreadsheets (formulas made harmless)"], ["jsonl", "JSON lines (with history)"], ["labelstudio", "Label Studio JSON"], ["imagefolder", "image folder metadata.csv"], ["fiftyone", "FiftyOne labels.json"]]);
  const what = select([["both", "labels and predictions"], ["labels", "labels"], ["predictions", "predictions"]]);
  const scope = select([["all", "all images"], ["labelled", "labelled images"], ["unlabelled", "unlabelled images"], ["skipped", "skipped images"]]);
  const link = el("a", { class: "button primary", download: "" }, "Save the file");
  const point = () => { link.href = api.exportUrl({ format: format.value, what: what.value, scope: scope.value }); };
  [format, what, scope].forEach((node) => node.addEventListener("change", point));
  point();
  format.setAttribute("autofocus", "");
  return open("Export", (close) => {
    link.addEventListener("click", () => { say("The file is on its way to your downloads."); setTimeout(close, 50); });
    return [row("Format", format), row("What", what), row("Of", scope), el("p", { class: "muted" }, "Images go by their path below the root of the run. The terminal can also copy them into a folder per class: samekind labels copy."), foot(link)];
  }, "narrow-dialog");
}

export function importing() {
  const file = el("input", { type: "file", accept: ".csv,.json,.jsonl", autofocus: true });
  const over = el("input", { type: "checkbox" });
  const report = el("div", { "aria-live": "polite" });
  const bring = (values) => {
    const format = { csv: "csv", jsonl: "jsonl", json: "labelstudio" }[file.files[0].name.split(".").pop().toLowerCase()];
    return api.bring(file.files[0], { format, overwrite: over.checked ? 1 : "", ...values });
  };
  return open("Import labels", (close) => {
    const write = async () => {
      const done = await bring({ request_id: requestId() });
      close();
      await loadRun();
      await loadOrder();
      say(`${count(done.to_change, "label")} imported. Undo (Ctrl+Z)`);
    };
    const look = async () => {
      if (!file.files.length) return;
      try {
        const seen = await bring({ dry_run: 1 });
        const lines = [`${count(seen.to_change, "label")} would change`, `${count(seen.unchanged, "row")} say what is here already`, `${count(seen.n_unmatched, "row")} match no image`,
          `${count(seen.n_conflicts, "row")} differ from a label given here and would be left alone`, seen.new_classes.length ? `new classes: ${seen.new_classes.join(", ")}` : ""];
        report.replaceChildren(el("ul", {}, ...lines.filter(Boolean).map((line) => el("li", {}, line))), foot(button("Import", () => write().catch(trouble), { kind: "primary" })));
      } catch (problem) {
        report.replaceChildren(el("p", { class: "bad" }, problem.message));
      }
    };
    [file, over].forEach((node) => node.addEventListener("change", look));
    return [row("A CSV, JSON lines (.jsonl) or Label Studio (.json) file", file), el("label", { class: "choice" }, over, "also change labels that differ"),
      el("p", { class: "muted" }, "Nothing is written before you have seen what would change."), report];
  }, "narrow-dialog");
}

// -- audit, and being locked out

export function audit() {
  if (auditing()) return show({ sort: "", status: "" });
  const found = state.run.audit;
  const use = found?.n ? button(found.in_training ? "Keep them out of training" : "Use audited labels for training", () => api.audit({ use_for_training: !found.in_training }).then(() => loadRun()).then(() => { modal?.close(); say("Noted for the next refit."); }, trouble)) : null;
  return open("Honest accuracy", (close) => [
    el("p", {}, "You see images in random order, without predictions, and label them. How often the model agrees is its accuracy, with an interval."),
    el("p", { class: "muted" }, found?.why ? found.why : found?.n ? `So far: ${found.correct} of ${found.n} right, ${percent(found.accuracy, 1)} (${percent(found.low, 1)} – ${percent(found.high, 1)}).` : "Fifty images give an interval of about ±10 points, two hundred of ±5."),
    el("p", { class: "muted" }, "These labels are kept out of training until you say so; training on them would make the measure worthless."),
    foot(use, button("Begin", () => { close(); show({ sort: "audit", status: "unlabelled", like: "", pred: "", label: "", conf_min: "", conf_max: "", q: "" }); }, { kind: "primary", autofocus: true }))], "narrow-dialog");
}

/** A pasted link, or only its token, opens the page again; what waits to be saved is then saved. */
export function unlock() {
  return open("Locked", (close) => {
    const input = el("input", { type: "password", autofocus: true, autocomplete: "off" });
    const error = el("p", { class: "bad", "aria-live": "polite" });
    const enter = () => api.session(input.value.trim().split("token=").pop()).then(() => { close("open"); returned(); }, (p) => { error.textContent = p.message; });
    input.addEventListener("keydown", (e) => e.key === "Enter" && enter());
    return [el("p", {}, state.pending ? `The server was started anew. ${count(state.pending, "change")} will be saved as soon as you are in.` : "The terminal that runs samekind serve printed a link. Open it, or paste it here."), row("Link or token", input), error, foot(button("Enter", enter, { kind: "primary" }))];
  }, "narrow-dialog");
}

export function startDialogs() {
  document.addEventListener("samekind:full", () => fullScreen());
  on("focus items run hidden", drawFull);
  on("job", drawJob);
}
