// DOM helpers. They take no markup, so every text enters the page as text.

const SVG = "http://www.w3.org/2000/svg";
const ICONS = {
  check: "M3 8.5l3.2 3.2L13 4.8",
  close: "M4 4l8 8M12 4l-8 8",
  undo: "M6 3L2.5 6.5 6 10M3 6.5h6.5a3.5 3.5 0 010 7H7",
  redo: "M10 3l3.5 3.5L10 10M13 6.5H6.5a3.5 3.5 0 000 7H9",
  eye: "M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8zM8 6a2 2 0 100 4 2 2 0 000-4z",
  skip: "M8 2.5a5.5 5.5 0 100 11 5.5 5.5 0 000-11zM4.2 4.2l7.6 7.6",
  more: "M8 3.5v.01M8 8v.01M8 12.5v.01",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  sliders: "M2 4.5h7m3 0h2M2 11.5h2m3 0h7M10.5 3v3M5.5 10v3",
  panel: "M2.5 3h11v10h-11zM9.5 3v10",
  expand: "M9.5 2.5h4v4M6.5 13.5h-4v-4M13.5 2.5L9 7M2.5 13.5L7 9",
  up: "M8 13V3.5M4 7l4-4 4 4",
  down: "M8 3v9.5M4 9l4 4 4-4",
};

/** Return an element: `el("button", {class: "x", onclick: f, "aria-label": "y"}, "text", child)`. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "style") Object.entries(value).forEach(([k, v]) => node.style.setProperty(k, v));
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** Return a button; one with a `symbol` and no text needs a `title`, which is also its accessible name. */
export function button(text, onclick, { variant = "", key = "", symbol = null, title = null, ...rest } = {}) {
  const parts = [symbol && icon(symbol), text && el("span", {}, text), key && el("kbd", { "aria-hidden": "true" }, key)];
  const name = title && !text ? { "aria-label": title } : {};
  return el("button", { type: "button", class: `button ${variant}`, onclick, title, ...name, ...rest }, ...parts);
}

export const muted = (text) => el("p", { class: "muted" }, text);
export const $ = (selector) => document.querySelector(selector);
export const percent = (p, digits = 0) => (p === null || p === undefined ? "–" : `${(100 * p).toFixed(digits)} %`);
export const plain = (n) => Number(n).toLocaleString("en");
export const count = (n, one, many = `${one}s`) => `${plain(n)} ${n === 1 ? one : many}`;

/** Show the pixels of a small image instead of blurring it. */
export const sharpenSmall = (event) => event.target.classList.toggle("pixels", event.target.naturalWidth <= 96);

/** Return a function that runs `f` once it was not called for `ms`. */
export function debounce(f, ms) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => f(...args), ms);
  };
}
