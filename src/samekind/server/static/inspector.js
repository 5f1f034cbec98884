// The right side: one image, what the model thinks of it, why, what is alike, and what happened to it.
import { api } from "./api.js";
import { $, button, count, crisp, el, muted, percent, settled } from "./dom.js";
import { chip, describe } from "./grid.js";
import {
  auditing, chosen, className, classOf, fetchItems, focusId, focused, hasModel, label, moveTo, on, predictionsHidden, readOnly, say,
  state, travel, trouble, want,
} from "./store.js";
import { confirmMany, fullScreen, palette } from "./dialogs.js";
import { showSimilar } from "./keys.js";
import { closer } from "./panel.js";

const place = $("#inspector");
let detail = null;
let alike = [];
let asking = null;
let onlyUnlabelled = false;
let drawn; // the image whose parts are on the page

const section = (title, ...content) => el("section", { "aria-label": title }, el("h2", {}, title), ...content);

/** A small picture with its similarity; a press brings it into the grid's focus if it is there. */
function mini(id, similarity, classId, given) {
  const item = state.items.get(id);
  const text = similarity.toFixed(2);
  const name = `${item ? describe(item) : `image ${id}`}, similarity ${text}`;
  const picture = item?.image_key && !item.error ? el("img", { src: api.thumb(item, 128), alt: "", onload: crisp })
    : el("span", { class: "note" }, item?.error ? "cannot be read" : "…");
  const caption = el("span", { class: "caption" }, chip(classId, given, false), el("span", { class: "number" }, text));
  const onclick = () => go(id);
  return el("button", { type: "button", class: "mini", title: name, "aria-label": name, onclick }, picture, caption);
}
function go(id) {
  const index = state.order.indexOf(id);
  if (index >= 0) moveTo(index);
  else say("That image is outside the present filter.");
}

// -- parts

function head(item) {
  const picture = item.error || !item.image_key ? el("p", { class: "note" }, `Cannot be shown: ${item.error}`)
    : el("img", { src: api.full(item), alt: describe(item), onload: crisp });
  const size = detail?.id === item.id && detail.width ? ` · ${detail.width} × ${detail.height}` : "";
  const verdict = item.status !== "labelled" ? [el("span", { class: "muted" }, item.status)]
    : [chip(item.label, true), el("span", {}, `labelled${item.source ? ` · ${item.source}` : ""}`)];
  return [
    el("button", { type: "button", class: "large", title: "Full screen (f)", onclick: () => fullScreen() }, picture),
    el("p", { class: "path" }, item.path, el("span", { class: "muted" }, size)),
    el("p", { class: "verdict" }, ...verdict),
  ];
}

function bar([id, p]) {
  const filled = el("i", { style: { width: `${100 * p}%`, background: state.classes.get(id)?.color } });
  const number = el("span", { class: "number" }, percent(p, p < 0.1 ? 1 : 0));
  return el("li", {}, chip(id, false), el("span", { class: "rail" }, filled), number);
}
function bars(item, top) {
  if (item.pred === null) return null;
  if (auditing()) return section("Prediction", muted("An audit is blind: you judge first."));
  if (predictionsHidden()) return section("Prediction", muted("Hidden, so that it does not lead you. Press h to see it."));
  const before = detail?.id === item.id ? detail.previous : null;
  const other = !before || before.pred === item.pred ? ""
    : ` · before the refit ${className(before.pred)} ${percent(before.conf)}`;
  const doubt = `margin ${item.margin.toFixed(2)} · entropy ${item.entropy.toFixed(2)}${other}`;
  return section("Prediction", el("ol", { class: "bars" }, ...top.map(bar)), muted(doubt));
}

function why() {
  if (predictionsHidden() || !hasModel()) return null;
  const near = detail.nearest;
  if (!near.length) return section("Why", muted("No labelled image yet to compare with."));
  const minis = near.map((n) => mini(n.id, n.similarity, n.label, true));
  return section("Why: the labelled images most alike", el("div", { class: "minis" }, ...minis));
}

const wished = (id) => !onlyUnlabelled || state.items.get(id)?.status === "unlabelled";
const shownAlike = () => alike.filter((r) => r.similarity >= state.minSim && wished(r.id));

function similar() {
  const set = (value) => { state.minSim = Math.max(0, Math.min(1, Number(value) || 0)); drawAlike(); };
  const limits = { min: 0, max: 1, step: 0.01, value: state.minSim };
  const slider = el("input", {
    type: "range", ...limits, id: "min-sim", "aria-label": "Least similarity, slider", oninput: (e) => set(e.target.value),
  });
  const number = el("input", {
    type: "number", ...limits, class: "small", id: "min-sim-number", "aria-label": "Least similarity",
    oninput: (e) => { if (e.target.value !== "") set(e.target.value); }, onblur: soon,
  });
  const narrow = (event) => { onlyUnlabelled = event.target.checked; drawAlike(); };
  const only = el("input", { type: "checkbox", id: "only-unlabelled", onchange: narrow });
  only.checked = onlyUnlabelled;
  const line = (...content) => el("div", { class: "sim-row" }, ...content);
  const many = el("span", { class: "muted", id: "alike-count" });
  const all = button("label all shown as …", labelShown, { id: "label-shown" });
  const plain = hasModel() ? null : muted("By the cosine of plain features; nothing is learned yet.");
  return section("Similar", plain, line(slider, number), el("div", { class: "minis", id: "alike" }),
    line(many, el("label", { class: "choice" }, only, "unlabelled only")),
    line(readOnly() ? null : all, button("show in the grid", showSimilar, { key: "s" })));
}
function drawAlike() {
  const strip = $("#alike");
  if (!strip) return;
  const shown = shownAlike();
  strip.replaceChildren(...shown.slice(0, 30).map((r) => {
    const item = state.items.get(r.id);
    return mini(r.id, r.similarity, item ? classOf(item) : null, item?.status === "labelled");
  }));
  for (const id of ["#min-sim", "#min-sim-number"]) if ($(id) !== document.activeElement) $(id).value = state.minSim;
  const best = alike[0]?.similarity;
  $("#alike-count").textContent = shown.length ? `${shown.length} shown`
    : best === undefined ? "looking …" : `none so alike; the most alike has ${best.toFixed(2)}`;
}
async function labelShown() {
  const ids = shownAlike().map((r) => r.id);
  if (!ids.length) return say("Nothing is shown: lower the least similarity.");
  return palette(`Label ${count(ids.length, "similar image")} as`, async (one) => {
    if (ids.length <= 500 || (await confirmMany(ids.length, "set", one.id))) label("set", ids, one.id, "similar");
  });
}

const WORDS = {
  set: "labelled", accept: "accepted", clear: "cleared", skip: "skipped", undo: "undone", redo: "done again",
  import: "imported", merge: "merged",
};
const UNDOABLE = ["set", "accept", "clear", "skip"];
function past() {
  const line = (event) => {
    const what = `${WORDS[event.kind] || event.kind}${event.new_class === null ? "" : ` ${className(event.new_class)}`}`;
    const when = new Date(event.ts).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    const title = "Undo the whole batch this belongs to; images changed since are left alone";
    const undo = button("undo", () => travel("undo", event.batch), { kind: "plain", title });
    return el("li", {}, el("span", {}, what), el("time", { class: "muted", datetime: event.ts }, when),
      readOnly() || !UNDOABLE.includes(event.kind) ? null : undo);
  };
  return detail.events.length ? section("History", el("ul", { class: "past" }, ...detail.events.map(line))) : null;
}

// -- drawing and asking

function draw() {
  const item = focused();
  if (!item) return place.replaceChildren(closer("inspector"), muted(state.order.length ? "Loading …" : "No image in focus."));
  const busy = place.querySelector("input[type=range]:active, input[type=number]:focus");
  if (busy && drawn === item.id) return drawAlike(); // neither the slider is taken from the hand nor a number half typed
  drawn = item.id;
  const fresh = detail?.id === item.id;
  const held = place.contains(document.activeElement) ? document.activeElement.id || document.activeElement.title : null;
  const scroll = place.scrollTop;
  const top = bars(item, fresh ? detail.top5 : item.top3);
  const parts = [top, fresh && why(), !auditing() && similar(), fresh && past()];
  place.replaceChildren(closer("inspector"), ...head(item), ...parts.filter(Boolean));
  drawAlike();
  place.scrollTop = scroll;
  if (held === null) return undefined;
  const again = [...place.querySelectorAll("button, input")].find((node) => (node.id || node.title) === held);
  return (again || place).focus({ preventScroll: true });
}

const ask = settled(async () => {
  const id = focusId();
  if (id === undefined || getComputedStyle(place).visibility === "hidden") return; // a closed drawer asks for nothing
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  try {
    if (!state.items.has(id)) await fetchItems([id], signal);
    const queries = state.selection.size ? chosen().slice(0, 50) : [id];
    const [found, near] = await Promise.all([api.item(id, signal), api.similar({ ids: queries, k: 60 }, signal)]);
    detail = found;
    alike = near.results.filter((r) => !queries.includes(r.id));
    draw();
    const unseen = [...found.nearest, ...alike].map((r) => r.id).filter((i) => !state.items.has(i));
    if (unseen.length) await fetchItems(unseen, signal);
  } catch (problem) {
    trouble(problem);
  }
}, 140);

const soon = settled(draw, 30); // the tiles first: they are what the key was pressed for

export function startInspector() {
  on("focus order", () => {
    if (state.order.length) want([focusId()]);
    soon();
    ask();
  });
  on("items hidden view run", soon);
  on("selection detail", ask);
}
