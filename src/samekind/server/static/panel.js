// The panel on the left: classes with their counts, filters, quality and the audit; and the bars above and below the grid.
import { api } from "./api.js";
import { $, button, count, el, muted, percent, plain, debounce } from "./dom.js";
import { columnsCard, drawColumns } from "./columns.js";
import { chip, resize } from "./grid.js";
import {
  SORTS, activeClasses, auditing, className, defaultSort, emit, focused, hasModel, loadRun, on, readOnly, select, show, state,
  items, startAudit, text, undoOrRedo, handleProblem,
} from "./state.js";
import { applyLabel, hidePredictions } from "./shortcuts.js";
import { addClasses, audit, editClass, newClass, palette } from "./dialogs.js";

const STATUSES = [
  ["all", "all"], ["unlabelled", "unlabelled"], ["labelled", "labelled"], ["skipped", "skipped"],
  ["differs", "label ≠ prediction"], ["changed", "changed by the refit"],
];
const keyName = (one) => one.key?.replace("shift+", "⇧") || "";
const given = (value) => value !== "" && value !== undefined;
const span = (text, style = "") => el("span", { class: style }, text);

// -- classes

/** Return a button that switches a filter by one class on and off. */
function classFilter(one, field, title, name, ...content) {
  const pressed = String(state.view[field]) === String(one.id);
  const onclick = () => show({ [field]: pressed ? "" : one.id, similarTo: "" });
  const style = field === "pred" ? "class-name" : "class-count";
  return el("button", { type: "button", class: style, "aria-pressed": pressed, title, "aria-label": name, onclick }, ...content);
}
function classRow(one) {
  const mark = [el("kbd", {}, keyName(one)), chip(one.id, true)];
  const predicted = hasModel()
    ? classFilter(one, "pred", `Show what is predicted ${one.name}`, `${one.name}: ${one.n_predicted} predicted`,
      ...mark, span(plain(one.n_predicted), "many"))
    : el("span", { class: "class-name" }, ...mark);
  const labelled = classFilter(one, "label", `Show what is labelled ${one.name}`, `${one.name}: ${one.n_labelled} labelled`,
    plain(one.n_labelled));
  const edit = button("", () => editClass(one), { symbol: "more", variant: "plain edit", title: `Change class ${one.name}` });
  return el("li", { class: "class-row" }, predicted, labelled, readOnly() ? null : edit);
}

// -- first steps: before the first model, the panel asks for classes and labels

/** Return the form for class names; it is created once, so that redrawing never interrupts typing. */
function firstClassForm() {
  const input = el("input", {
    type: "text", id: "first-class", "aria-label": "Names of classes", placeholder: "ant, bee, crab", autocomplete: "off",
  });
  const add = (event) => {
    event.preventDefault();
    if (input.value.trim()) addClasses(input.value).then(() => { input.value = ""; input.focus(); }, handleProblem);
  };
  return el("section", { id: "begin", class: "card", "aria-label": "Begin", hidden: true },
    el("h2", {}, "Begin"), el("p", { id: "begin-step" }),
    el("form", { class: "begin-form", onsubmit: add }, input, el("button", { type: "submit", class: "button" }, "Add")));
}
function ready() {
  const enough = "There are enough labels for the first model. More labels make it better.";
  const few = activeClasses().filter((c) => c.n_labelled < 2);
  if (!few.length) return enough;
  const counts = few.map((c) => `${c.name} ${c.n_labelled}`).join(", ");
  return `The first model can be fitted, but some classes have fewer than 2 labels: ${counts}.`;
}
function drawFirstSteps() {
  document.body.classList.toggle("no-model", !hasModel());
  $("#begin").hidden = hasModel() || readOnly();
  $("#begin-step").textContent = state.run.missing || ready();
  for (const option of $("#sort").options) option.disabled = option.value !== "similarTo" && !state.run.sorts.includes(option.value);
}
/** Return the first steps for a narrow page, where the panel is a drawer. */
function stepNote() {
  if (hasModel() || readOnly() || !state.run.missing) return [];
  const name = button("name classes", newClass, { symbol: "plus", variant: "pill" });
  return [el("p", { class: "step narrow" }, el("span", {}, state.run.missing), name)];
}

function drawClasses() {
  const place = $("#classes");
  const held = place.contains(document.activeElement) ? document.activeElement.title : null;
  const rows = activeClasses().map(classRow);
  const columns = hasModel() ? ["class", "predicted", "labelled"] : ["class", "labelled"];
  const head = el("div", { class: "class-head", "aria-hidden": "true" }, ...columns.map((name) => span(name)));
  const add = button("new classes", newClass, { symbol: "plus", variant: "plain wide" });
  place.replaceChildren(head, el("ul", { class: "class-list" }, ...rows), ...(readOnly() || !hasModel() ? [] : [add]));
  if (held) [...place.querySelectorAll("button")].find((b) => b.title === held)?.focus();
}

// -- filters

function filters() {
  const radios = STATUSES.map(([value, text]) => {
    const onchange = () => show({ status: value === "all" ? "" : value });
    const radio = el("input", { type: "radio", name: "status", value, onchange });
    const style = ["differs", "changed"].includes(value) ? "choice of-model" : "choice";
    return el("label", { class: style }, radio, span(text), el("span", { class: "many", "data-status": value }));
  });
  const limits = { min: 0, max: 100, step: 1 };
  const bound = (field, name) => el("input", {
    type: "range", ...limits, "data-field": field, "aria-label": `${name}, slider`, oninput: paintBounds, onchange: applyBounds,
  });
  const number = (field, name) => el("input", {
    type: "number", ...limits, class: "small", "data-number": field, "aria-label": `${name} in percent`,
    onchange: (e) => { range(field).value = e.target.value; paintBounds(); applyBounds(); },
  });
  const [low, high] = [["conf_min", "Lowest confidence"], ["conf_max", "Highest confidence"]];
  return [
    el("fieldset", {}, el("legend", {}, "Show"), ...radios),
    el("fieldset", { id: "confidence", class: "of-model" }, el("legend", {}, "Confidence"),
      el("div", { class: "double" }, el("i"), bound(...low), bound(...high)),
      el("div", { class: "numbers" }, number(...low), span("to"), number(...high), span("%"))),
  ];
}
const range = (field) => $(`[data-field=${field}]`);
function paintBounds() {
  const [low, high] = [Number(range("conf_min").value), Number(range("conf_max").value)];
  $("[data-number=conf_min]").value = low;
  $("[data-number=conf_max]").value = high;
  const line = $("#confidence i");
  line.style.left = `${Math.min(low, high)}%`;
  line.style.right = `${100 - Math.max(low, high)}%`;
}
function applyBounds() {
  const [low, high] = [range("conf_min").value, range("conf_max").value].map(Number).sort((a, b) => a - b);
  show({ conf_min: low > 0 ? low / 100 : "", conf_max: high < 100 ? high / 100 : "", similarTo: "" });
}

function drawAudit() {
  const found = state.run.audit;
  const why = text`Labels of uncertain images are a biased test. Label random images blind for an unbiased accuracy.`;
  const between = el("small", {}, ` ${percent(found?.low)} – ${percent(found?.high)}`);
  const result = !found || found.reason ? [muted(found ? found.reason : why)]
    : [el("p", { class: "score" }, percent(found.accuracy, 1), between),
      muted(`From ${items(found.n, "random ")} labelled blind.`)];
  const what = auditing() ? "Leave the audit" : found ? "Audit more" : "Start an audit";
  $("#audit").replaceChildren(el("h2", {}, "Audit"), ...result, button(what, audit, { variant: "wide" }));
}

/** Draw what the labels tell about the model: accuracy with interval, calibration, advice, and the switch of the updates. */
function drawQuality() {
  const { model, instant } = state.run;
  const found = model.quality;
  const measured = found && found.accuracy !== null;
  const accuracy = !found ? [muted("This model holds no labels out, so only the audit measures it.")]
    : !measured ? [muted(text`Accuracy unknown: no class has two labels, so none can be held out. Label a second image of each class.`)]
      : [el("p", { class: "score" }, percent(found.accuracy), el("small", {}, ` ${percent(found.low)} – ${percent(found.high)}`)),
        muted(`of ${count(found.n_labels, "label")} were predicted when they were held out of training, with a 95 % interval. ` +
          "Confidence is calibrated on the same labels. They may be no random sample: the audit below measures better.")];
  const advice = (found?.advice ?? []).map((sentence) => el("li", {}, sentence));
  $("#quality").replaceChildren(el("h2", {}, "Quality"), ...accuracy,
    ...(advice.length ? [el("ul", { class: "advice", "aria-label": "Advice" }, ...advice)] : []), ...instantSwitch(instant));
}
function instantSwitch({ state: now, error }) {
  if (now === "unavailable") return [];
  const change = (event) => api.instant({ on: event.target.checked }).then(loadRun, handleProblem);
  const box = el("input", { type: "checkbox", id: "instant", onchange: change, disabled: readOnly() });
  box.checked = now !== "off";
  const why = error ? [el("p", { class: "bad" }, `Not updated: ${error}.`)] : [];
  return [el("label", { class: "choice" }, box, span("Update predictions after every label")), ...why];
}

function drawCounts() {
  const { n_total: all, n_labelled: labelled, n_skipped: skipped } = state.run;
  const counts = { all, labelled, skipped, unlabelled: all - labelled - skipped };
  for (const node of document.querySelectorAll("[data-status]")) {
    const n = counts[node.dataset.status];
    node.textContent = n === undefined ? "" : plain(n);
  }
}

// -- the bar above the grid

function toolbar() {
  const options = Object.entries(SORTS).map(([value, text]) => el("option", { value }, text));
  const sort = el("select", { id: "sort", "aria-label": "Sort by", onchange: (e) => (e.target.value === "audit" ? startAudit() : show({ sort: e.target.value, similarTo: "" })) },
    ...options, el("option", { value: "similarTo", hidden: true }, "most similar"));
  const search = el("input", {
    id: "search", type: "search", placeholder: "filter by path", "aria-label": "Filter by path", autocomplete: "off",
    spellcheck: "false", oninput: debounce((e) => show({ q: e.target.value, similarTo: "" }), 250),
    onkeydown: (e) => { if (e.key === "Enter" || e.key === "Escape") $("#grid").focus(); },
  });
  const tab = (name, text) =>
    el("button", { type: "button", class: "tab", "data-tab": name, onclick: () => show({ tab: name }) }, text);
  const small = (symbol, title, onclick, more = {}) => button("", onclick, { symbol, title, variant: "plain", ...more });
  const drawer = (id, symbol, title) =>
    small(symbol, title, () => openDrawer(id), { variant: "plain narrow", "aria-expanded": "false", "data-drawer": id });
  return [
    drawer("panel", "sliders", "Classes and filters"),
    el("div", { class: "tabs", role: "group", "aria-label": "View" }, tab("grid", "Grid"), tab("map", "Map")),
    sort, small("up", "Reverse the order", () => show({ dir: state.view.dir === "desc" ? "" : "desc" }), { id: "direction" }),
    search, small("eye", "Predictions", hidePredictions, { key: "h", id: "predictions", variant: "plain of-model" }),
    el("span", { class: "sizes" }, small("minus", "Smaller tiles", () => resize(1 / 1.25)),
      small("plus", "Larger tiles", () => resize(1.25))),
    drawer("inspector", "panel", "Details"),
  ];
}
function openDrawer(id) {
  const open = document.body.dataset.drawer === id ? "" : id;
  document.body.dataset.drawer = open;
  const openers = [...document.querySelectorAll(".button[data-drawer]")];
  openers.forEach((b) => b.setAttribute("aria-expanded", String(b.dataset.drawer === open)));
  if (open) $(`#${id}`).focus();
  else openers.find((b) => b.dataset.drawer === id).focus();
  emit("detail");
}
/** Return a button that closes a drawer; visible only on narrow pages. */
export const closeButton = (id) => button("close", () => openDrawer(id), { symbol: "close", variant: "plain narrow", title: "Close" });

function drawView() {
  const view = state.view;
  $("#sort").value = view.similarTo ? "similarTo" : view.sort || defaultSort();
  if ($("#search") !== document.activeElement) $("#search").value = view.q || "";
  for (const b of document.querySelectorAll(".tab")) b.setAttribute("aria-pressed", String(b.dataset.tab === view.tab));
  $("#direction").setAttribute("aria-pressed", String(view.dir === "desc"));
  $("#predictions").setAttribute("aria-pressed", String(!(state.hidden || auditing())));
  for (const radio of document.querySelectorAll("[name=status]")) radio.checked = radio.value === (view.status || "all");
  range("conf_min").value = 100 * (view.conf_min || 0);
  range("conf_max").value = 100 * (view.conf_max || 1);
  paintBounds();
  drawTab(...(view.tab === "map" ? ["#map", "#grid"] : ["#grid", "#map"]));
  if (state.run) drawAudit();
}
function drawTab(shown, other) {
  const moved = !$(other).hidden;
  const held = document.activeElement === document.body || $(other).contains(document.activeElement);
  $(shown).hidden = false;
  $(other).hidden = true;
  if (moved && held) (shown === "#map" ? $("#map canvas") : $("#grid")).focus();
}

/** Draw the active filters, each with a button that removes it. */
function drawNotes() {
  const { similarTo, pred, label, q, conf_min: low, conf_max: high } = state.view;
  const notes = state.run ? stepNote() : [];
  const note = (holds, text, changes) =>
    holds && notes.push(button(text, () => show(changes), { symbol: "close", variant: "pill", title: `${text}: remove` }));
  note(similarTo, `similar to ${items(similarTo ? similarTo.split(",").length : 0)}`, { similarTo: "" });
  note(!similarTo && given(pred), `predicted ${className(Number(pred))}`, { pred: "" });
  note(!similarTo && given(label), `labelled ${className(Number(label))}`, { label: "" });
  note(!similarTo && q, `path has “${q}”`, { q: "" });
  const bounds = `confidence ${percent(Number(low || 0))} – ${percent(Number(high || 1))}`;
  note(!similarTo && (low || high), bounds, { conf_min: "", conf_max: "" });
  note(auditing(), "audit: random and blind; these labels are not used for training", { sort: "" });
  if (!state.loading && !state.order.length) notes.push(el("p", { class: "empty" }, text`No image matches. Remove a filter.`));
  $("#notes").replaceChildren(...notes);
  $("#notes").hidden = !notes.length;
}

// -- the bar below the grid: buttons for mouse and touch that do what the keys do

const focusName = () => (state.ended ? "end of the list" : focused()?.path ?? "");
function drawLabelbar() {
  const many = state.selection.size;
  const off = readOnly() ? { disabled: true } : {};
  const keep = $("#labelbar .strip")?.scrollLeft || 0;
  const what = many ? `${items(many)} selected` : focusName();
  const clear = many ? button("clear", () => select([]), { variant: "plain", key: "Esc" }) : null;
  const buttons = activeClasses().slice(0, 20).map((c) => {
    const b = button("", () => applyLabel("set", c.id), { variant: "class", title: `Label ${c.name}`, ...off });
    b.append(chip(c.id, true), el("kbd", { "aria-hidden": "true" }, keyName(c)));
    return b;
  });
  const turn = (way, title) => button("", () => undoOrRedo(way), { symbol: way, variant: "plain", title, ...off });
  $("#labelbar").replaceChildren(
    el("span", { class: `what ${many ? "many-selected" : ""}` }, what, clear),
    el("div", { class: "strip" }, ...buttons, button("other", palette, { key: "l", ...off })),
    el("div", { class: "actions" },
      button("accept", () => applyLabel("accept"), { symbol: "check", key: "⏎", variant: "of-model", ...off }),
      button("skip", () => applyLabel("skip"), { symbol: "skip", key: "x", ...off }),
      turn("undo", "Undo (Ctrl+Z)"), turn("redo", "Redo (Ctrl+Y)")));
  $("#labelbar .strip").scrollLeft = keep;
}
function drawFocusedPath() {
  const shown = $("#labelbar .what")?.firstChild;
  if (shown?.nodeType === Node.TEXT_NODE && !state.selection.size) shown.data = focusName();
}
function drawShown() {
  const many = state.selection.size;
  const all = state.run?.n_total ?? 0;
  const shown = state.order.length < all ? `${plain(state.order.length)} of ${plain(all)} shown` : `${plain(state.order.length)} shown`;
  $("#shown").textContent = `${shown}${many ? ` · ${plain(many)} selected` : ""}`;
}

export function startPanel() {
  $("#panel").append(closeButton("panel"), firstClassForm(), el("section", { id: "classes", "aria-label": "Classes" }), ...filters(),
    el("section", { id: "quality", class: "card of-model", "aria-label": "Quality" }),
    el("section", { id: "audit", class: "card of-model", "aria-label": "Audit" }), columnsCard());
  $("#toolbar").append(...toolbar());
  on("run", () => { drawCounts(); drawQuality(); drawAudit(); drawFirstSteps(); drawColumns(); });
  on("view hidden run", drawView);
  on("view run", drawClasses);
  on("view order run", drawNotes);
  on("selection run", drawLabelbar);
  on("focus items", drawFocusedPath);
  on("order selection run", drawShown);
  document.addEventListener("keydown", (event) => {
    const open = document.body.dataset.drawer;
    if (event.key === "Escape" && open && !event.target.closest("dialog")) openDrawer(open);
  });
}
