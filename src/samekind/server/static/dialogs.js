// Dialogs.
import { api, requestId } from "./api.js";
import { $, button, count, sharpenSmall, el, muted, percent } from "./dom.js";
import { chip, describe, fieldLines } from "./grid.js";
import { KEYS, applyLabel } from "./shortcuts.js";
import { changes, clock, refit } from "./refit.js";
import {
  activeClasses, auditing, className, classOf, focused, hasModel, loadOrder, pollEvents, loadRun, on, setPreferences, reconnected,
  announce, items, show, startAudit, state, text, handleProblem, write,
} from "./state.js";

let modal = null;
/** Open a dialog with the elements that `fill(close)` returns. Resolves with the value it was closed with. */
function open(title, fill, variant = "narrow-dialog") {
  modal?.close();
  const dialog = el("dialog", { class: `dialog ${variant}`, "aria-labelledby": "dialog-title" });
  const close = (value = "") => dialog.close(value);
  const cross = button("", () => close(), { symbol: "close", variant: "plain", title: "Close" });
  dialog.append(el("header", {}, el("h2", { id: "dialog-title" }, title), cross), ...[fill(close)].flat().filter(Boolean));
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
const row = (name, control) => el("label", { class: "field" }, el("span", {}, name), control);
const foot = (...buttons) => el("footer", {}, ...buttons);
const primary = (name, onclick, more = {}) => button(name, onclick, { variant: "primary", ...more });
const onEnter = (input, f) => input.addEventListener("keydown", (event) => event.key === "Enter" && f());
function select(options, value) {
  const node = el("select", {}, ...options.map(([v, name]) => el("option", { value: v }, name)));
  node.value = value ?? options[0][0];
  return node;
}

export async function confirmMany(n, op, classId) {
  const verb = { accept: "Accept the predictions of", clear: "Clear the labels of", skip: "Skip", set: "Label" }[op];
  const title = `${verb} ${items(n)}${op === "set" ? ` as ${className(classId)}` : ""}?`;
  const answer = await open(title, (close) => [
    el("p", {}, "One undo reverts all of it."),
    foot(button("Cancel", () => close()), primary("Yes", () => close("yes"), { autofocus: true })),
  ]);
  return answer === "yes";
}

// -- classes

/** Return the classes whose name contains the typed text, those that begin with it first, and an option to add it. */
function matchingClasses(typed) {
  const small = typed.toLowerCase();
  const fits = activeClasses().filter((c) => c.name.toLowerCase().includes(small));
  fits.sort((a, b) => b.name.toLowerCase().startsWith(small) - a.name.toLowerCase().startsWith(small));
  const options = fits.map((one) => ({ one }));
  const names = fits.some((c) => c.name === typed) ? [] : newNames(typed);
  return names.length ? [...options, { names, typed }] : options;
}

/** Open the label palette: type a class name, press Enter. */
export function palette(title, then = (one) => applyLabel("set", one.id)) {
  const input = el("input", {
    type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-label": "Class name",
    autofocus: true, autocomplete: "off", placeholder: "type a name",
  });
  const list = el("ul", { id: "palette-list", role: "listbox", "aria-label": "Classes", class: "palette" });
  return open(typeof title === "string" ? title : "Label as", (close) => {
    let at = 0;
    const pick = async (option) => {
      close();
      if (option.one) then(option.one);
      else if (option.names.length === 1) then(await addClass(option.names[0]));
      else await addClasses(option.typed); // several names say nothing about the label of these images
    };
    const line = (option, i) => el("li",
      { role: "option", id: `option-${i}`, "aria-selected": String(i === at), onclick: () => pick(option).catch(handleProblem) },
      option.one ? chip(option.one.id, true)
        : `new ${option.names.length > 1 ? "classes" : "class"} ${option.names.map((name) => `“${name}”`).join(", ")}`,
      option.one?.key && el("kbd", {}, option.one.key.replace("shift+", "⇧")));
    const draw = () => {
      const options = matchingClasses(input.value.trim());
      at = Math.max(0, Math.min(at, options.length - 1));
      list.replaceChildren(...options.map(line));
      input.setAttribute("aria-activedescendant", options.length ? `option-${at}` : "");
      list.children[at]?.scrollIntoView({ block: "nearest" });
      return options;
    };
    input.addEventListener("input", () => { at = 0; draw(); });
    input.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) at += step;
      const option = draw()[at];
      if (event.key === "Enter" && option) pick(option).catch(handleProblem);
      if (step || event.key === "Enter") event.preventDefault();
    });
    draw();
    return [input, list];
  });
}

/** Return the class names in a text with commas, such as: ant, bee. A name that holds a comma stands in quotation marks. */
const splitNames = (typed) =>
  [...typed.matchAll(/\s*(?:"([^"]*)"|[^,]+)/g)].map(([all, quoted]) => (quoted ?? all).trim()).filter(Boolean);
const newNames = (typed) => {
  const known = new Set(activeClasses().map((c) => c.name));
  return [...new Set(splitNames(typed))].filter((name) => !known.has(name));
};

/** Add the classes whose names were typed, and say which are new; names that exist are left out. */
export async function addClasses(typed) {
  const names = newNames(typed);
  try {
    for (const name of names) await api.addClass({ name });
  } finally {
    await loadRun();
  }
  const list = names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names[0];
  announce(names.length ? `New ${names.length > 1 ? "classes" : "class"} ${list}.` : "There is a class with that name already.");
}

export async function addClass(name) {
  const added = await api.addClass({ name });
  await loadRun();
  return added;
}
export function newClass() {
  const input = el("input", { type: "text", autofocus: true, autocomplete: "off" });
  return open("New classes", (close) => {
    const add = () => input.value.trim() && addClasses(input.value).then(() => close(), handleProblem);
    onEnter(input, add);
    return [row("Names, with commas between them", input), foot(primary("Add", add))];
  });
}

export function editClass(one) {
  const digits = [..."1234567890"];
  const keys = [["", "none"], ...digits.map((d) => [d, d]), ...digits.map((d) => [`shift+${d}`, `Shift+${d}`])];
  const others = activeClasses().filter((c) => c.id !== one.id).map((c) => [c.id, `merge into ${c.name}`]);
  const name = el("input", { type: "text", value: one.name, autofocus: true });
  const key = select(keys, one.key || "");
  const color = el("input", { type: "color", value: one.color });
  const also = select([["", "keep it"], ...others]);
  return open(`Class ${one.name}`, (close) => {
    const save = async () => {
      const body = {};
      if (name.value.trim() !== one.name) body.name = name.value.trim();
      if (key.value !== (one.key || "")) body.key = key.value || null;
      if (color.value !== one.color) body.color = color.value;
      if (also.value) body.merge_into = Number(also.value);
      if (Object.keys(body).length) await api.changeClass(one.id, body);
      close();
      await loadRun();
      if (body.merge_into !== undefined) await loadOrder();
      announce(`Class ${name.value.trim()} is saved.`);
    };
    const fields = [row("Name", name), row("Key", key), row("Color", color), row("Also", also)];
    const remove = button("Delete …", () => deleteClass(one), { variant: "plain bad" });
    return [...fields, foot(remove, primary("Save", () => save().catch(handleProblem)))];
  });
}

/** Delete a class after a confirmation; its labels are removed or moved to another class. One undo brings all back. */
function deleteClass(one) {
  const others = activeClasses().filter((c) => c.id !== one.id).map((c) => [c.id, `label them ${c.name}`]);
  const labels = select([["clear", "remove the labels"], ...others]);
  return open(`Delete class ${one.name}?`, (close) => {
    const remove = async () => {
      const body = { request_id: requestId() };
      if (one.n_labelled && labels.value !== "clear") await api.changeClass(one.id, { ...body, merge_into: Number(labels.value) });
      else await write(() => api.deleteClass(one.id, { ...body, clear_labels: true }));
      close();
      await Promise.all([loadRun(), pollEvents()]);
      await loadOrder();
      announce(`Class ${one.name} is deleted. Undo (Ctrl+Z)`);
    };
    const used = one.n_labelled ? row(`${items(one.n_labelled)} labelled ${one.name}`, labels) : muted(text`No image has it as label.`);
    const later = hasModel() ? muted("The model will not predict it any more. Refit when you have deleted what you want.") : null;
    return [used, later, foot(button("Cancel", () => close()), primary("Delete", () => remove().catch(handleProblem)))];
  });
}

// -- views

let full = null;
export function fullScreen() {
  if (full) return full.close();
  const view = [el("img", { alt: "", onload: sharpenSmall }), el("ul", { class: "fields", tabindex: "0", "aria-label": "Values" }),
    el("div", { class: "whole", tabindex: "0", role: "group", "aria-label": "Text", dir: "auto" })];
  const shown = el("dialog", { id: "full", "aria-label": "Full screen" }, ...view, el("div", { class: "line" }));
  full = shown;
  document.body.append(shown);
  drawFull();
  shown.showModal();
  shown.addEventListener("click", () => shown.close());
  shown.addEventListener("close", () => { shown.remove(); full = null; $("#grid").focus(); });
  return undefined;
}
function drawFull() {
  const item = focused();
  if (!full || !item) return;
  const [image, values, whole, line] = full.childNodes;
  image.hidden = item.fields.length > 0 || item.text !== null;
  values.hidden = item.fields.length === 0;
  whole.hidden = item.text === null;
  if (item.text !== null && whole.dataset.id !== String(item.id)) drawWhole(whole, item);
  values.replaceChildren(...fieldLines(item.fields));
  if (item.image_key && !item.error && !image.hidden) image.src = api.full(item);
  else image.removeAttribute("src");
  image.alt = describe(item);
  const word = item.status === "unlabelled" ? "" : item.status;
  line.replaceChildren(chip(classOf(item), item.status === "labelled"), el("span", {}, word),
    el("span", { class: "path" }, item.path), el("span", { class: "muted" }, "arrows move · digits label · f goes back"));
}

/** Show the beginning of a text, and the whole text as soon as it is loaded. */
async function drawWhole(place, item) {
  place.dataset.id = item.id;
  place.textContent = item.text;
  place.scrollTop = 0;
  const details = await api.item(item.id).catch(handleProblem);
  if (details && place.dataset.id === String(item.id)) place.textContent = details.full_text ?? item.text;
}

const NAMED = { " ": "Space", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓" };
export function help() {
  const keysByAction = new Map(); // keys with the same action share a line
  const named = (key) => NAMED[key] || key.replace(/\+[a-z]$/, (end) => end.toUpperCase());
  for (const [key, action] of KEYS) {
    const words = text([action]);
    keysByAction.set(words, [...(keysByAction.get(words) || []), named(key)]);
  }
  const line = (keys, action) => {
    const caps = el("span", { class: "keys" }, ...keys.map((key) => el("kbd", {}, key)));
    return el("li", {}, caps, el("span", {}, action));
  };
  const own = activeClasses().filter((c) => c.key).map((c) => line([c.key.replace("shift", "Shift")], `label ${c.name}`));
  const single = el("input", { type: "checkbox", onchange: (e) => setPreferences({ keys: e.target.checked }) });
  single.checked = state.preferences.keys;
  return open("Keys", () => [
    el("div", { class: "keylist", tabindex: "0", role: "group", "aria-label": "List of keys", autofocus: true },
      el("ul", {}, ...[...keysByAction].map(([action, keys]) => line(keys, action))), own.length ? el("ul", {}, ...own) : null),
    el("label", { class: "choice" }, single, "single-letter keys are on"),
    muted("Keys work while the grid, the map or the inspector has the focus, never while you type. " +
      "Every change is saved immediately and can be undone."),
  ], "wide-dialog");
}

const jobBody = el("div", { class: "job-body" });
function drawJob() {
  const job = state.job || { state: "idle" };
  const steps = job.total && `step ${job.step} of ${job.total}`;
  const parts = [job.state === "idle" ? "No refit yet" : job.state, job.phase, steps, job.eta_s && `${clock(job.eta_s)} left`];
  const bar = el("progress", { max: 1, "aria-label": "Refit" });
  if (job.total) bar.value = job.step / job.total;
  const rounded = (value) => (typeof value === "number" ? value.toPrecision(3) : value);
  const numbers = Object.entries(job.metrics || {}).map(([name, value]) => `${name} ${rounded(value)}`).join(" · ");
  jobBody.replaceChildren(...[
    el("p", {}, parts.filter(Boolean).join(" · ")), job.state === "running" && bar, numbers && muted(numbers),
    changes(job) && el("p", {}, changes(job)), job.error && el("p", { class: "bad" }, job.error),
    job.log_tail?.length && el("pre", { tabindex: "0", "aria-label": "Log" }, job.log_tail.join("\n")),
  ].filter(Boolean));
}
export function progress() {
  drawJob();
  return open("Refit", () => jobBody, "");
}

export async function models() {
  const answer = await api.models().catch(handleProblem);
  if (!answer) return;
  open("Models of this run", (close) => {
    const use = async (version) => {
      await api.activate(version);
      close();
      await loadRun();
      announce(`Model ${version} is active.`);
    };
    const line = (m) => el("li", {}, el("span", {}, `model ${m.version}${m.active ? " (active)" : ""}`),
      el("span", { class: "muted" }, m.created ? new Date(m.created).toLocaleString() : ""),
      m.active || state.run.read_only ? null : button("activate", () => use(m.version).catch(handleProblem)));
    const again = button("Refit from the start (slower)", () => { close(); refit("full"); });
    return [el("ul", { class: "models" }, ...answer.models.map(line)), state.run.read_only ? null : foot(again)];
  }, "");
}

// -- in and out

const FORMATS = [
  ["csv", "CSV (can be imported again)"], ["csv-spreadsheet", "CSV for spreadsheets (formulas escaped)"],
  ["jsonl", "JSON lines (with history)"], ["labelstudio", "Label Studio JSON"], ["imagefolder", "image folder metadata.csv"],
  ["fiftyone", "FiftyOne labels.json"],
];
const SCOPES = ["all", "labelled", "unlabelled", "skipped"].map((name) => [name, `${name} images`]);
export function exportDialog() {
  const format = select(FORMATS);
  const what = select([["both", "labels and predictions"], ["labels", "labels"], ["predictions", "predictions"]]);
  const scope = select(SCOPES.map(([name, words]) => [name, text([words])]));
  const link = el("a", { class: "button primary", download: "" }, "Save the file");
  const point = () => { link.href = api.exportUrl({ format: format.value, what: what.value, scope: scope.value }); };
  [format, what, scope].forEach((node) => node.addEventListener("change", point));
  point();
  format.setAttribute("autofocus", "");
  return open("Export", (close) => {
    link.addEventListener("click", () => { announce("The file is being downloaded."); setTimeout(close, 50); });
    const more = text`Images are named as in the data. For one folder of images per class use: samekind labels copy.`;
    return [row("Format", format), row("What", what), row("Of", scope), muted(more), foot(link)];
  });
}

export function importDialog() {
  const file = el("input", { type: "file", accept: ".csv,.json,.jsonl", autofocus: true });
  const over = el("input", { type: "checkbox" });
  const report = el("div", { "aria-live": "polite" });
  const sendFile = (values) => {
    const format = { csv: "csv", jsonl: "jsonl", json: "labelstudio" }[file.files[0].name.split(".").pop().toLowerCase()];
    return api.importFile(file.files[0], { format, overwrite: over.checked ? 1 : "", ...values });
  };
  return open("Import labels", (close) => {
    const write = async () => {
      const done = await sendFile({ request_id: requestId() });
      close();
      await loadRun();
      await loadOrder();
      announce(`${count(done.to_change, "label")} imported. Undo (Ctrl+Z)`);
    };
    const preview = async () => {
      if (!file.files.length) return;
      try {
        const seen = await sendFile({ dry_run: 1 });
        const lines = [
          `${count(seen.to_change, "label")} would change`, `already have this label: ${seen.unchanged}`,
          text`match no image: ${seen.n_unmatched}`,
          `have another label and would be skipped: ${seen.n_conflicts}`,
          seen.new_classes.length ? `new classes: ${seen.new_classes.join(", ")}` : "",
        ].filter(Boolean);
        const list = el("ul", {}, ...lines.map((line) => el("li", {}, line)));
        report.replaceChildren(list, foot(primary("Import", () => write().catch(handleProblem))));
      } catch (problem) {
        report.replaceChildren(el("p", { class: "bad" }, problem.message));
      }
    };
    [file, over].forEach((node) => node.addEventListener("change", preview));
    return [row("A CSV, JSON lines (.jsonl) or Label Studio (.json) file", file),
      el("label", { class: "choice" }, over, "also change labels that differ"),
      muted("Nothing is written before you confirm what would change."), report];
  });
}

// -- audit and login

export function audit() {
  if (auditing()) return show({ sort: "", status: "" });
  const found = state.run.audit;
  const use = async () => {
    await api.audit({ use_for_training: !found.in_training });
    await loadRun();
    modal?.close();
    announce("Saved for the next refit.");
  };
  const [accuracy, low, high] = [found?.accuracy, found?.low, found?.high].map((value) => percent(value, 1));
  const so = !found ? text`Fifty images give an interval of about ±10 points, two hundred of ±5.`
    : found.reason || `So far: ${found.correct} of ${found.n} right, ${accuracy} (${low} – ${high}).`;
  const other = found?.in_training ? "Keep them out of training" : "Use them for training";
  return open("Audit", (close) => [
    el("p", {}, text`You see images in random order, without predictions, and label them. ` +
      "The fraction on which the model agrees is its accuracy, shown with a 95 % interval."),
    muted(so),
    muted("These labels are not used for training until you allow it; a model trained on them cannot be measured by them."),
    foot(found?.n ? button(other, () => use().catch(handleProblem)) : null,
      primary("Begin", () => { close(); startAudit(); }, { autofocus: true })),
  ]);
}

/** Log in with a pasted link or its token; pending changes are saved afterwards. */
export function loginDialog() {
  const input = el("input", { type: "password", autofocus: true, autocomplete: "off" });
  const error = el("p", { class: "bad", "aria-live": "polite" });
  const why = state.pending ? `The server was restarted. ${count(state.pending, "change")} will be saved after the login.`
    : "The terminal that runs samekind serve printed a link. Open it, or paste it here.";
  return open("Login", (close) => {
    const enter = () => api.login(input.value.trim().split("token=").pop())
      .then(() => { close("open"); reconnected(); }, (problem) => { error.textContent = problem.message; });
    onEnter(input, enter);
    return [el("p", {}, why), row("Link or token", input), error, foot(primary("Enter", enter))];
  });
}

export function startDialogs() {
  document.addEventListener("samekind:full", () => fullScreen());
  on("focus items run hidden", drawFull);
  on("job", drawJob);
}
