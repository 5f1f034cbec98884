// The left side: classes with their counts, filters, the honest accuracy; and the bars above and below the grid.
import { $, button, count, el, percent, settled } from "./dom.js";
import { chip, resize } from "./grid.js";
import {
  SORTS, activeClasses, auditing, className, defaultSort, focused, on, readOnly, select, show, state, travel,
} from "./store.js";
import { act, hidePredictions } from "./keys.js";
import { audit, editClass, newClass, palette } from "./dialogs.js";

const STATUSES = [
  ["all", "all"], ["unlabelled", "unlabelled"], ["labelled", "labelled"], ["skipped", "skipped"],
  ["differs", "label ≠ prediction"], ["changed", "changed by the refit"],
];
const keyName = (one) => one.key?.replace("shift+", "⇧") || "";
const toggleFilter = (field, id) => show({ [field]: String(state.view[field]) === String(id) ? "" : id, like: "" });

// -- classes

function classRow(one) {
  const by = (field) => String(state.view[field]) === String(one.id);
  const name = el("button", {
    type: "button", class: "class-name", "aria-pressed": by("pred"), title: `Show what is predicted ${one.name}`,
    "aria-label": `${one.name}: ${count(one.n_predicted ?? 0, "image")} predicted`, onclick: () => toggleFilter("pred", one.id),
  }, el("kbd", {}, keyName(one)), chip(one.id, true), el("span", { class: "many" }, (one.n_predicted ?? 0).toLocaleString("en")));
  const labelled = el("button", {
    type: "button", class: "class-count", "aria-pressed": by("label"), title: `Show what is labelled ${one.name}`,
    "aria-label": `${one.name}: ${one.n_labelled} labelled`, onclick: () => toggleFilter("label", one.id),
  }, one.n_labelled.toLocaleString("en"));
  const edit = readOnly() ? null : button("", () => editClass(one), { symbol: "more", kind: "plain edit", title: `Change class ${one.name}` });
  return el("li", { class: "class-row" }, name, labelled, edit);
}

function drawClasses() {
  const place = $("#classes");
  const had = place.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
  const rows = activeClasses().map(classRow);
  const head = el("div", { class: "class-head", "aria-hidden": "true" }, el("span", {}, "class"), el("span", {}, "predicted"), el("span", {}, "labelled"));
  const add = readOnly() ? null : button("new class", newClass, { symbol: "plus", kind: "plain wide" });
  place.replaceChildren(...[rows.length ? head : null, el("ul", { class: "class-list" }, ...rows), add].filter(Boolean));
  if (had) [...place.querySelectorAll("button")].find((b) => b.getAttribute("aria-label")?.split(":")[0] === had.split(":")[0])?.focus();
}

// -- filters

function filters() {
  const radios = STATUSES.map(([value, text]) => el("label", { class: "choice" },
    el("input", { type: "radio", name: "status", value, onchange: () => show({ status: value === "all" ? "" : value }) }), el("span", {}, text), el("span", { class: "many", "data-status": value })));
  const bound = (field, name) => el("input", {
    type: "range", min: 0, max: 100, step: 1, class: "bound", "data-field": field, "aria-label": name,
    oninput: paintBounds, onchange: settled(applyBounds, 50),
  });
  const number = (field, name) => el("input", {
    type: "number", min: 0, max: 100, step: 1, class: "small", "data-number": field, "aria-label": name,
    onchange: (e) => { range(field).value = e.target.value; paintBounds(); applyBounds(); },
  });
  return [
    el("fieldset", {}, el("legend", {}, "Show"), ...radios),
    el("fieldset", { id: "confidence" }, el("legend", {}, "Confidence"),
      el("div", { class: "double" }, el("i"), bound("conf_min", "Lowest confidence, slider"), bound("conf_max", "Highest confidence, slider")),
      el("div", { class: "numbers" }, number("conf_min", "Lowest confidence in percent"), el("span", {}, "to"), number("conf_max", "Highest confidence in percent"), el("span", {}, "%"))),
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
  const result = found?.why ? [el("p", { class: "muted" }, found.why)] : found?.n ? [el("p", { class: "score" }, percent(found.accuracy, 1), el("small", {}, ` ${percent(found.low)} – ${percent(found.high)}`)),
    el("p", { class: "muted" }, `From ${count(found.n, "random image")} judged blind.`)]
    : [el("p", { class: "muted" }, "Labels of doubtful images are a biased test. Judge random ones blind for an accuracy you can quote.")];
  $("#audit").replaceChildren(el("h2", {}, "Honest accuracy"), ...result,
    button(auditing() ? "Leave the audit" : found?.n ? "Audit more" : "Start an audit", audit, { kind: "wide" }));
}

function drawCounts() {
  const run = state.run;
  const counts = { all: run.n_images, labelled: run.n_labelled, skipped: run.n_skipped, unlabelled: run.n_images - run.n_labelled - run.n_skipped };
  document.querySelectorAll("[data-status]").forEach((node) => { node.textContent = counts[node.dataset.status]?.toLocaleString("en") ?? ""; });
}

// -- the bar above the grid

function toolbar() {
  const sort = el("select", { id: "sort", "aria-label": "Sort by", onchange: (e) => show({ sort: e.target.value, like: "" }) },
    ...Object.entries(SORTS).map(([value, text]) => el("option", { value }, text)), el("option", { value: "like", hidden: true }, "most alike"));
  const search = el("input", {
    id: "search", type: "search", placeholder: "filter by path", "aria-label": "Filter by path", autocomplete: "off", spellcheck: "false",
    oninput: settled((e) => show({ q: e.target.value, like: "" }), 250),
    onkeydown: (e) => { if (e.key === "Enter" || e.key === "Escape") $("#grid").focus(); },
  });
  const tab = (name, text) => el("button", { type: "button", class: "tab", "data-tab": name, onclick: () => show({ tab: name }) }, text);
  const drawer = (id, symbol, title) => button("", (e) => openDrawer(id, e.currentTarget), { symbol, kind: "plain narrow", title, "aria-expanded": "false", "data-drawer": id });
  return [
    drawer("panel", "sliders", "Classes and filters"),
    el("div", { class: "tabs", role: "group", "aria-label": "View" }, tab("grid", "Grid"), tab("map", "Map")),
    sort, button("", () => show({ dir: state.view.dir === "desc" ? "" : "desc" }), { symbol: "up", kind: "plain", id: "direction", title: "Other way round", "aria-pressed": "false" }),
    search,
    button("", hidePredictions, { symbol: "eye", kind: "plain", key: "h", id: "predictions", title: "Predictions are shown", "aria-pressed": "true" }),
    el("span", { class: "sizes" }, button("", () => resize(1 / 1.25), { symbol: "minus", kind: "plain", title: "Smaller tiles" }), button("", () => resize(1.25), { symbol: "plus", kind: "plain", title: "Larger tiles" })),
    drawer("inspector", "panel", "Details of the image"),
  ];
}
export function openDrawer(id, opener = $(`[data-drawer=${id}]`)) {
  const open = document.body.dataset.drawer === id ? "" : id;
  document.body.dataset.drawer = open;
  document.querySelectorAll("[data-drawer].button").forEach((b) => b.setAttribute("aria-expanded", String(b.dataset.drawer === open)));
  if (open) $(`#${id}`).focus();
  else opener.focus();
}

/** Closes a drawer; seen only where the sides are drawers. */
export const closer = (id) => button("close", () => openDrawer(id), { symbol: "close", kind: "plain narrow", title: "Close" });

function drawView() {
  const view = state.view;
  $("#sort").value = view.like ? "like" : view.sort || defaultSort();
  if ($("#search") !== document.activeElement) $("#search").value = view.q || "";
  document.querySelectorAll(".tab").forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.tab === view.tab)));
  $("#direction").setAttribute("aria-pressed", String(view.dir === "desc"));
  $("#predictions").setAttribute("aria-pressed", String(!(state.hidden || auditing())));
  document.querySelectorAll("[name=status]").forEach((r) => { r.checked = r.value === (view.status || "all"); });
  range("conf_min").value = 100 * (view.conf_min || 0);
  range("conf_max").value = 100 * (view.conf_max || 1);
  paintBounds();
  const [shown, other] = view.tab === "map" ? ["#map", "#grid"] : ["#grid", "#map"];
  const moved = !$(other).hidden;
  const held = document.activeElement === document.body || $(other).contains(document.activeElement);
  $(shown).hidden = false;
  $(other).hidden = true;
  if (moved && held) (shown === "#map" ? $("#map canvas") : $("#grid")).focus();
  if (state.run) drawAudit();
}

/** What narrows the view, each with a way out of it. */
function drawNotes() {
  const view = state.view;
  const out = (text, changes) => button(text, () => show(changes), { symbol: "close", kind: "pill", title: `${text}: take this away` });
  const notes = [];
  if (view.like) notes.push(out(`similar to ${count(view.like.split(",").length, "image")}`, { like: "" }));
  else if (view.pred !== "" && view.pred !== undefined) notes.push(out(`predicted ${className(Number(view.pred))}`, { pred: "" }));
  if (!view.like && view.label !== "" && view.label !== undefined) notes.push(out(`labelled ${className(Number(view.label))}`, { label: "" }));
  if (!view.like && view.q) notes.push(out(`path has “${view.q}”`, { q: "" }));
  if (!view.like && (view.conf_min || view.conf_max)) notes.push(out(`confidence ${percent(Number(view.conf_min || 0))} – ${percent(Number(view.conf_max || 1))}`, { conf_min: "", conf_max: "" }));
  if (auditing()) notes.push(out("audit: random and blind; these labels measure, they do not train", { sort: "" }));
  if (!state.loading && !state.order.length) notes.push(el("p", { class: "empty" }, "No image matches. Take a filter away."));
  $("#notes").replaceChildren(...notes);
  $("#notes").hidden = !notes.length;
}

// -- the bar below the grid: what a key would do, for the pointer and the finger

function drawLabelbar() {
  const many = state.selection.size;
  const item = focused();
  const off = readOnly() ? { disabled: true } : {};
  const what = many ? `${count(many, "image")} selected` : item ? item.path : "";
  const keep = $("#labelbar .strip")?.scrollLeft || 0;
  const buttons = activeClasses().slice(0, 20).map((c) => {
    const b = button("", () => act("set", c.id), { kind: "class", title: `Label ${c.name}`, ...off });
    b.append(chip(c.id, true), el("kbd", { "aria-hidden": "true" }, keyName(c)));
    return b;
  });
  $("#labelbar").replaceChildren(
    el("span", { class: `what ${many ? "many-selected" : ""}` }, what, many ? button("clear", () => select([]), { kind: "plain", key: "Esc" }) : null),
    el("div", { class: "strip" }, ...buttons, button("other", palette, { key: "l", ...off })),
    el("div", { class: "actions" }, button("accept", () => act("accept"), { symbol: "check", key: "⏎", ...off }), button("skip", () => act("skip"), { symbol: "skip", key: "x", ...off }),
      button("", () => travel("undo"), { symbol: "undo", kind: "plain", title: "Undo (Ctrl+Z)", ...off }), button("", () => travel("redo"), { symbol: "redo", kind: "plain", title: "Redo (Ctrl+Y)", ...off })));
  $("#labelbar .strip").scrollLeft = keep;
}
function drawWhat() {
  const text = $("#labelbar .what")?.firstChild;
  if (text?.nodeType === 3 && !state.selection.size) text.data = focused()?.path ?? "";
}

export function startPanel() {
  $("#panel").append(closer("panel"), el("section", { id: "classes", "aria-label": "Classes" }), ...filters(), el("section", { id: "audit", class: "card", "aria-label": "Honest accuracy" }));
  $("#toolbar").append(...toolbar());
  on("run", () => { drawClasses(); drawCounts(); drawAudit(); });
  on("view hidden", drawView);
  on("view run", drawClasses);
  on("view order run", drawNotes);
  on("selection run", drawLabelbar);
  on("focus items", drawWhat);
  on("order selection", () => { $("#shown").textContent = `${state.order.length.toLocaleString("en")} shown${state.selection.size ? ` · ${state.selection.size.toLocaleString("en")} selected` : ""}`; });
  document.addEventListener("keydown", (e) => { if (e.key === "Escape" && document.body.dataset.drawer && !e.target.closest("dialog")) openDrawer(document.body.dataset.drawer); });
}
