// The grid. Of a hundred thousand images only the visible ones are in the document; rows and tiles are reused.
import { api } from "./api.js";
import { $, count, sharpenSmall, el, icon, percent } from "./dom.js";
import {
  classOf, className, setVisible, moveTo, on, predictionsHidden, setPreferences, select, shortName, showsTexts, state, toggle,
} from "./state.js";

const GAP = 10;
const CAPTION = 30;
const BESIDE_NAME = 49; // of the width of a tile: the padding of its caption and the letters of the class
const TEXT_WIDTH = 2; // a card with a text is so many times wider than an image, and
const TEXT_HEIGHT = 0.45; // so many times as high as it is wide
const FIELD = 17; // height of a line of a card
const MAX_TILES = 300; // in the document, on any screen
const MAX_HEIGHT = 8e6; // pixels; browsers stop drawing a little above ten million
const OVERSCAN = 2; // rows

const grid = $("#grid");
const spacer = el("div", { class: "spacer", role: "presentation" });
const live = new Map(); // row number -> element
const free = [];
const fitted = new Map(); // class names as tiles show them
const ruler = document.createElement("canvas").getContext("2d");
let shape = { columns: 1, width: 128, height: 128, row: 168, rows: 0, stretch: 1 };

/** Return a class chip: filled for a label, hollow for a prediction. */
export function chip(classId, given, withName = true) {
  const node = el("span", { class: "chip" }, el("b"), withName && el("span"));
  paintChip(node, classId, given);
  return node;
}
/** Return a class name that is not wider than `width` pixels, see shortName; a given label is bolder. */
function fitName(known, width, given) {
  const key = `${known.id} ${width} ${given}`;
  if (!fitted.has(key)) {
    ruler.font = `${given ? 600 : 400} 13px ${getComputedStyle(grid).fontFamily}`;
    let n = known.name.length;
    while (n > 6 && ruler.measureText(shortName(known, n)).width > width) n -= 1;
    fitted.set(key, shortName(known, n));
  }
  return fitted.get(key);
}
function paintChip(node, classId, given, width = 0) {
  const known = state.classes.get(classId);
  node.hidden = !known;
  if (!known) return;
  node.classList.toggle("given", given);
  node.style.setProperty("--class", known.color);
  node.style.setProperty("--class-ink", known.ink);
  node.firstChild.textContent = known.letter || known.name[0];
  if (!node.childNodes[1]) return;
  node.childNodes[1].textContent = width ? fitName(known, width, given) : known.name;
  node.title = known.name;
}

/** Return one line for each column of a row: its name, its value, and how the value ranks among the rows as a bar behind it. */
export const fieldLines = (fields) => fields.map(({ name, value, rank }) =>
  el("li", rank === null ? {} : { class: "ranked", style: { "--rank": `${100 * rank}%` } }, el("span", {}, name), el("b", {}, value)));

export function describe(item) {
  const parts = [item.path, ...item.fields.map(({ name, value }) => `${name} ${value}`)];
  if (item.text) parts.push(item.text);
  if (item.error) parts.push(`cannot be shown: ${item.error}`);
  if (item.pred !== null && !predictionsHidden()) parts.push(`predicted ${className(item.pred)} ${percent(item.conf)}`);
  parts.push(item.status === "labelled" ? `labelled ${className(item.label)}` : item.status);
  if (item.saving) parts.push("saving");
  return parts.join(", ");
}

/** Return a similarity as text: above 0.995, where two digits tell nothing apart, as log-odds. */
const score = ({ similarity, log_odds: odds }) =>
  (odds !== null && similarity > 0.995 ? `${similarity.toFixed(2)} +${odds.toFixed(1)}` : similarity.toFixed(2));

function newTile() {
  const image = el("img", { alt: "", decoding: "async", draggable: "false" });
  image.addEventListener("error", () => { if (image.hasAttribute("src")) tile.classList.add("broken"); });
  image.addEventListener("load", (event) => { tile.classList.remove("blank"); sharpenSmall(event); });
  const parts = {
    image, note: el("span", { class: "note" }), tick: el("span", { class: "tick" }, icon("check")),
    bar: el("i", { class: "bar" }), chip: el("span", { class: "chip" }, el("b"), el("span")),
    number: el("span", { class: "number" }), fields: el("ul", { class: "fields", "aria-hidden": "true" }),
    excerpt: el("p", { class: "excerpt", dir: "auto", "aria-hidden": "true" }),
  };
  const tile = el("div", { role: "gridcell", class: "tile" },
    el("div", { class: "thumb" }, image, parts.fields, parts.excerpt, parts.note, parts.tick, parts.number, parts.bar),
    el("div", { class: "caption" }, parts.chip));
  tile.parts = parts;
  return tile;
}

function paintImage(tile, item) {
  const size = shape.width * devicePixelRatio > 150 ? 256 : 128;
  const source = item && !item.error && !item.fields.length && item.text === null && item.image_key ? api.thumb(item, size) : "";
  if (tile.source === source) return;
  tile.source = source;
  tile.classList.remove("broken");
  tile.classList.add("blank");
  if (source) tile.parts.image.src = source;
  else tile.parts.image.removeAttribute("src");
}

/** Draw the columns of a row that fit into the tile. */
function paintFields(tile, item) {
  const given = item?.fields ?? [];
  const room = Math.max(1, Math.floor((shape.width - 14) / FIELD));
  const key = given.length ? `${item.id} ${item.image_key} ${room}` : "";
  if (tile.drawn === key) return;
  tile.drawn = key;
  const shown = item?.n_fields > room ? given.slice(0, Math.max(1, room - 1)) : given;
  const more = given.length && item.n_fields > shown.length && room > 1 ? [el("li", { class: "more" }, `+ ${count(item.n_fields - shown.length, "column")}`)] : [];
  tile.parts.fields.hidden = !given.length;
  tile.parts.fields.replaceChildren(...fieldLines(shown), ...more);
}

function paintTile(tile, index) {
  const id = state.order[index];
  tile.hidden = id === undefined;
  tile.index = index;
  if (tile.hidden) return;
  const item = state.items.get(id);
  const { chip: mark, number, bar, note } = tile.parts;
  tile.id = `tile-${index}`;
  tile.dataset.id = id;
  tile.setAttribute("aria-selected", state.selection.has(id));
  tile.classList.toggle("focused", index === state.focus && !state.ended);
  paintImage(tile, item);
  paintFields(tile, item);
  tile.parts.excerpt.hidden = !item?.text;
  tile.parts.excerpt.textContent = item?.text ?? "";
  const labelled = item?.status === "labelled";
  const allDone = ["labelled", "skipped"].includes(state.view.status); // then no tile is dimmed
  tile.classList.toggle("done", Boolean(item) && item.status !== "unlabelled" && !allDone);
  tile.classList.toggle("saving", Boolean(item?.saving));
  tile.classList.toggle("failed", Boolean(item?.error));
  tile.setAttribute("aria-label", item ? describe(item) : "loading");
  note.textContent = !item ? "" : item.error ? "cannot be read" : item.image_key ? "" : item.path;
  paintChip(mark, item ? classOf(item) : null, labelled, shape.width - BESIDE_NAME);
  const sim = state.view.similarTo ? state.similarity.get(id) : undefined;
  const shown = item && !labelled && !predictionsHidden() && item.pred !== null;
  const word = item?.status === "skipped" ? "skipped" : shown ? percent(item.conf) : "";
  number.textContent = sim === undefined ? word : score(sim);
  bar.style.width = shown ? `${100 * item.conf}%` : "0";
  if (shown) bar.style.background = state.classes.get(item.pred)?.color;
}

// -- geometry

function measure() {
  const room = Math.max(120, grid.clientWidth - 2 * GAP);
  const height = Math.max(200, grid.clientHeight);
  let size = Math.max(56, Math.min(state.preferences.size, room));
  let columns, width, tall, row;
  if (showsTexts()) size = Math.min(TEXT_WIDTH * size, room);
  do {
    columns = Math.max(1, Math.round((room + GAP) / (size + GAP)));
    width = Math.floor((room - GAP * (columns - 1)) / columns);
    tall = showsTexts() ? Math.max(96, Math.round(TEXT_HEIGHT * width)) : width;
    row = tall + CAPTION + GAP;
    size += 4;
  } while (columns * (Math.ceil(height / row) + 1 + 2 * OVERSCAN) > MAX_TILES);
  const rows = Math.ceil(state.order.length / columns);
  const full = rows * row + GAP;
  const spread = Math.min(full, MAX_HEIGHT);
  shape = { columns, width, height: tall, row, rows, stretch: full > spread ? (full - height) / (spread - height) : 1 };
  spacer.style.height = `${spread}px`;
  grid.style.setProperty("--tile", `${width}px`);
  grid.style.setProperty("--tile-height", `${tall}px`);
  grid.setAttribute("aria-rowcount", rows);
  grid.setAttribute("aria-colcount", columns);
}

function newRow() {
  const row = free.pop() || el("div", { role: "row", class: "row" });
  while (row.childNodes.length < shape.columns) row.append(newTile());
  while (row.childNodes.length > shape.columns) row.lastChild.remove();
  return row;
}

function render() {
  const top = grid.scrollTop * shape.stretch;
  const first = Math.max(0, Math.floor(top / shape.row) - OVERSCAN);
  const last = Math.min(shape.rows, Math.ceil((top + grid.clientHeight) / shape.row) + OVERSCAN);
  for (const [number, row] of live) {
    if (number >= first && number < last && row.childNodes.length === shape.columns) continue;
    live.delete(number);
    row.remove();
    free.push(row);
  }
  for (let number = first; number < last; number++) {
    let row = live.get(number);
    const fresh = !row;
    if (fresh) {
      row = newRow();
      live.set(number, row);
      row.setAttribute("aria-rowindex", number + 1);
    }
    row.style.transform = `translateY(${GAP + number * shape.row - top + grid.scrollTop}px)`;
    if (fresh) {
      paintRow(row, number);
      spacer.append(row);
    }
  }
  free.length = Math.min(free.length, 4);
  setVisible(first * shape.columns, Math.min(state.order.length, last * shape.columns));
  active();
}
function paintRow(row, number) {
  row.childNodes.forEach((tile, i) => {
    tile.setAttribute("aria-colindex", i + 1);
    paintTile(tile, number * shape.columns + i);
  });
}
function repaint() {
  for (const [number, row] of live) paintRow(row, number);
  active();
}
/** The grid keeps the keyboard focus and names the focused tile by its id, so reusing tiles never loses it. */
function active() {
  const shown = live.has(Math.floor(state.focus / shape.columns)) && state.order.length;
  if (shown) grid.setAttribute("aria-activedescendant", `tile-${state.focus}`);
  else grid.removeAttribute("aria-activedescendant");
}

function reveal() {
  const y = Math.floor(state.focus / shape.columns) * shape.row;
  const top = grid.scrollTop * shape.stretch;
  if (y < top) grid.scrollTop = y / shape.stretch;
  const below = y + shape.row + GAP - grid.clientHeight;
  if (below > top) grid.scrollTop = below / shape.stretch;
}

function relayout() {
  measure();
  for (const [, row] of live) row.remove();
  live.clear();
  reveal();
  render();
}

// -- moving and clicking

export function move(step, extend) {
  const page = Math.max(1, Math.floor(grid.clientHeight / shape.row)) * shape.columns;
  const by = { left: -1, right: 1, up: -shape.columns, down: shape.columns, pageup: -page, pagedown: page }[step];
  if (state.ended && by) return moveTo(state.focus, { extend });
  const target = step === "home" ? 0 : step === "end" ? state.order.length - 1 : state.focus + by;
  if (target < 0 && step !== "pageup") return undefined;
  if (target >= state.order.length && step === "down" && Math.floor(state.focus / shape.columns) === shape.rows - 1) return undefined;
  return moveTo(target, { extend });
}
export const resize = (by) => setPreferences({ size: Math.max(64, Math.min(320, Math.round(state.preferences.size * by))) });

function click(event) {
  const tile = event.target.closest(".tile");
  if (!tile || tile.hidden) return;
  const id = state.order[tile.index];
  if (event.shiftKey) moveTo(tile.index, { extend: true });
  else {
    moveTo(tile.index);
    if (event.ctrlKey || event.metaKey || event.target.closest(".tick")) toggle(id);
    else if (state.selection.size && !state.selection.has(id)) select([]);
  }
}

export function startGrid() {
  grid.append(spacer);
  grid.addEventListener("click", click);
  grid.addEventListener("dblclick", (event) => {
    if (event.target.closest(".tile")) document.dispatchEvent(new Event("samekind:full"));
  });
  let queued = false;
  grid.addEventListener("scroll", () => {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => { queued = false; render(); });
  }, { passive: true });
  new ResizeObserver(() => { if (!grid.hidden) relayout(); }).observe(grid);
  on("order", () => { grid.scrollTop = 0; relayout(); });
  on("preferences", relayout);
  on("run", () => fitted.clear());
  on("items run selection hidden", repaint);
  on("focus", () => { reveal(); render(); repaint(); });
}
