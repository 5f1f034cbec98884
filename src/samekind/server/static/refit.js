// Refits: start one, show its progress, and what it changed.
import { api } from "./api.js";
import { $, button, count, el, percent } from "./dom.js";
import {
  UNFILTERED, auditing, className, emit, items, pollEvents, hasModel, loadRun, on, readOnly, refreshRun, reconnected, announce, show,
  state, text, undoOrRedo, handleProblem,
} from "./state.js";
import { models, progress } from "./dialogs.js";

const running = () => state.job?.state === "running" || state.job?.state === "queued";

export async function refit(mode) {
  if (readOnly()) return announce("This page is read-only and cannot refit.");
  if (running()) return progress();
  try {
    setJob(await api.fit(mode === "full" || !hasModel() ? "full" : "quick"));
    announce(hasModel() ? "Refitting. You can keep labelling." : "Fitting the first model. You can keep labelling.");
    pollNow();
  } catch (problem) {
    if (problem.status === 409 && problem.body.job) setJob(problem.body.job);
    else if (problem.status === 0 || problem.status === 401) handleProblem(problem);
    else announce(problem.message, "bad");
  }
  return undefined;
}

export const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.round(seconds % 60)).padStart(2, "0")}`;

async function setJob(job) {
  const before = state.job;
  state.job = job;
  emit("job");
  if (!before || !(before.state === "running" || before.state === "queued") || running()) return;
  const left = hasModel() ? "the previous model stays active" : "there is no model yet";
  if (job.state === "done") {
    const first = !hasModel();
    await loadRun();
    const what = first ? text`Every image has a prediction now; apply the new order to see the uncertain ones first.` : changes(job);
    announce(`Model ${state.run.model.version} is ready. ${what}`, "good");
  } else if (job.state === "failed") announce(`The fit failed; ${left}. ${job.error || ""}`, "bad");
  else if (job.state === "cancelled") announce(`The fit was stopped; ${left}.`);
  refreshRun();
}

/** Describe what the last refit changed, in a sentence. */
export function changes(job) {
  if (!job?.changed) return "";
  const pairs = (job.changed.by_pair || []).slice(0, 3).map((p) => `${className(p.from_class)} → ${className(p.to_class)} ${p.n}`);
  return `${count(job.changed.n, "prediction")} changed${pairs.length ? ` (${pairs.join(", ")})` : ""}.`;
}

// -- polling: fast while a refit runs, slow otherwise; it also reads the changes of other tabs

let timer = 0;
async function poll() {
  clearTimeout(timer);
  try {
    const job = await api.job();
    if (!state.online || state.locked) reconnected();
    await setJob(job);
    if (!running() || Date.now() - lastPoll > 4000) {
      lastPoll = Date.now();
      await pollEvents();
      if (catchingUp()) refreshRun();
    }
  } catch (problem) {
    handleProblem(problem);
  }
  timer = setTimeout(poll, !state.online ? 2000 : catchingUp() ? 400 : running() ? 1000 : document.hidden ? 15000 : 5000);
}
/** Return whether labels wait for an update of the predictions. */
const catchingUp = () => {
  const { instant, model } = state.run ?? {};
  return instant?.state === "working" || (instant?.state === "idle" && model.stale_by > 0);
};
/** Look at once whether the predictions follow a new label, instead of at the next turn of the slow polling. */
let waiting = false;
function pollWhileCatchingUp() {
  if (waiting || !catchingUp()) return;
  waiting = true;
  setTimeout(() => { waiting = false; pollNow(); }, 400);
}
let lastPoll = 0;
export const pollNow = () => poll();

// -- the top line

function drawFit() {
  const job = state.job;
  const place = $("#fit");
  if (!running()) {
    const again = hasModel();
    const variant = (again ? state.run.model.stale_by : !state.run.missing) ? "primary" : "";
    const title = again ? "Fit again on all labels" : state.run.missing || "Fit on all labels";
    return place.replaceChildren(button(again ? "Refit" : "Fit", refit, { variant, key: "r", title, disabled: readOnly() }));
  }
  const fraction = job.total ? job.step / job.total : 0;
  const phase = `${job.phase || "starting"}${job.eta_s ? ` · ${clock(job.eta_s)} left` : ""}`;
  const bar = el("progress", { max: 1, "aria-label": "Refit" });
  if (job.total) bar.value = fraction;
  return place.replaceChildren(
    el("button", { type: "button", class: "job", onclick: progress, title: "Progress of the refit" },
      bar, el("span", {}, `${job.total ? percent(fraction) : ""} ${phase}`)),
    button("", () => api.cancel(job.id).then(setJob, handleProblem), { symbol: "close", variant: "plain", title: "Stop the refit" }));
}

function drawModel() {
  const model = state.run.model;
  if (!hasModel()) return $("#model").replaceChildren(el("span", { class: "muted" }, "no model yet"));
  const newer = `${count(model.stale_by, "label")} newer than the model`;
  const { instant } = state.run;
  const stale = catchingUp() ? el("span", { class: "muted" }, "updating predictions …")
    : model.stale_by ? el("span", { class: "stale" }, newer)
      : model.revision && instant.state === "idle" ? el("span", { class: "muted" }, "predictions up to date") : null;
  const name = button(`model ${model.version}`, models, { variant: "plain", title: "Models of this run" });
  return $("#model").replaceChildren(...[name, stale].filter(Boolean));
}

/** Show the items whose prediction the refit changed, all of them: no other filter stays. */
async function showChanged() {
  await show({ ...UNFILTERED, status: "changed", sort: auditing() ? "" : state.view.sort });
  announce(text`${items(state.order.length)} whose prediction the refit changed.`);
}
function drawOffers() {
  const offers = [];
  const batch = state.replaced;
  if (batch) offers.push(button("Undo", () => undoOrRedo("undo", batch), { symbol: "undo", variant: "pill", title: "Bring the old labels back" }));
  const job = state.job;
  const model = state.run?.model;
  const newer = model && state.order.length && (model.version !== state.orderVersion || model.revision !== state.orderRevision);
  if (newer && job?.state === "done" && job.changed?.n && model.version !== state.orderVersion) {
    offers.push(button("Show what changed", showChanged, { variant: "pill" }));
  }
  const filtered = state.view.status && state.view.status !== "all";
  if (newer) offers.push(button("New order ready · apply", () => show({}, { push: "reload" }), { variant: "pill primary" }));
  else if (state.drifted && filtered) {
    offers.push(button(`${state.drifted} changed here · apply filter again`, () => show({}, { push: "reload" }), { variant: "pill" }));
  }
  $("#offers").replaceChildren(...offers);
}

export function startJob() {
  on("job run", drawFit);
  on("run", drawModel);
  on("run", pollWhileCatchingUp);
  on("run order drift job view", drawOffers);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) pollNow(); });
  ["run", "job"].forEach(emit);
  poll();
}
