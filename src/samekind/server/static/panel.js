// The left side: classes with their counts, filters, the honest accuracy; and the bars above and below the grid.
import { $, button, count, el, muted, percent, plain, settled } from "./dom.js";
import { chip, resize } from "./grid.js";
import {
  SORTS, activeClasses, auditing, className, defaultSort, emit, focused, hasModel, on, readOnly, select, show, state, travel,
  trouble,
} from "./store.js";
import { act, hidePredictions } from "./keys.js";
import { addClass, audit, editClass, newClass, palette } from "./dialogs.js";

const STATUSES = [
  ["all", "all"], ["unlabelled", "unlabelled"], ["labelled", "labelled"], ["skipped", "skipped"],
  ["differs", "label ≠ prediction"], ["changed", "changed by the refit"],
];
const keyName = (one) => one.key?.replace("shift+", "⇧") || "";
const given = (value) => value !== "" && value !== undefined;
const span = (text, kind = "") => el("span", { class: kind }, text);

// -- classes

/** A button that keeps only one class, or lets it go again. */
function classFilter(one, field, title, name, ...content) {
  const pressed = String(state.view[field]) === String(one.id);
  const onclick = () => show({ [field]: pressed ? "" : one.id, like: "" });
  const kind = field === "pred" ? "class-name" : "class-count";
  return el("button", { type: "button", class: kind, "aria-pressed": pressed, title, "aria-label": name, onclick }, ...content);
}
function classRow(one) {
  const mark = [el("kbd", {}, keyName(one)), chip(one.id, true)];
  const predicted = hasModel()
    ? classFilter(one, "pred", `Show what is predicted ${one.name}`, `${one.name}: ${one.n_predicted} predicted`,
      ...mark, span(plain(one.n_predicted), "many"))
    : el("span", { class: "class-name" }, ...mark);
  const labelled = classFilter(one, "label", `Show what is labelled ${one.name}`, `${one.name}: ${one.n_labelled} labelled`,
    plain(one.n_labelled));
  const edit = button("", () => editClass(one), { symbol: "more", kind: "plain edit", title: `Change class ${one.name}` });
  return el("li", { class: "class-row" }, predicted, labelled, readOnly() ? null : edit);
}

// -- the beginning: no model yet, so the panel asks for what it needs

/** A line to name classes; made once, so that what is being typed stays. */
function beginning() {
  const input = el("input", {
    type: "text", id: "first-class", "aria-label": "Name of a class", placeholder: "name of a class", autocomplete: "off",
    maxlength: 200,
  });
  const add = (event) => {
    event.preventDefault();
    const name = input.value.trim();
    if (name) addClass(name).then(() => { input.value = ""; input.focus(); }, trouble);
  };
  return el("section", { id: "begin", class: "card", "aria-label": "Begin", hidden: true },
    el("h2", {}, "Begin"), el("p", { id: "begin-step" }),
    el("form", { class: "begin-form", onsubmit: add }, input, el("button", { type: "submit", class: "button" }, "Add")));
}
const STEP = "Everything is labelled that the first model needs. More labels make it better.";
function drawBegin() {
  document.body.classList.toggle("untrained", !hasModel());
  $("#begin").hidden = hasModel() || readOnly();
  $("#begin-step").textContent = state.run.missing || STEP;
  for (const option of $("#sort").options) option.disabled = option.value !== "like" && !state.run.sorts.includes(option.value);
}
/** The same for a narrow page, whose panel is a drawer. */
function stepNote() {
  if (hasModel() || readOnly() || !state.run.missing) return [];
  const name = button("name a class", newClass, { symbol: "plus", kind: "pill" });
  return [el("p", { class: "step narrow" }, el("span", {}, state.run.missing), name)];
}

function drawClasses() {
  const place = $("#classes");
  const held = place.contains(document.activeElement) ? document.activeElement.title : null;
  const rows = activeClasses().map(classRow);
  const columns = hasModel() ? ["class", "predicted", "labelled"] : ["class", "labelled"];
  const head = el("div", { class: "class-head", "aria-hidden": "true" }, ...columns.map((name) => span(name)));
  const add = button("new class", newClass, { symbol: "plus", kind: "plain wide" });
  place.replaceChildren(head, el("ul", { class: "class-list" }, ...rows), ...(readOnly() || !hasModel() ? [] : [add]));
  if (held) [...place.querySelectorAll("button")].find((b) => b.title === held)?.focus();
}

// -- filters

function filters() {
  const radios = STATUSES.map(([value, text]) => {
    const onchange = () => show({ status: value === "all" ? "" : value });
    const radio = el("input", { type: "radio", name: "status", value, onchange });
    const kind = ["differs", "changed"].includes(value) ? "choice of-model" : "choice";
    return el("label", { class: kind }, radio, span(text), el("span", { class: "many", "data-status": value }));
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
  show({ conf_min: low > 0 ? low / 100 : "", conf_max: high < 100 ? high / 100 : "", like: "" });
}

function drawAudit() {
  const found = state.run.audit;
  const why = "Labels of doubtful images are a biased test. Judge random ones blind for an accuracy you can quote.";
  const between = el("small", {}, ` ${percent(found?.low)} – ${percent(found?.high)}`);
  const result = !found || found.reason ? [muted(found ? found.reason : why)]
    : [el("p", { class: "score" }, percent(found.accuracy, 1), between),
      muted(`From ${count(found.n, "random image")} judged blind.`)];
  const what = auditing() ? "Leave the audit" : found ? "Audit more" : "Start an audit";
  $("#audit").replaceChildren(el("h2", {}, "Honest accuracy"), ...result, button(what, audit, { kind: "wide" }));
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
  const sort = el("select", { id: "sort", "aria-label": "Sort by", onchange: (e) => show({ sort: e.target.value, like: "" }) },
    ...options, el("option", { value: "like", hidden: true }, "most alike"));
  const search = el("input", {
    id: "search", type: "search", placeholder: "filter by path", "aria-label": "Filter by path", autocomplete: "off",
    spellcheck: "false", oninput: settled((e) => show({ q: e.target.value, like: "" }), 250),
    onkeydown: (e) => { if (e.key === "Enter" || e.key === "Escape") $("#grid").focus(); },
  });
  const tab = (name, text) =>
    el("button", { type: "button", class: "tab", "data-tab": name, onclick: () => show({ tab: name }) }, text);
  const small = (symbol, title, onclick, more = {}) => button("", onclick, { symbol, title, kind: "plain", ...more });
  const drawer = (id, symbol, title) =>
    small(symbol, title, () => openDrawer(id), { kind: "plain narrow", "aria-expanded": "false", "data-drawer": id });
  return [
    drawer("panel", "sliders", "Classes and filters"),
    el("div", { class: "tabs", role: "group", "aria-label": "View" }, tab("grid", "Grid"), tab("map", "Map")),
    sort, small("up", "Other way round", () => show({ dir: state.view.dir === "desc" ? "" : "desc" }), { id: "direction" }),
    search, small("eye", "Predictions", hidePredictions, { key: "h", id: "predictions", kind: "plain of-model" }),
    el("span", { class: "sizes" }, small("minus", "Smaller tiles", () => resize(1 / 1.25)),
      small("plus", "Larger tiles", () => resize(1.25))),
    drawer("inspector", "panel", "Details of the image"),
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
/** Closes a drawer; seen only where the sides are drawers. */
export const closer = (id) => button("close", () => openDrawer(id), { symbol: "close", kind: "plain narrow", title: "Close" });

function drawView() {
  const view = state.view;
  $("#sort").value = view.like ? "like" : view.sort || defaultSort();
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

/** What narrows the view, each with a way out of it. */
function drawNotes() {
  const { like, pred, label, q, conf_min: low, conf_max: high } = state.view;
  const notes = state.run ? stepNote() : [];
  const note = (holds, text, changes) =>
    holds && notes.push(button(text, () => show(changes), { symbol: "close", kind: "pill", title: `${text}: take this away` }));
  note(like, `similar to ${count(like ? like.split(",").length : 0, "image")}`, { like: "" });
  note(!like && given(pred), `predicted ${className(Number(pred))}`, { pred: "" });
  note(!like && given(label), `labelled ${className(Number(label))}`, { label: "" });
  note(!like && q, `path has “${q}”`, { q: "" });
  const sure = `confidence ${percent(Number(low || 0))} – ${percent(Number(high || 1))}`;
  note(!like && (low || high), sure, { conf_min: "", conf_max: "" });
  note(auditing(), "audit: random and blind; these labels measure, they do not train", { sort: "" });
  if (!state.loading && !state.order.length) notes.push(el("p", { class: "empty" }, "No image matches. Take a filter away."));
  $("#notes").replaceChildren(...notes);
  $("#notes").hidden = !notes.length;
}

// -- the bar below the grid: what a key would do, for the pointer and the finger

function drawLabelbar() {
  const many = state.selection.size;
  const off = readOnly() ? { disabled: true } : {};
  const keep = $("#labelbar .strip")?.scrollLeft || 0;
  const what = many ? `${count(many, "image")} selected` : focused()?.path ?? "";
  const clear = many ? button("clear", () => select([]), { kind: "plain", key: "Esc" }) : null;
  const buttons = activeClasses().slice(0, 20).map((c) => {
    const b = button("", () => act("set", c.id), { kind: "class", title: `Label ${c.name}`, ...off });
    b.append(chip(c.id, true), el("kbd", { "aria-hidden": "true" }, keyName(c)));
    return b;
  });
  const turn = (way, title) => button("", () => travel(way), { symbol: way, kind: "plain", title, ...off });
  $("#labelbar").replaceChildren(
    el("span", { class: `what ${many ? "many-selected" : ""}` }, what, clear),
    el("div", { class: "strip" }, ...buttons, button("other", palette, { key: "l", ...off })),
    el("div", { class: "actions" },
      button("accept", () => act("accept"), { symbol: "check", key: "⏎", kind: "of-model", ...off }),
      button("skip", () => act("skip"), { symbol: "skip", key: "x", ...off }),
      turn("undo", "Undo (Ctrl+Z)"), turn("redo", "Redo (Ctrl+Y)")));
  $("#labelbar .strip").scrollLeft = keep;
}
function drawWhat() {
  const text = $("#labelbar .what")?.firstChild;
  if (text?.nodeType === Node.TEXT_NODE && !state.selection.size) text.data = focused()?.path ?? "";
}
function drawShown() {
  const many = state.selection.size;
  $("#shown").textContent = `${plain(state.order.length)} shown${many ? ` · ${plain(many)} selected` : ""}`;
}

export function startPanel() {
  $("#panel").append(closer("panel"), beginning(), el("section", { id: "classes", "aria-label": "Classes" }), ...filters(),
    el("section", { id: "audit", class: "card of-model", "aria-label": "Honest accuracy" }));
  $("#toolbar").append(...toolbar());
  on("run", () => { drawCounts(); drawAudit(); drawBegin(); });
  on("view hidden run", drawView);
  on("view run", drawClasses);
  on("view order run", drawNotes);
  on("selection run", drawLabelbar);
  on("focus items", drawWhat);
  on("order selection", drawShown);
  document.addEventListener("keydown", (event) => {
    const open = document.body.dataset.drawer;
    if (event.key === "Escape" && open && !event.target.closest("dialog")) openDrawer(open);
  });
}
