// Keyboard shortcuts: one table, which the help shows too.
import { $ } from "./dom.js";
import { move, resize } from "./grid.js";
import {
  activeClasses, advance, auditing, targetIds, emit, focusId, hasModel, label, nextUnlabelled, announce, readOnly, select, show,
  items, state, text, toggle, undoOrRedo,
} from "./state.js";
import { confirmMany, fullScreen, help, palette } from "./dialogs.js";
import { refit } from "./refit.js";

const single = () => state.selection.size === 0;

/** Label the selection, or the focused image and move on. More than 500 images need a confirmation. */
export async function applyLabel(op, classId = null) {
  if (op === "accept" && auditing()) return announce("Predictions are hidden during an audit: choose the class yourself.");
  if (op === "accept" && !hasModel()) return announce("There is no model yet, so there is no prediction to accept.");
  if (state.ended && single() && !readOnly()) {
    return announce(text`End of the list: no image was changed. An arrow key goes back to the last one, Ctrl+Z undoes its label.`);
  }
  const ids = targetIds();
  if (ids.length > 500 && !(await confirmMany(ids.length, op, classId))) return undefined;
  if (single() && op !== "clear" && !readOnly()) advance();
  label(op, ids, classId, state.view.similarTo ? "similar" : state.view.tab === "map" ? "map" : "page");
  return undefined;
}
export async function showSimilar() {
  const ids = targetIds().slice(0, 50);
  await show({ similarTo: ids.join(","), tab: "grid" }, { keep: ids[0] });
  const by = hasModel() ? "" : " By the cosine of baseline features: there is no model yet.";
  announce(text`${state.order.length - ids.length} most similar images, most similar first.${by} Esc goes back.`);
}
export function hidePredictions() {
  if (auditing()) return announce("Predictions stay hidden during an audit.");
  if (!hasModel()) return announce("There is no model yet, so there are no predictions.");
  state.hidden = !state.hidden;
  emit("hidden");
  return announce(state.hidden ? "Predictions are hidden." : "Predictions are shown.");
}
function selectAll() {
  select(state.order);
  announce(`All ${items(state.order.length)} selected.`);
}
function escape() {
  if (state.selection.size) return select([]);
  if (state.view.similarTo) return show({ similarTo: "" }, { keep: Number(state.view.similarTo.split(",")[0]) });
  return undefined;
}
/** Return the class of a digit key: 1 to 9 and 0, with Shift 11 to 20. By the position of the key, because layouts differ. */
function byDigit(event) {
  const pad = event.code.startsWith("Numpad") ? /^\d$/.exec(event.key)?.[0] : undefined;
  const digit = /^Digit(\d)$/.exec(event.code)?.[1] ?? pad;
  if (digit === undefined) return undefined;
  const name = event.shiftKey ? `shift+${digit}` : digit;
  return activeClasses().find((c) => c.key === name) || null;
}

export const KEYS = [
  ["1 – 9, 0", "label the image, or all selected; a single one moves on", null],
  ["Shift+1 …", "classes 11 to 20", null],
  ["l", "label palette: type a name, Enter", () => palette()],
  ["Enter", "accept the prediction, move on (selected: each its own)", () => applyLabel("accept")],
  ["Backspace", "clear the label", () => applyLabel("clear")],
  ["Delete", "clear the label", () => applyLabel("clear")],
  ["x", "skip: cannot tell; kept out of training", () => applyLabel("skip")],
  ["ArrowLeft", "move; never changes a label", (e) => move("left", e.shiftKey)],
  ["ArrowRight", "move; never changes a label", (e) => move("right", e.shiftKey)],
  ["ArrowUp", "move; never changes a label", (e) => move("up", e.shiftKey)],
  ["ArrowDown", "move; never changes a label", (e) => move("down", e.shiftKey)],
  ["Home", "first or last image", (e) => move("home", e.shiftKey)],
  ["End", "first or last image", (e) => move("end", e.shiftKey)],
  ["PageUp", "one screen up or down", (e) => move("pageup", e.shiftKey)],
  ["PageDown", "one screen up or down", (e) => move("pagedown", e.shiftKey)],
  [" ", "select or unselect; Shift+arrows extend", () => state.order.length && toggle(focusId())],
  ["Ctrl+a", "select all that the filter shows", selectAll],
  ["Escape", "clear the selection; leave “similar”", escape],
  ["Ctrl+z", "undo", () => undoOrRedo("undo")],
  ["Ctrl+Shift+z", "redo", () => undoOrRedo("redo")],
  ["Ctrl+y", "redo", () => undoOrRedo("redo")],
  ["s", "most similar to the image or the selection", showSimilar],
  ["f", "full screen and back", () => fullScreen()],
  ["w", "of a text: mark the words that matter", () => document.dispatchEvent(new Event("samekind:words"))],
  ["u", "next unlabelled", nextUnlabelled],
  ["h", "hide or show predictions", hidePredictions],
  ["r", "fit or refit (while it runs: show its progress)", refit],
  ["[", "smaller or larger tiles", () => resize(1 / 1.25)],
  ["]", "smaller or larger tiles", () => resize(1.25)],
  ["/", "filter by path", () => $("#search").focus()],
  ["m", "map and back", () => show({ tab: state.view.tab === "map" ? "grid" : "map" })],
  ["?", "this help", () => help()],
];
const HANDLERS = new Map(KEYS.map(([key, , f]) => [key.toLowerCase(), f]));
const TEXT_FIELDS = "input:not([type=range]):not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]";
const PLACES = "#grid, #map, #inspector, #labelbar, #full, body > .skip-link";

/** Handle single keys in the grid, the map and the inspector, never while a person types. */
function onKeydown(event) {
  const target = event.target;
  if (target.closest?.(TEXT_FIELDS) || event.altKey || event.isComposing) return;
  const command = event.ctrlKey || event.metaKey;
  const inDialog = target.closest?.("dialog:not(#full)");
  if (inDialog) return;
  const here = target === document.body || target.closest?.(PLACES);
  const name = `${command ? "ctrl+" : ""}${command && event.shiftKey ? "shift+" : ""}${event.key.toLowerCase()}`;
  if (!command && (!here || (event.key.length === 1 && event.key !== " " && !state.preferences.keys))) return;
  if ([" ", "enter"].includes(name) && target.closest?.("button, a, summary, input")) return;
  if (/^(arrow|home|end|page)/.test(name) && target.closest?.("input")) return;
  if (!command && target.handled?.(event)) return event.preventDefault(); // the map has keys of its own
  const digit = command ? undefined : byDigit(event);
  if (digit === undefined && !HANDLERS.get(name)) return;
  if (name === "escape" && target.closest?.("#full")) return; // the dialog closes itself
  if (command && name === "ctrl+a" && !here) return;
  event.preventDefault();
  if (digit === null) announce("No class has that key. Press l to name one.");
  else if (digit) applyLabel("set", digit.id);
  else HANDLERS.get(name)(event);
}

export function startKeys() {
  document.addEventListener("keydown", onKeydown);
}
