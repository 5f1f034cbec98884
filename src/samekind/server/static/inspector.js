// The inspector on the right: one image, its prediction, similar images, and its history.
import { api } from "./api.js";
import { $, button, count, sharpenSmall, el, muted, percent, debounce } from "./dom.js";
import { chip, describe, fieldLines } from "./grid.js";
import {
  auditing, targetIds, className, classOf, fetchItems, focusId, focused, hasModel, label, moveTo, on,
  predictionsHidden, readOnly, announce, items, showsTexts, state, text, undoOrRedo, handleProblem, requestItems,
} from "./state.js";
import { confirmMany, fullScreen, palette } from "./dialogs.js";
import { showSimilar } from "./shortcuts.js";
import { closeButton } from "./panel.js";

const place = $("#inspector");
let detail = null;
let similarItems = [];
let request = null;
let onlyUnlabelled = false;
let effects = null; // of the words of one text, see api.words
let drawn; // id of the image that is shown

const section = (title, ...content) => el("section", { "aria-label": title }, el("h2", {}, title), ...content);

/** Return a small image with its similarity; a click moves the focus of the grid to it. */
function mini({ id, similarity, log_odds: odds }, classId, given) {
  const item = state.items.get(id);
  const score = similarity.toFixed(2);
  const more = odds === null ? [] : [el("span", { class: "odds" }, `${odds >= 0 ? "+" : "−"}${Math.abs(odds).toFixed(1)}`)];
  const name = `${item ? describe(item) : text`image ${id}`}, similarity ${score}${odds === null ? "" : `, log-odds ${odds.toFixed(1)}`}`;
  const image = item?.text ? el("p", { class: "excerpt", dir: "auto" }, item.text)
    : item?.fields.length ? el("ul", { class: "fields" }, ...fieldLines(item.fields.slice(0, 3)))
    : item?.image_key && !item.error ? el("img", { src: api.thumb(item, 128), alt: "", onload: sharpenSmall })
    : el("span", { class: "note" }, item?.error ? "cannot be read" : "…");
  const caption = el("span", { class: "caption" }, chip(classId, given, false), el("span", { class: "number" }, score, ...more));
  const onclick = () => go(id);
  return el("button", { type: "button", class: "mini", title: name, "aria-label": name, onclick }, image, caption);
}
function go(id) {
  const index = state.order.indexOf(id);
  if (index >= 0) moveTo(index);
  else announce(text`The current filter does not show that image.`);
}

/** Return the text of an item: its beginning, and as soon as the details are loaded the whole. */
function wholeText(item, loaded) {
  const rest = loaded ? loaded.n_characters - (loaded.full_text?.length ?? 0) : 0;
  const body = el("div", { class: "whole", tabindex: "0", role: "group", "aria-label": "Text", dir: "auto", id: "whole" }, loaded?.full_text || item.text);
  if (effects?.id === item.id && loaded?.full_text) body.replaceChildren(...markedWords(loaded.full_text, effects));
  const known = effects?.id === item.id;
  const ask = hasModel() && !predictionsHidden() && item.text !== "(empty)"
    && button(known ? "plain text" : "words that matter", showWords, { key: "w", id: "ask-words" });
  return el("section", { "aria-label": "Text" }, body, rest > 0 ? muted(`and ${count(rest, "character")} more`) : null,
    known ? muted(effectSummary(effects)) : null, ask || null);
}

const MATTERS = 0.02; // a word is marked if the probability changes by two points without it, and
const OF_LARGEST = 0.25; // by this part of the largest change
/** Return a text with the words marked whose removal changes the probability of the predicted class. Positions count
 * Unicode characters, not the UTF-16 units of JavaScript. */
function markedWords(text, { effects: found, probability, class_id: predicted }) {
  const letters = Array.from(text);
  const change = ({ without }) => probability - without;
  const largest = Math.max(...found.map((w) => Math.abs(change(w))), 0);
  const marked = (w) => Math.abs(change(w)) >= Math.max(MATTERS, OF_LARGEST * largest) && w.end <= letters.length;
  const parts = [];
  let at = 0;
  for (const word of found.filter(marked)) {
    const { start, end, without } = word;
    const title = `Without this: ${className(predicted)} ${percent(without)} instead of ${percent(probability)}`;
    const wash = `${Math.round(12 + 48 * (Math.abs(change(word)) / largest))}%`;
    parts.push(letters.slice(at, start).join(""),
      el("mark", { class: change(word) > 0 ? "for" : "against", title, style: { "--wash": wash } }, letters.slice(start, end).join("")));
    at = end;
  }
  return [...parts, letters.slice(at).join("")];
}
function effectSummary({ effects: found, probability, class_id: predicted }) {
  const changes = found.map((w) => Math.abs(probability - w.without));
  const by = state.run.model.stale_by ? "By the model before your newest labels. " : "";
  const name = `${className(predicted)} (${percent(probability)})`;
  if (!changes.some((change) => change >= MATTERS)) return `${by}No single word matters for ${name}: without any one, the probability changes by less than 2 points.`;
  return `${by}Marked: words without which ${name} would be less probable (filled) or more probable (outlined).`;
}
/** Mark the words that matter in the focused text, or show the text plain again. */
export async function showWords() {
  const item = focused();
  if (!showsTexts() || !item) return undefined;
  if (!hasModel() || predictionsHidden()) return announce("There is no prediction to explain: no model yet, or predictions are hidden.");
  if (effects?.id === item.id) effects = null;
  else {
    announce("Predicting the text without each word …");
    const found = await api.words(item.id).catch(handleProblem);
    if (!found || focusId() !== item.id) return undefined;
    if (detail?.id !== item.id) detail = await api.item(item.id).catch(handleProblem) ?? detail; // in a closed drawer it is not loaded
    effects = { id: item.id, ...found };
    announce(effectSummary(effects));
  }
  return draw();
}

// -- parts

function head(item) {
  const loaded = detail?.id === item.id ? detail : null;
  const values = loaded?.all_fields.length ? loaded.all_fields : item.fields;
  const more = item.n_fields - values.length;
  const list = values.length && el("section", { "aria-label": "Values" },
    el("ul", { class: "fields", tabindex: "0", "aria-label": "Values", id: "values" }, ...fieldLines(values)),
    loaded && more > 0 && muted(`and ${count(more, "column")} more`));
  const image = item.error || !item.image_key ? el("p", { class: "note" }, `Cannot be shown: ${item.error}`)
    : el("img", { src: api.full(item), alt: describe(item), onload: sharpenSmall });
  const size = loaded?.width ? ` · ${loaded.width} × ${loaded.height}` : "";
  const verdict = item.status !== "labelled" ? [el("span", { class: "muted" }, item.status)]
    : [chip(item.label, true), el("span", {}, `labelled${item.source ? ` · ${item.source}` : ""}`)];
  return [
    item.text ? wholeText(item, loaded) : item.fields.length && !item.error ? null
      : el("button", { type: "button", class: "large", title: "Full screen (f)", onclick: () => fullScreen() }, image),
    el("p", { class: "path" }, item.path, el("span", { class: "muted" }, size)),
    el("p", { class: "verdict" }, ...verdict), list || null,
  ].filter(Boolean);
}

function bar([id, p]) {
  const filled = el("i", { style: { width: `${100 * p}%`, background: state.classes.get(id)?.color } });
  const number = el("span", { class: "number" }, percent(p, p < 0.1 ? 1 : 0));
  return el("li", {}, chip(id, false), el("span", { class: "rail" }, filled), number);
}
function bars(item, top) {
  if (item.pred === null) return null;
  if (auditing()) return section("Prediction", muted("Hidden during an audit, so that it does not influence your label."));
  if (predictionsHidden()) return section("Prediction", muted("Hidden, so that it does not influence you. Press h to see it."));
  const before = detail?.id === item.id ? detail.previous : null;
  const other = !before || before.pred === item.pred ? ""
    : ` · before the refit ${className(before.pred)} ${percent(before.conf)}`;
  const doubt = `margin ${item.margin.toFixed(2)} · entropy ${item.entropy.toFixed(2)}${other}`;
  return section("Prediction", el("ol", { class: "bars" }, ...top.map(bar)), muted(doubt));
}

function why() {
  if (predictionsHidden() || !hasModel()) return null;
  const { nearest, supporting, contrary, pred } = detail;
  if (!nearest.length) return section("Why", muted(text`No labelled image yet to compare with.`));
  const strip = (near) => el("div", { class: "minis" }, ...near.map((n) => mini(n, n.label, true)));
  const [best] = nearest;
  const parts = [];
  if (supporting.length) parts.push(muted(text`Similar images that are labelled ${className(pred)}:`), strip(supporting));
  else if (contrary.length) parts.push(muted(text`No image labelled ${className(pred)} is like this.`));
  else {
    parts.push(muted(text`No labelled image is like this. The most similar one, labelled ${className(best.label)}, has ` +
      `a similarity of ${best.similarity.toFixed(2)}.`));
  }
  if (contrary.length) parts.push(muted(text`Against it, similar images with another label:`), strip(contrary));
  return section(`Why ${className(pred)}`, ...parts);
}

const passesFilter = (id) => !onlyUnlabelled || state.items.get(id)?.status === "unlabelled";
const shownSimilar = () => similarItems.filter((r) => r.similarity >= state.minSimilarity && passesFilter(r.id));

function similar() {
  const set = (value) => { state.minSimilarity = Math.max(0, Math.min(1, Number(value) || 0)); drawSimilar(); };
  const limits = { min: 0, max: 1, step: 0.01, value: state.minSimilarity };
  const slider = el("input", {
    type: "range", ...limits, id: "min-sim", "aria-label": "Lowest similarity, slider", oninput: (e) => set(e.target.value),
  });
  const number = el("input", {
    type: "number", ...limits, class: "small", id: "min-sim-number", "aria-label": "Lowest similarity",
    oninput: (e) => { if (e.target.value !== "") set(e.target.value); }, onblur: soon,
  });
  const narrow = (event) => { onlyUnlabelled = event.target.checked; drawSimilar(); };
  const only = el("input", { type: "checkbox", id: "only-unlabelled", onchange: narrow });
  only.checked = onlyUnlabelled;
  const line = (...content) => el("div", { class: "sim-row" }, ...content);
  const many = el("span", { class: "muted", id: "similar-count" });
  const all = button("label all shown as …", labelAllShown, { id: "label-shown" });
  const plain = hasModel() ? null : muted("By the cosine of baseline features; there is no model yet.");
  return section("Similar", plain, line(slider, number), el("div", { class: "minis", id: "similar" }),
    line(many, el("label", { class: "choice" }, only, "unlabelled only")),
    hasModel() ? muted("Below each: similarity, and its log-odds, which rank also where the similarity is 1.00.") : null,
    line(readOnly() ? null : all, button("show in the grid", showSimilar, { key: "s" })));
}
/** Return a number with as many digits as it takes to see that it is below the limit: 0.498 for a limit of 0.5. */
function below(value, limit) {
  const digits = [2, 3, 4, 5].find((d) => Number(value.toFixed(d)) < limit) ?? 5;
  return value.toFixed(digits);
}
function drawSimilar() {
  const strip = $("#similar");
  if (!strip) return;
  const shown = shownSimilar();
  strip.replaceChildren(...shown.slice(0, 30).map((r) => {
    const item = state.items.get(r.id);
    return mini(r, item ? classOf(item) : null, item?.status === "labelled");
  }));
  for (const id of ["#min-sim", "#min-sim-number"]) if ($(id) !== document.activeElement) $(id).value = state.minSimilarity;
  const best = similarItems[0]?.similarity;
  $("#similar-count").textContent = shown.length ? `${shown.length} shown` : best === undefined ? "searching …"
    : best >= state.minSimilarity ? text`All similar images have a label.`
      : text`No image is that similar; the most similar one has ${below(best, state.minSimilarity)}.`;
}
async function labelAllShown() {
  const ids = shownSimilar().map((r) => r.id);
  if (!ids.length) return announce("Nothing is shown. Choose a lower similarity.");
  return palette(`Label ${items(ids.length, "similar ")} as`, async (one) => {
    if (ids.length <= 500 || (await confirmMany(ids.length, "set", one.id))) label("set", ids, one.id, "similar");
  });
}

const EVENT_NAMES = {
  set: "labelled", accept: "accepted", clear: "cleared", skip: "skipped", undo: "undone", redo: "redone",
  import: "imported", merge: "merged",
};
const UNDOABLE = ["set", "accept", "clear", "skip"];
function pastEvents() {
  const line = (event) => {
    const what = `${EVENT_NAMES[event.kind] || event.kind}${event.new_class === null ? "" : ` ${className(event.new_class)}`}`;
    const when = new Date(event.ts).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    const title = text`Undo the whole batch; images that changed since are skipped`;
    const undo = button("undo", () => undoOrRedo("undo", event.batch), { variant: "plain", title });
    return el("li", {}, el("span", {}, what), el("time", { class: "muted", datetime: event.ts }, when),
      readOnly() || !UNDOABLE.includes(event.kind) ? null : undo);
  };
  return detail.events.length ? section("History", el("ul", { class: "past" }, ...detail.events.map(line))) : null;
}

// -- drawing and loading

function draw() {
  const item = focused();
  if (!item) return place.replaceChildren(closeButton("inspector"), muted(state.order.length ? "Loading …" : text`No image in focus.`));
  const busy = place.querySelector("input[type=range]:active, input[type=number]:focus");
  if (busy && drawn === item.id) return drawSimilar(); // redrawing would interrupt dragging or typing
  drawn = item.id;
  const fresh = detail?.id === item.id;
  const held = place.contains(document.activeElement) ? document.activeElement.id || document.activeElement.title : null;
  const scroll = place.scrollTop;
  const top = bars(item, fresh ? detail.top5 : item.top3);
  const parts = [top, fresh && why(), !auditing() && similar(), fresh && pastEvents()];
  place.replaceChildren(closeButton("inspector"), ...head(item), ...parts.filter(Boolean));
  drawSimilar();
  place.scrollTop = scroll;
  if (held === null) return undefined;
  const again = [...place.querySelectorAll("button, input, #values, #whole")].find((node) => (node.id || node.title) === held);
  return (again || place).focus({ preventScroll: true });
}

const load = debounce(async () => {
  const id = focusId();
  if (id === undefined || getComputedStyle(place).visibility === "hidden") return; // a closed drawer needs nothing
  request?.abort();
  request = new AbortController();
  const { signal } = request;
  try {
    if (!state.items.has(id)) await fetchItems([id], signal);
    const queries = state.selection.size ? targetIds().slice(0, 50) : [id];
    const [found, near] = await Promise.all([api.item(id, signal), api.similar({ ids: queries, k: 60 }, signal)]);
    detail = found;
    similarItems = near.results.filter((r) => !queries.includes(r.id));
    draw();
    const unseen = [...found.supporting, ...found.contrary, ...similarItems].map((r) => r.id).filter((i) => !state.items.has(i));
    if (unseen.length) await fetchItems(unseen, signal);
  } catch (problem) {
    handleProblem(problem);
  }
}, 140);

const soon = debounce(draw, 30); // the tiles are drawn first: a key press is meant for them

export function startInspector() {
  on("focus order", () => {
    if (state.order.length) requestItems([focusId()]);
    soon();
    load();
  });
  on("items hidden view run", soon);
  on("run", () => { if (effects && effects.model_version !== state.run.model.version) effects = null; });
  document.addEventListener("samekind:words", () => showWords());
  on("selection detail", load);
}
