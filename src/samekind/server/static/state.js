// The state of the page and the functions that change it. Other parts listen to its topics.
import { api, ApiError, requestId } from "./api.js";
import { count, debounce } from "./dom.js";

export const SORTS = {
  margin: "uncertain (margin)",
  entropy: "uncertain (entropy)",
  confidence: "least confident",
  disagreement: "neighbours disagree",
  differs: "label least probable",
  diverse: "diverse",
  newest: "last labelled",
  path: "path",
  random: "random",
  audit: "audit (random, blind)",
};
const FIELDS = ["sort", "dir", "status", "pred", "label", "conf_min", "conf_max", "q", "similarTo", "tab"];
const PALETTE = "#0072b2 #d55e00 #009e73 #cc79a7 #e69f00 #56b4e9 #7b3fa0 #8c6d31 #f0e442 #5f6670".split(" ");
const CHUNK = 10000; // ids in one write
const MAX_ITEMS = 20000; // kept in memory

export const state = {
  run: null, classes: new Map(), view: { tab: "grid" }, order: new Uint32Array(0), orderVersion: 0, orderRevision: 0, similarity: new Map(),
  items: new Map(), focus: 0, anchor: 0, selection: new Set(), hidden: false, job: null, pending: 0, online: true,
  locked: false,
  ended: false, // after the last image was labelled: keys label nothing until the focus moves
  replaced: null, // id of the last batch if it replaced other labels
  seq: 0, drifted: 0, loading: true, minSimilarity: 0.5, preferences: readPreferences(),
};

// -- listening

const listeners = new Map();
const waiting = new Set();
export function on(topics, f) {
  for (const topic of topics.split(" ")) listeners.set(topic, [...(listeners.get(topic) || []), f]);
}
/** Notify the listeners of a topic, once per turn of the event loop. */
export function emit(topic) {
  if (!waiting.size) queueMicrotask(() => {
    const topics = [...waiting];
    waiting.clear();
    new Set(topics.flatMap((t) => listeners.get(t) || [])).forEach((f) => f());
  });
  waiting.add(topic);
}
let said = 0; // number of messages so far
let announcer = () => {};
export const onAnnounce = (f) => { announcer = f; };
/** Show a message in the status line. */
export function announce(message, tone = "") {
  said += 1;
  announcer(message, tone);
}

// -- preferences of this browser (size of tiles, single keys on or off); no data of the run

function readPreferences() {
  let kept = {};
  try { kept = JSON.parse(localStorage.getItem("samekind") || "{}"); } catch { /* unreadable or forbidden: use the defaults */ }
  return { size: 128, keys: true, ...kept };
}
export function setPreferences(changes) {
  Object.assign(state.preferences, changes);
  try { localStorage.setItem("samekind", JSON.stringify(state.preferences)); } catch { /* private mode: forgotten when the tab closes */ }
  emit("preferences");
}

// -- questions about the state

export const focusId = () => state.order[state.focus];
export const focused = () => state.items.get(focusId());
export const targetIds = () => (state.selection.size ? [...state.selection] : state.order.length ? [focusId()] : []);
export const activeClasses = () => [...state.classes.values()].filter((c) => !c.archived);
export const className = (id) => state.classes.get(id)?.name ?? "no class";
export const auditing = () => state.view.sort === "audit";
export const predictionsHidden = () => state.hidden || auditing();
export const classOf = (item) => (item.status === "labelled" ? item.label : predictionsHidden() ? null : item.pred);
export const showsTexts = () => state.run?.kind === "texts";
const NOUNS = { rows: ["row", "Row"], texts: ["text", "Text"] };
/** Return a template literal in which a run on rows or texts speaks of these instead of images; values stay as they are. */
export function text(parts, ...values) {
  const noun = NOUNS[state.run?.kind];
  const own = (part) => (noun ? part.replace(/\b([Ii])mage(s?)\b/g, (_, i, s) => `${noun[i === "I" ? 1 : 0]}${s}`) : part);
  return [...parts].map((part, i) => own(part) + (i < values.length ? values[i] : "")).join("");
}
/** Return "1 image" or "7 rows". */
export const items = (n, which = "") => text([count(n, `${which}image`)]);
export const readOnly = () => Boolean(state.run?.read_only);
/** Return whether there is a model. Version 0 means baseline features without predictions. */
export const hasModel = () => Boolean(state.run?.model.version);
export const defaultSort = () => (hasModel() && state.run.n_labelled ? "margin" : "diverse");

/** Give each class one or two letters that no other class has: C, De, Do. */
function letters(classes) {
  const first = (c) => (c.name.trim() || "?")[0].toUpperCase();
  const taken = new Set();
  for (const one of classes) {
    const rivals = classes.filter((c) => c !== one && first(c) === first(one));
    const rest = [...one.name.trim()].slice(1);
    const differs = (ch, i) => rivals.every((r) => r.name.trim()[i + 1] !== ch);
    const usable = rest.filter((ch, i) => /[\p{L}\p{N}]/u.test(ch) && differs(ch, i));
    const second = [...usable, ...rest, ..."0123456789"].find((ch) => !taken.has(first(one) + ch));
    one.letter = rivals.length ? first(one) + (second ?? "") : first(one);
    taken.add(one.letter);
  }
}

/** Return a class name in at most n characters; what differs from the other classes stays: "crocodile_head" gives "cr…head". */
export function shortName(one, n) {
  const name = one.name;
  if (name.length <= n) return name;
  const end = name.slice(0, n - 1);
  const others = activeClasses().filter((c) => c !== one && c.name.startsWith(end));
  if (!others.length) return `${end}…`;
  const common = (a, b) => { let i = 0; while (i < a.length && a[i] === b[i]) i += 1; return i; };
  const from = Math.min(Math.max(...others.map((c) => common(c.name, name))), name.length - (n - 3));
  const tail = name.slice(from);
  return `${name.slice(0, 2)}…${tail.length > n - 3 ? `${tail.slice(0, n - 4)}…` : tail}`;
}

function ink(color) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16) / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}

// -- the run

function setRun(run) {
  const { version, revision } = state.run?.model ?? {};
  const mergedClasses = ({ classes }) => classes.filter((c) => c.archived).map((c) => `${c.id} ${c.merged_into}`).join();
  const merged = version !== undefined && mergedClasses(state.run) !== mergedClasses(run);
  state.run = run;
  const classes = run.classes.map((c, i) => ({ ...c, color: /^#[0-9a-f]{6}$/i.test(c.color) ? c.color : PALETTE[i % 10] }));
  classes.forEach((c) => { c.ink = ink(c.color); });
  letters(classes.filter((c) => !c.archived));
  state.classes = new Map(classes.map((c) => [c.id, c]));
  if (version === undefined && !run.model.version) state.minSimilarity = 0.25; // cosines are lower than learned similarities
  if (merged || (version !== undefined && version !== run.model.version)) reloadItems();
  else if (revision !== undefined && revision !== run.model.revision) refreshItems();
  if (version === 0 && run.model.version) state.minSimilarity = 0.5;
  emit("run");
}
export async function loadRun() { setRun(await api.run()); }
export const refreshRun = debounce(() => loadRun().catch(handleProblem), 150);

/** Load the visible items again, because a refit, or a merged or deleted class, has changed the predictions. */
function reloadItems() {
  const ids = visibleIds();
  state.items.clear();
  requestItems(ids);
  emit("items");
  emit("focus");
}

/** Load the visible items again without hiding them meanwhile, because an update after a label has changed the predictions. */
function refreshItems() {
  const ids = new Set(visibleIds());
  for (const [id, item] of state.items) if (!ids.has(id) && !item.saving) state.items.delete(id);
  fetchItems([...ids]).then(() => emit("detail"), handleProblem);
}

// -- connection to the server

let resolveOnline = null;
let online = Promise.resolve();
/** Handle a failed request: remember that the server is away or wants a login, or show its message. */
export function handleProblem(problem) {
  if (problem.name === "AbortError") return;
  if (!(problem instanceof ApiError)) throw problem;
  if (problem.status === 0 || problem.status === 401) {
    if (!resolveOnline) online = new Promise((resolve) => { resolveOnline = resolve; });
    state.online = problem.status !== 0;
    state.locked = problem.status === 401;
    emit("online");
  } else announce(problem.message, "bad");
}
export function reconnected() {
  state.online = true;
  state.locked = false;
  resolveOnline?.();
  resolveOnline = null;
  emit("online");
}

// -- order and view

const abort = { order: null };
export function fragment() {
  const isSet = (f, v) => v !== "" && v !== undefined && !(f === "tab" && v === "grid");
  const values = FIELDS.map((f) => [f, state.view[f]]).filter(([f, v]) => isSet(f, v));
  if (state.order.length) values.push(["focus", focusId()]);
  return `#${new URLSearchParams(values)}`;
}
const saveFocus = debounce(() => history.replaceState(null, "", fragment()), 250);

export function readFragment() {
  const given = new URLSearchParams(location.hash.slice(1));
  const view = Object.fromEntries(FIELDS.map((f) => [f, given.get(f) || ""]));
  return { view: { ...view, tab: view.tab || "grid" }, focus: given.has("focus") ? Number(given.get("focus")) : null };
}

/** Change the view and the address with it, so that back and reload work. */
export async function show(changes, { keep = null, push = true } = {}) {
  const before = state.view;
  const saidBefore = said;
  state.view = { ...state.view, ...changes };
  state.replaced = null;
  emit("view");
  const other = FIELDS.some((f) => f !== "tab" && String(before[f] ?? "") !== String(state.view[f] ?? ""));
  const done = other || push === "reload" ? await loadOrder(keep) : true;
  if (push === true && done) history.pushState(null, "", fragment());
  if (done && said === saidBefore) announce(""); // a message about the last view would be wrong now
}

export const UNFILTERED = { similarTo: "", status: "", pred: "", label: "", conf_min: "", conf_max: "", q: "" };
/** Begin an audit at the first unlabelled image of its random order, but not at the one in focus: its prediction was seen. */
export async function startAudit() {
  const seen = focusId();
  await show({ ...UNFILTERED, sort: "audit", dir: "", status: "unlabelled", tab: "grid" }, { keep: -1 });
  if (state.order.length > 1 && focusId() === seen) moveTo(1);
}

export async function loadOrder(keep = null) {
  abort.order?.abort();
  abort.order = new AbortController();
  const kept = keep ?? focusId();
  state.loading = true;
  try {
    const { similarTo, tab, ...view } = state.view;
    const params = { ...view, sort: view.sort || defaultSort() };
    if (!hasModel() && !state.run.sorts.includes(params.sort)) params.sort = "diverse"; // from an old address
    const { values, version, revision = state.run.model.revision } = similarTo ? await findSimilar(similarTo.split(",").map(Number)) : await api.order(params, abort.order.signal);
    Object.assign(state, { order: values, orderVersion: version, orderRevision: revision, drifted: 0 });
  } catch (problem) {
    handleProblem(problem);
    return false; // replaced by a newer request, or the server is away
  } finally {
    state.loading = false;
  }
  state.focus = Math.max(0, state.order.indexOf(kept));
  state.ended = false;
  state.anchor = state.focus;
  const inside = state.selection.size ? new Set(state.order) : state.selection;
  state.selection = new Set([...state.selection].filter((id) => inside.has(id)));
  ["order", "focus", "selection"].forEach(emit);
  return true;
}

async function findSimilar(ids) {
  const only = ["labelled", "unlabelled"].includes(state.view.status) ? state.view.status : "all";
  const found = await api.similar({ ids, k: 300, only }, abort.order.signal);
  state.similarity = new Map(found.results.map((r) => [r.id, r]));
  const others = found.results.map((r) => r.id).filter((id) => !ids.includes(id));
  return { values: Uint32Array.from([...ids, ...others]), version: found.model_version };
}

// -- items: all visible ones are requested together

let requestedIds = new Set();
let itemRequest = null;
const visible = { first: 0, last: 0 };
const visibleIds = () => [...state.order.subarray(visible.first, visible.last)];
export function setVisible(first, last) {
  Object.assign(visible, { first, last });
  requestItems(visibleIds());
}
export function requestItems(ids) {
  const missing = [...new Set([...ids, ...visibleIds()])].filter((id) => !state.items.has(id));
  if (!missing.length) return;
  if (itemRequest && missing.every((id) => requestedIds.has(id))) return;
  requestedIds = new Set(missing);
  fetchRequested();
}
const fetchRequested = debounce(async () => {
  itemRequest?.abort();
  const mine = (itemRequest = new AbortController());
  try {
    await fetchItems([...requestedIds], mine.signal);
  } catch (problem) {
    handleProblem(problem);
  } finally {
    if (itemRequest === mine) itemRequest = null;
  }
}, 25);

let itemRequests = 0;
const changes = new Map(); // id -> the last known change of its label, and the number of item requests before it
export async function fetchItems(ids, signal) {
  for (let i = 0; i < ids.length; i += 500) {
    const request = ++itemRequests;
    const response = await api.items(ids.slice(i, i + 500), signal);
    for (const item of response.items) {
      const old = state.items.get(item.id);
      const change = changes.get(item.id);
      const newer = change && change.after >= request ? change.values : {}; // the response may be older than the change
      if (!old?.saving) state.items.set(item.id, { ...item, ...newer, saving: 0 });
    }
  }
  const oldest = [...state.items.keys()].slice(0, Math.max(0, state.items.size - MAX_ITEMS));
  oldest.forEach((id) => state.items.delete(id));
  emit("items");
}

// -- focus and selection

export function moveTo(index, { extend = false } = {}) {
  if (!state.order.length) return;
  state.focus = Math.max(0, Math.min(state.order.length - 1, index));
  state.ended = false;
  if (extend) {
    const [a, b] = [state.anchor, state.focus].sort((x, y) => x - y);
    state.selection = new Set(state.order.subarray(a, b + 1));
    emit("selection");
  } else state.anchor = state.focus;
  emit("focus");
  saveFocus();
}
export function toggle(id) {
  if (!state.selection.delete(id)) state.selection.add(id);
  state.anchor = state.focus;
  emit("selection");
}
export function select(ids) {
  state.selection = new Set(ids);
  emit("selection");
}
/** Return the place of the next unlabelled image, or -1; an audit goes on at the beginning, because it has no end. */
function unlabelledPlace() {
  const n = state.order.length;
  const last = auditing() ? state.focus + n : n;
  for (let i = state.focus + 1; i < last; i++) {
    const item = state.items.get(state.order[i % n]);
    if (!item || item.status === "unlabelled") return i % n; // not loaded yet, so it may be unlabelled
  }
  return -1;
}
export function nextUnlabelled() {
  const place = unlabelledPlace();
  if (place >= 0) return moveTo(place);
  return announce(auditing() ? text`Every image of the audit is labelled.` : text`No unlabelled image after this one in this order.`);
}
/** Move on after a label. After the last image the list has ended: the next key must not label that image again. */
export function advance() {
  const next = auditing() ? unlabelledPlace() : state.focus + 1 < state.order.length ? state.focus + 1 : -1;
  if (next >= 0) return moveTo(next);
  state.ended = true;
  return emit("focus");
}

// -- labels: shown immediately, sent in order, reverted with a message if refused

let tail = Promise.resolve();
const ownBatches = new Set();
/** Send writes one after the other; while the server is away they wait. Each response advances the last known event. */
export function write(job) {
  state.pending += 1;
  emit("saving");
  const done = tail.then(async () => {
    for (;;) {
      try {
        const response = await job();
        ownBatches.add(response.batch);
        if (response.seq - response.changed === state.seq) state.seq = response.seq;
        else await pollEvents(); // another tab wrote in between
        return response;
      } catch (problem) {
        if (!(problem instanceof ApiError) || (problem.status !== 0 && problem.status !== 401)) throw problem;
        handleProblem(problem);
        await online;
      }
    }
  }).finally(() => {
    state.pending -= 1;
    emit("saving");
    refreshRun();
  });
  tail = done.catch(() => {});
  return done;
}

function paint(op, ids, classId) {
  const before = new Map();
  for (const id of ids) {
    const item = state.items.get(id);
    if (!item) continue;
    before.set(id, { label: item.label, status: item.status });
    const target = op === "accept" ? item.pred : classId;
    if (op === "accept" && target === null) continue;
    item.saving += 1;
    item.label = op === "set" || op === "accept" ? target : null;
    item.status = { clear: "unlabelled", skip: "skipped" }[op] || "labelled";
  }
  emit("items");
  return before;
}

const describeChange = (op, n, classId) => ({
  set: `${items(n)} → ${className(classId)}.`,
  accept: `${count(n, "prediction")} accepted.`,
  clear: `${count(n, "label")} cleared.`,
  skip: `${items(n)} skipped.`,
})[op];

/** Say how many labels were replaced. */
function describeReplaced(n, ids, before) {
  if (!n) return "";
  const was = ids.length === 1 && before.get(ids[0]);
  return was ? ` It was labelled ${className(was.label)} before.` : ` ${n} of ${ids.length} had another label.`;
}
function countReplaced(before) {
  const replaced = [...before].filter(([id, was]) => {
    const now = state.items.get(id);
    return was.status === "labelled" && now.status !== "unlabelled" && now.label !== was.label;
  });
  return replaced.length;
}

/** Change labels, and return when the server has stored them. Items that another tab changed meanwhile are skipped. */
export async function label(op, ids, classId = null, source = "page") {
  if (readOnly()) return announce("This page is read-only: labels cannot be changed here.", "bad");
  if (!ids.length) return undefined;
  const before = paint(op, ids, classId);
  const given = { op, source: auditing() ? "audit" : source, ...(op === "set" ? { class_id: classId } : {}) };
  select([]);
  const say = (n) => announce(`${describeChange(op, ids.length, classId)}${describeReplaced(n, ids, before)}${end} Undo (Ctrl+Z)`);
  const end = !state.ended ? "" : auditing() ? text` Every image of the audit is labelled.` : " End of the list.";
  const known = before.size === ids.length;
  say(known ? countReplaced(before) : 0);
  state.replaced = null;
  try {
    const left = [];
    const changed = [];
    let batch;
    let replaced = 0;
    for (let i = 0; i < ids.length; i += CHUNK) {
      const body = { ...given, ids: ids.slice(i, i + CHUNK), request_id: requestId(), ...(batch ? { batch } : {}) };
      const response = await write(() => api.labels((body.seen ??= state.seq, body)));
      batch = response.batch;
      state.drifted += response.changed;
      replaced += response.overwritten;
      changed.push(...response.items);
      left.push(...response.conflicts);
    }
    before.forEach((_, id) => release(id));
    changed.forEach((item) => put(item.id, item.label, item.status)); // also those loaded after they were painted
    if (replaced) state.replaced = batch;
    if (replaced && !known) say(replaced);
    if (left.length) {
      await fetchItems(left);
      announce(`${items(left.length)} changed in another tab meanwhile and skipped.`, "bad");
    }
  } catch (problem) {
    for (const [id, was] of before) if (release(id) === 0) Object.assign(state.items.get(id), was);
    announce(`Not saved, the old labels are back: ${problem.message}`, "bad");
  }
  emit("items");
  emit("drift");
  emit("detail");
  return undefined;
}
function release(id) {
  const item = state.items.get(id);
  if (!item) return -1;
  item.saving = Math.max(0, item.saving - 1);
  return item.saving;
}
function put(id, classId, status) {
  const item = state.items.get(id);
  const values = { label: classId, status: status || "unlabelled" };
  changes.set(id, { values, after: itemRequests });
  if (item && !item.saving) Object.assign(item, values);
}

/** Undo or redo the last batch, or undo the one named. */
export async function undoOrRedo(direction, batch = null) {
  if (readOnly()) return announce("This page is read-only: nothing to undo here.", "bad");
  const body = { request_id: requestId(), ...(batch ? { batch } : {}) };
  Object.assign(state, { ended: false, replaced: null });
  try {
    const response = await write(() => api[direction](body));
    response.items.forEach((item) => put(item.id, item.label, item.status));
    state.drifted += response.changed;
    const left = response.conflicts.length ? ` ${items(response.conflicts.length)} changed since and skipped.` : "";
    const done = direction === "undo" ? "undone" : "redone";
    announce(`${response.changed || left ? items(response.changed) : "A change of a class is"} ${done}.${left}`);
  } catch (problem) {
    announce(problem.message, problem.status === 409 ? "" : "bad");
  }
  ["items", "drift", "detail", "focus"].forEach(emit);
  return undefined;
}

// -- changes from elsewhere: another tab, an import, a merge

/** Read the events after the last one that this tab knows. */
export async function pollEvents() {
  const response = await api.events(state.seq);
  state.seq = response.last_seq;
  const { version, revision } = state.run.model;
  const updated = response.model_version !== version || response.model_revision !== revision;
  if (updated || response.classes.length !== state.classes.size) refreshRun();
  if (!response.events.length) return;
  const others = response.events.filter((e) => !ownBatches.has(e.batch)).length;
  response.events.forEach((e) => put(e.id, e.new_class, e.new_status));
  state.drifted += others;
  if (others) announce(`${count(others, "label")} changed elsewhere (another tab or an import).`);
  ["items", "drift", "detail"].forEach(emit);
  refreshRun();
  if (response.more) await pollEvents();
}
