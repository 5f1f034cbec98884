// The keys: one table, which is also what the help shows.
import { $, count } from "./dom.js";
import { move, resize } from "./grid.js";
import {
  activeClasses, auditing, chosen, emit, focusId, hasModel, label, moveTo, nextUnlabelled, say, select, show, state, toggle, travel,
} from "./store.js";
import { confirmMany, fullScreen, help, palette } from "./dialogs.js";
import { refit } from "./job.js";

const single = () => state.selection.size === 0;

/** Label what is chosen; a single image also moves on. Many images ask once. */
export async function act(op, classId = null) {
  if (op === "accept" && auditing()) return say("An audit is blind: give the class yourself.");
  if (op === "accept" && !hasModel()) return say("There is no model yet, so there is no prediction to accept.");
  const ids = chosen();
  if (ids.length > 500 && !(await confirmMany(ids.length, op, classId))) return undefined;
  const advance = single() && op !== "clear";
  label(op, ids, classId, state.view.like ? "similar" : state.view.tab === "map" ? "map" : "page");
  if (advance) moveTo(state.focus + 1);
  return undefined;
}
export async function showSimilar() {
  const ids = chosen().slice(0, 50);
  await show({ like: ids.join(","), tab: "grid" }, { keep: ids[0] });
  const by = hasModel() ? "" : " By the cosine of plain features: nothing is learned yet.";
  say(`${state.order.length - ids.length} most alike, most alike first.${by} Esc goes back.`);
}
export function hidePredictions() {
  if (auditing()) return say("An audit is blind: predictions stay hidden.");
  if (!hasModel()) return say("There is no model yet, so there are no predictions.");
  state.hidden = !state.hidden;
  emit("hidden");
  return say(state.hidden ? "Predictions are hidden." : "Predictions are shown.");
}
function selectAll() {
  select(state.order);
  say(`All ${count(state.order.length, "image")} selected.`);
}
function escape() {
  if (state.selection.size) return select([]);
  if (state.view.like) return show({ like: "" }, { keep: Number(state.view.like.split(",")[0]) });
  return undefined;
}
/** The class behind a digit key: 1 to 9 and 0, with Shift 11 to 20. By the place of the key, as layouts differ. */
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
  ["Enter", "accept the prediction, move on (selected: each its own)", () => act("accept")],
  ["Backspace", "clear the label", () => act("clear")],
  ["Delete", "clear the label", () => act("clear")],
  ["x", "skip: cannot tell; kept out of training", () => act("skip")],
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
  ["Ctrl+z", "undo", () => travel("undo")],
  ["Ctrl+Shift+z", "redo", () => travel("redo")],
  ["Ctrl+y", "redo", () => travel("redo")],
  ["s", "most alike to the image or the selection", showSimilar],
  ["f", "full screen and back", () => fullScreen()],
  ["u", "next unlabelled", nextUnlabelled],
  ["h", "hide or show predictions", hidePredictions],
  ["r", "fit, for the first time or again (while it runs: show how far it is)", refit],
  ["[", "smaller or larger tiles", () => resize(1 / 1.25)],
  ["]", "smaller or larger tiles", () => resize(1.25)],
  ["/", "filter by path", () => $("#search").focus()],
  ["m", "map and back", () => show({ tab: state.view.tab === "map" ? "grid" : "map" })],
  ["?", "this help", () => help()],
];
const TABLE = new Map(KEYS.map(([key, , f]) => [key.toLowerCase(), f]));
const WRITING = "input:not([type=range]):not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]";
const PLACES = "#grid, #map, #inspector, #labelbar, #full, body > .skip-link";

/** Single keys work where images are: the grid, the map, the inspector. Never while somebody writes. */
function listen(event) {
  const target = event.target;
  if (target.closest?.(WRITING) || event.altKey || event.isComposing) return;
  const command = event.ctrlKey || event.metaKey;
  const inDialog = target.closest?.("dialog:not(#full)");
  if (inDialog) return;
  const here = target === document.body || target.closest?.(PLACES);
  const name = `${command ? "ctrl+" : ""}${command && event.shiftKey ? "shift+" : ""}${event.key.toLowerCase()}`;
  if (!command && (!here || (event.key.length === 1 && event.key !== " " && !state.preferences.keys))) return;
  if ([" ", "enter"].includes(name) && target.closest?.("button, a, summary, input")) return;
  if (/^(arrow|home|end|page)/.test(name) && target.closest?.("input")) return;
  if (!command && target.handled?.(event)) return event.preventDefault(); // the map knows some keys of its own
  const digit = command ? undefined : byDigit(event);
  if (digit === undefined && !TABLE.get(name)) return;
  if (name === "escape" && target.closest?.("#full")) return; // the dialog closes itself
  if (command && name === "ctrl+a" && !here) return;
  event.preventDefault();
  if (digit === null) say("No class has that key. Press l to name one.");
  else if (digit) act("set", digit.id);
  else TABLE.get(name)(event);
}

export function startKeys() {
  document.addEventListener("keydown", listen);
}
