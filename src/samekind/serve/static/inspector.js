// The right side: one image, what the model thinks of it, why, what is alike, and what happened to it.
import { api } from "./api.js";
import { $, button, count, crisp, el, percent, settled } from "./dom.js";
import { chip, describe } from "./grid.js";
import { chosen, className, fetchItems, focusId, focused, label, moveTo, on, predictionsHidden, readOnly, say, state, travel, trouble, want } from "./store.js";
import { confirmMany, fullScreen, palette } from "./dialogs.js";
import { showSimilar } from "./keys.js";
import { closer } from "./panel.js";

const place = $("#inspector");
let detail = null;
let alike = [];
let asking = null;
let onlyUnlabelled = false;

function section(title, ...content) {
  return el("section", { "aria-label": title }, el("h2", {}, title), ...content);
}

/** A small picture with a line under it; a press brings it into the grid's focus if it is there. */
function mini(id, text, classId, given) {
  const item = state.items.get(id);
  const name = item ? `${describe(item)}, similarity ${text}` : `image ${id}, similarity ${text}`;
  const picture = item?.v && !item.error ? el("img", { src: api.thumb(item, 128), alt: "", onload: crisp }) : el("span", { class: "note" }, item?.error ? "cannot be read" : item?.path ?? "…");
  return el("button", { type: "button", class: "mini", title: name, "aria-label": name, onclick: () => go(id) },
    picture, el("span", { class: "caption" }, chip(classId, given, false), el("span", { class: "number" }, text)));
}
function go(id) {
  const index = state.order.indexOf(id);
  if (index >= 0) moveTo(index);
  else say("That image is outside the present filter.");
}

// -- parts

function head(item) {
  const picture = item.error || !item.v ? el("p", { class: "note" }, item.error ? `Cannot be shown: ${item.error}` : item.path)
    : el("img", { src: api.full(item), alt: describe(item), onload: crisp });
  return [
    el("button", { type: "button", class: "large", title: "Full screen (f)", onclick: () => fullScreen() }, picture),
    el("p", { class: "path" }, item.path, el("span", { class: "muted" }, detail?.id === item.id && detail.w ? ` · ${detail.w} × ${detail.h}` : "")),
    el("p", { class: "verdict" }, item.status === "labelled" ? [chip(item.label, true), el("span", {}, `labelled${item.source ? ` · ${item.source}` : ""}`)] : el("span", { class: "muted" }, item.status)),
  ];
}

function bars(item, top) {
  if (predictionsHidden()) return section("Prediction", el("p", { class: "muted" }, "Hidden, so that it does not lead you. Press h to see it."));
  if (!top?.length) return section("Prediction", el("p", { class: "muted" }, "No model has seen this image yet."));
  const rows = top.map(([id, p]) => el("li", {}, chip(id, false), el("span", { class: "rail" }, el("i", { style: { width: `${100 * p}%`, background: state.classes.get(id)?.colour } })), el("span", { class: "number" }, percent(p, p < 0.1 ? 1 : 0))));
  const before = detail?.previous && detail.previous.pred !== item.pred ? ` · before the refit ${className(detail.previous.pred)} ${percent(detail.previous.conf)}` : "";
  return section("Prediction", el("ol", { class: "bars" }, ...rows), el("p", { class: "muted" }, `margin ${item.margin?.toFixed(2) ?? "–"} · entropy ${item.entropy?.toFixed(2) ?? "–"}${before}`));
}

function why() {
  if (predictionsHidden()) return null;
  const near = detail?.nearest || [];
  if (!near.length) return section("Why", el("p", { class: "muted" }, "No labelled image yet to compare with."));
  return section("Why: the labelled images most alike", el("div", { class: "minis" }, ...near.slice(0, 8).map((n) => mini(n.id, n.sim.toFixed(2), n.label, true))));
}

const shownAlike = () => alike.filter((r) => r.sim >= state.minSim && (!onlyUnlabelled || state.items.get(r.id)?.status === "unlabelled"));

function similar() {
  const strip = el("div", { class: "minis", id: "alike" });
  const many = el("span", { class: "muted", id: "alike-count" });
  const set = (value) => { state.minSim = Math.max(0, Math.min(1, Number(value) || 0)); drawAlike(); };
  const slider = el("input", { type: "range", min: 0, max: 1, step: 0.01, value: state.minSim, id: "min-sim", "aria-label": "Least similarity, slider", oninput: (e) => set(e.target.value) });
  const number = el("input", { type: "number", min: 0, max: 1, step: 0.01, value: state.minSim, class: "small", id: "min-sim-number", "aria-label": "Least similarity", onchange: (e) => set(e.target.value) });
  const only = el("label", { class: "choice" }, el("input", { type: "checkbox", onchange: (e) => { onlyUnlabelled = e.target.checked; drawAlike(); } }), "unlabelled only");
  only.firstChild.checked = onlyUnlabelled;
  const all = readOnly() ? null : button("label all shown as …", labelShown, { id: "label-shown" });
  return section("Similar", el("div", { class: "sim-row" }, slider, number), strip, el("div", { class: "sim-row" }, many, only),
    el("div", { class: "sim-row" }, all, button("show in the grid", showSimilar, { key: "s" })));
}
function drawAlike() {
  const strip = $("#alike");
  if (!strip) return;
  const shown = shownAlike();
  strip.replaceChildren(...shown.slice(0, 30).map((r) => {
    const item = state.items.get(r.id);
    const given = item?.status === "labelled";
    return mini(r.id, r.sim.toFixed(2), item ? (given ? item.label : predictionsHidden() ? null : item.pred) : null, given);
  }));
  for (const id of ["#min-sim", "#min-sim-number"]) if ($(id) !== document.activeElement) $(id).value = state.minSim;
  const best = alike[0]?.sim;
  $("#alike-count").textContent = shown.length ? `${shown.length} shown` : best === undefined ? "nothing to compare yet" : `none so alike; the most alike has ${best.toFixed(2)}`;
}
async function labelShown() {
  const ids = shownAlike().map((r) => r.id);
  if (!ids.length) return say("Nothing is shown: lower the least similarity.");
  return palette(`Label ${count(ids.length, "similar image")} as`, async (one) => {
    if (ids.length <= 500 || (await confirmMany(ids.length, "set", one.id))) label("set", ids, one.id, "similar");
  });
}

const WORDS = { set: "labelled", accept: "accepted", clear: "cleared", skip: "skipped", undo: "undone", redo: "done again", import: "imported", merge: "merged" };
function past() {
  const events = detail?.events || [];
  if (!events.length) return null;
  const lines = events.map((e) => el("li", {},
    el("span", {}, `${WORDS[e.kind] || e.kind}${e.new_class !== null && e.new_class !== undefined ? ` ${className(e.new_class)}` : ""}`),
    el("time", { class: "muted", datetime: e.ts }, new Date(e.ts).toLocaleString([], { dateStyle: "medium", timeStyle: "short" })),
    readOnly() || !["set", "accept", "clear", "skip"].includes(e.kind) ? null : button("undo", () => travel("undo", e.batch), { kind: "plain", title: "Undo the whole batch this belongs to; images changed since are left alone" })));
  return section("History", el("ul", { class: "past" }, ...lines));
}

// -- drawing and asking

function draw() {
  const item = focused();
  if (!item) return place.replaceChildren(el("p", { class: "muted pad" }, state.order.length ? "Loading …" : "No image in focus."));
  if (place.querySelector("input[type=range]:active")) return drawAlike(); // do not take the slider from the hand
  const fresh = detail?.id === item.id;
  const kept = place.contains(document.activeElement) ? document.activeElement.id || document.activeElement.title : null;
  const scroll = place.scrollTop;
  place.replaceChildren(closer("inspector"), ...head(item), ...[bars(item, fresh ? detail.top5 : item.top3), fresh ? why() : null, similar(), fresh ? past() : null].filter(Boolean));
  drawAlike();
  place.scrollTop = scroll;
  if (kept !== null) ([...place.querySelectorAll("button, input")].find((n) => (n.id || n.title) === kept) || place).focus({ preventScroll: true });
  return undefined;
}

const ask = settled(async () => {
  const id = focusId();
  if (id === undefined) return;
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  try {
    if (!state.items.has(id)) await fetchItems([id], signal);
    const queries = state.selection.size ? chosen().slice(0, 50) : [id];
    const [found, near] = await Promise.all([api.item(id, signal), api.similar({ ids: queries, k: 60 }, signal)]);
    detail = found;
    alike = near.results.filter((r) => !queries.includes(r.id));
    const unseen = [...(found.nearest || []), ...alike].map((r) => r.id).filter((i) => !state.items.has(i));
    draw();
    if (unseen.length) { await fetchItems(unseen, signal); draw(); }
  } catch (problem) {
    trouble(problem);
  }
}, 140);

export function startInspector() {
  on("focus order", () => { want([focusId()].filter((i) => i !== undefined)); draw(); ask(); });
  on("items hidden view run", draw);
  on("selection detail", ask);
}
