// The map: all images as points, by their features in two dimensions. It shares the selection with the grid.
import { api } from "./api.js";
import { $, button, el, debounce, plain } from "./dom.js";
import { describe } from "./grid.js";
import {
  fetchItems, focusId, hasModel, items, moveTo, on, predictionsHidden, announce, select, shortName, state, handleProblem,
} from "./state.js";

const COLORINGS = [["class", "label, else prediction"], ["prediction", "predicted class"], ["label", "label"], ["confidence", "confidence"]];
const NEUTRAL = "#8a8f98";
const SCALE = ["#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#fde725"]; // viridis, for the confidence
const place = $("#map");
const HOW = "Map. Arrows move the brush, plus and minus zoom, Space selects what is under it, Enter opens one.";
const canvas = el("canvas", { tabindex: "0", role: "application", "aria-label": HOW });
const peek = el("div", { class: "peek", hidden: true }, el("img", { alt: "" }), el("span"));
const pen = canvas.getContext("2d");
const at = { x: 0, y: 0, zoom: 1 }; // the corner in map coordinates, and the magnification
const brush = { x: 0.5, y: 0.5, r: 30, on: false };
let points = null;
let colors = null;
let loaded = ""; // model version and layout of the loaded map
let mode = "move";
let lasso = [];
let inside = new Set();
let size = 3; // of a point
let colorBy = "class"; // see COLORINGS
let shown = []; // the classes that are shown, see regroup
let stale = true; // whether the layer of points must be drawn again
const layer = document.createElement("canvas");

// A point (x, y) of the map is at (x * k + dx, y * k + dy) on the screen.
const lens = { k: 1, dx: 0, dy: 0 };
function aim() {
  const [w, h] = [canvas.clientWidth, canvas.clientHeight];
  const k = at.zoom * Math.min(w, h);
  Object.assign(lens, { k, dx: (w - Math.min(w, h)) / 2 - at.x * k, dy: (h - Math.min(w, h)) / 2 - at.y * k });
  stale = true;
}
const toScreen = (x, y) => [x * lens.k + lens.dx, y * lens.k + lens.dy];
const toMap = (px, py) => [(px - lens.dx) / lens.k, (py - lens.dy) / lens.k];

// -- data

async function load() {
  if (place.hidden || !state.run) return;
  const newest = `${state.run.model.version} ${state.run.map}`;
  try {
    if (loaded !== newest) {
      points = (await api.map()).values;
      loaded = newest;
    }
    colors = (await api.colors()).values;
    aim();
    regroup();
  } catch (problem) {
    handleProblem(problem);
  }
}
const reload = debounce(load, 400);

// -- drawing: the points are on a layer of their own, which is reused while only the selection changes

const predOf = (id) => (predictionsHidden() ? -1 : colors[3 * id]);
const labelOf = (id) => colors[3 * id + 1];
/** Return the class by which a point is colored, or -1. */
function shownClass(id) {
  if (colorBy === "prediction") return predOf(id);
  return labelOf(id) >= 0 ? labelOf(id) : colorBy === "label" ? -1 : predOf(id);
}
function pointColor(id, color) {
  if (colorBy !== "confidence") return color.get(shownClass(id)) || NEUTRAL;
  const confidence = predictionsHidden() ? -1 : colors[3 * id + 2] / 10000;
  return confidence < 0 ? NEUTRAL : SCALE[Math.min(SCALE.length - 1, Math.floor(confidence * SCALE.length))];
}

const median = (values) => values.sort()[values.length >> 1];
/** Find the classes that are shown, the largest first: how many points each has, and their median, which does not depend on the zoom. */
function regroup() {
  if (!points || !colors) return;
  const found = new Map();
  for (const id of inside) {
    const classId = colorBy !== "confidence" ? shownClass(id) : labelOf(id) >= 0 ? labelOf(id) : predOf(id);
    if (classId < 0 || points[2 * id] === undefined || !state.classes.has(classId)) continue;
    if (!found.has(classId)) found.set(classId, []);
    found.get(classId).push(id);
  }
  shown = [...found].map(([classId, ids]) => ({
    one: state.classes.get(classId),
    n: ids.length,
    x: median(Float32Array.from(ids, (id) => points[2 * id])),
    y: median(Float32Array.from(ids, (id) => points[2 * id + 1])),
  })).sort((a, b) => b.n - a.n);
  drawLegend();
  redraw();
}
/** Write the name of each class above the median of its points; a name that would cover another is left to the legend. */
function drawNames(ink) {
  const written = [];
  ink.font = "600 13px system-ui, sans-serif";
  ink.textAlign = "center";
  ink.textBaseline = "middle";
  ink.lineJoin = "round";
  const style = getComputedStyle(canvas);
  for (const group of shown) {
    const [px, py] = toScreen(group.x, group.y);
    if (px < 0 || py < 0 || px > canvas.clientWidth || py > canvas.clientHeight) continue;
    const name = shortName(group.one, 24);
    const half = ink.measureText(name).width / 2 + 6;
    const x = Math.max(half, Math.min(canvas.clientWidth - half, px));
    const y = Math.max(12, py - 16); // above the points, which may all be in one place
    if (written.some(([a, b, w]) => Math.abs(a - x) < w + half && Math.abs(b - y) < 20)) continue;
    written.push([x, y, half]);
    ink.strokeStyle = style.backgroundColor;
    ink.lineWidth = 5;
    ink.strokeText(name, x, y);
    ink.fillStyle = style.color;
    ink.fillText(name, x, y);
  }
}
/** Draw the legend: the classes with their colors and numbers of points, or the scale of the confidence. */
function drawLegend() {
  const line = (color, name) => el("li", {}, el("i", { class: "swatch", style: { background: color } }), name);
  const limit = (i) => Math.round((100 * i) / SCALE.length);
  const lines = colorBy === "confidence" ? SCALE.map((color, i) => line(color, `${limit(i)} – ${limit(i + 1)} %`))
    : shown.map(({ one, n }) => line(one.color, `${one.name} ${plain(n)}`));
  $("#map-legend").replaceChildren(...lines);
}

/** Return the ids grouped by color; images outside the filter are faint. */
function byColor() {
  const groups = new Map([["faint", []]]);
  const color = new Map([...state.classes.values()].map((c) => [c.id, c.color]));
  for (let id = 0; id < points.length / 2; id++) {
    const key = inside.has(id) ? pointColor(id, color) : "faint";
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(id);
  }
  return groups;
}
function fit(target) {
  const scale = devicePixelRatio;
  target.width = Math.round(canvas.clientWidth * scale);
  target.height = Math.round(canvas.clientHeight * scale);
  target.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
}
function drawPoints() {
  fit(layer);
  const ink = layer.getContext("2d");
  const n = points.length / 2;
  size = Math.max(2, Math.min(9, (n > 20000 ? 1.5 : n > 5000 ? 3 : 4.5) * Math.sqrt(at.zoom)));
  ink.strokeStyle = getComputedStyle(canvas).color;
  for (const [color, ids] of byColor()) {
    ink.fillStyle = color === "faint" ? "rgba(128,132,140,.22)" : color;
    for (const id of ids) dot(ink, id);
  }
  drawNames(ink);
  stale = false;
}
function dot(ink, id) {
  const given = labelOf(id) >= 0;
  const s = given ? size * 1.5 : size;
  const x = points[2 * id] * lens.k + lens.dx;
  const y = points[2 * id + 1] * lens.k + lens.dy;
  if (given || s < 4) ink.fillRect(x - s / 2, y - s / 2, s, s); // a label is a square with a border, a prediction is round
  else {
    ink.beginPath();
    ink.arc(x, y, s / 2, 0, 7);
    ink.fill();
  }
  if (given && s >= 4) ink.strokeRect(x - s / 2, y - s / 2, s, s);
}
let queued = false;
function draw() {
  if (!queued) requestAnimationFrame(paint);
  queued = true;
}
function paint() {
  queued = false;
  if (place.hidden || !points || !canvas.clientWidth) return;
  if (stale) drawPoints();
  fit(canvas);
  pen.drawImage(layer, 0, 0, canvas.clientWidth, canvas.clientHeight);
  ring([...state.selection], size + 3, 2);
  ring(state.order.length ? [focusId()] : [], size + 7, 3);
  drawTools();
}
function redraw() {
  stale = true;
  draw();
}
function ring(ids, width, line) {
  pen.strokeStyle = getComputedStyle(canvas).color;
  pen.lineWidth = line;
  pen.beginPath();
  for (const id of ids) {
    const [x, y] = toScreen(points[2 * id], points[2 * id + 1]);
    pen.rect(x - width / 2, y - width / 2, width, width);
  }
  pen.stroke();
}
function drawTools() {
  pen.strokeStyle = getComputedStyle(canvas).color;
  pen.lineWidth = 1.5;
  pen.setLineDash([5, 4]);
  pen.beginPath();
  lasso.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  if (brush.on) {
    const [x, y] = toScreen(brush.x, brush.y);
    pen.moveTo(x + brush.r, y);
    pen.arc(x, y, brush.r, 0, 2 * Math.PI);
  }
  pen.stroke();
  pen.setLineDash([]);
}

// -- selecting

function within(test) {
  const found = [];
  for (const id of inside) {
    const [x, y] = toScreen(points[2 * id], points[2 * id + 1]);
    if (test(x, y)) found.push(id);
  }
  return found;
}
function enclosed(x, y) {
  let odd = false;
  for (let i = 0, j = lasso.length - 1; i < lasso.length; j = i++) {
    const [ax, ay] = lasso[i];
    const [bx, by] = lasso[j];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) odd = !odd;
  }
  return odd;
}
function nearest(px, py, reach) {
  let best = null;
  let least = reach ** 2;
  for (const id of inside) {
    const [x, y] = toScreen(points[2 * id], points[2 * id + 1]);
    const far = (x - px) ** 2 + (y - py) ** 2;
    if (far < least) { least = far; best = id; }
  }
  return best;
}
function choose(ids, add) {
  select(add ? new Set([...state.selection, ...ids]) : ids);
  announce(`${items(state.selection.size)} selected on the map.`);
}
function zoom(by, px = canvas.clientWidth / 2, py = canvas.clientHeight / 2) {
  const [x, y] = toMap(px, py);
  at.zoom = Math.max(0.8, Math.min(60, at.zoom * by));
  aim();
  const [nx, ny] = toMap(px, py);
  at.x += x - nx;
  at.y += y - ny;
  aim();
  draw();
}

/** Handle the keys of the map; other keys go to the page. */
canvas.handled = (event) => {
  if (!points) return false;
  const step = (event.shiftKey ? 60 : 15) / lens.k;
  const by = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
  const [x, y] = toScreen(brush.x, brush.y);
  if (by) Object.assign(brush, { x: brush.x + by[0], y: brush.y + by[1], on: true });
  else if (event.key === "+" || event.key === "=") zoom(1.3, x, y);
  else if (event.key === "-") zoom(1 / 1.3, x, y);
  else if (event.key === "[" || event.key === "]") setBrush(brush.r * (event.key === "]" ? 1.25 : 0.8));
  else if (event.key === " ") choose(within((a, b) => (a - x) ** 2 + (b - y) ** 2 <= brush.r ** 2), true);
  else if (event.key === "Enter" && brush.on && !state.selection.size) {
    const id = nearest(x, y, brush.r);
    if (id !== null) moveTo(state.order.indexOf(id));
  } else return false;
  draw();
  return true;
};
function setBrush(r) {
  Object.assign(brush, { r: Math.max(4, Math.min(300, Math.round(r) || 30)), on: true });
  $("#brush").value = brush.r;
  draw();
}

// -- the pointer

let held = null;
function down(event) {
  held = { x: event.offsetX, y: event.offsetY, ax: at.x, ay: at.y, moved: false, lasso: mode === "lasso" || event.shiftKey };
  if (held.lasso) lasso = [[held.x, held.y]];
  canvas.setPointerCapture(event.pointerId);
}
function drag(event) {
  if (!points) return;
  if (!held) return hover(event.offsetX, event.offsetY);
  held.moved ||= Math.hypot(event.offsetX - held.x, event.offsetY - held.y) > 4;
  if (held.lasso) lasso.push([event.offsetX, event.offsetY]);
  else {
    Object.assign(at, { x: held.ax - (event.offsetX - held.x) / lens.k, y: held.ay - (event.offsetY - held.y) / lens.k });
    aim();
  }
  draw();
}
function up(event) {
  if (!held || !points) return;
  if (held.lasso && held.moved) choose(within(enclosed), event.ctrlKey || event.metaKey);
  else if (!held.moved) {
    const id = nearest(event.offsetX, event.offsetY, 14);
    if (id !== null) moveTo(state.order.indexOf(id));
  }
  held = null;
  lasso = [];
  draw();
}
const hover = debounce(async (x, y) => {
  const id = nearest(x, y, 12);
  peek.hidden = id === null;
  if (id === null) return;
  if (!state.items.has(id)) await fetchItems([id]).catch(handleProblem);
  const item = state.items.get(id);
  if (!item) return;
  peek.firstChild.hidden = !item.image_key || Boolean(item.error) || item.fields.length > 0 || item.text !== null;
  if (!peek.firstChild.hidden) peek.firstChild.src = api.thumb(item, 128);
  peek.lastChild.textContent = describe(item);
  peek.style.left = `${Math.min(x + 14, canvas.clientWidth - 150)}px`;
  peek.style.top = `${Math.min(y + 14, canvas.clientHeight - 170)}px`;
}, 40);

export function startMap() {
  const swap = (event) => {
    mode = mode === "lasso" ? "move" : "lasso";
    event.currentTarget.setAttribute("aria-pressed", String(mode === "lasso"));
  };
  const whole = () => { Object.assign(at, { x: 0, y: 0, zoom: 1 }); aim(); draw(); };
  const radius = el("input", {
    type: "number", id: "brush", min: 4, max: 300, value: brush.r, class: "small", "aria-label": "Brush radius",
    onchange: (event) => setBrush(Number(event.target.value)),
  });
  const coloring = el("select", {
    id: "color-by", onchange: (event) => { colorBy = event.target.value; regroup(); },
  }, ...COLORINGS.map(([value, name]) => el("option", { value }, name)));
  const tools = el("div", { class: "map-tools" },
    button("lasso", swap, { "aria-pressed": "false", title: "Draw round the points to select (also Shift and drag)" }),
    button("", () => zoom(1.4), { symbol: "plus", title: "Zoom in" }),
    button("", () => zoom(1 / 1.4), { symbol: "minus", title: "Zoom out" }), button("whole map", whole),
    el("label", { class: "field-inline" }, "brush", radius),
    el("label", { class: "field-inline of-model" }, "color by", coloring),
    el("span", { class: "muted", id: "legend" }));
  place.append(tools, el("ul", { id: "map-legend", "aria-label": "Legend", tabindex: "0" }), el("div", { class: "canvas" }, canvas, peek));
  canvas.addEventListener("pointerdown", down);
  canvas.addEventListener("pointermove", drag);
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointerleave", () => { peek.hidden = true; });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, event.offsetX, event.offsetY);
  }, { passive: false });
  new ResizeObserver(() => { aim(); draw(); }).observe(canvas);
  on("run", () => {
    $("#legend").textContent = hasModel() ? "squares are labels, dots predictions" : "squares are labels; baseline features";
  });
  on("order", () => { inside = new Set(state.order); regroup(); });
  on("view run", reload);
  on("hidden", regroup);
  on("selection focus", draw);
}
