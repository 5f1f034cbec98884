// Refitting: start it once, see how far it is, and what it changed.
import { api } from "./api.js";
import { $, button, count, el, percent } from "./dom.js";
import {
  className, emit, follow, hasModel, loadOrder, loadRun, on, readOnly, refreshRun, returned, say, show, state, trouble,
} from "./store.js";
import { models, progress } from "./dialogs.js";

const running = () => state.job?.state === "running" || state.job?.state === "queued";

export async function refit(mode) {
  if (readOnly()) return say("This page is read-only: it cannot refit.");
  if (running()) return progress();
  try {
    take(await api.fit(mode === "full" || !hasModel() ? "full" : "quick"));
    say(hasModel() ? "Refitting. Go on labelling meanwhile." : "Learning the first model. Go on labelling meanwhile.");
    wake();
  } catch (problem) {
    if (problem.status === 409 && problem.body.job) take(problem.body.job);
    else if (problem.status === 0 || problem.status === 401) trouble(problem);
    else say(problem.message, "bad");
  }
  return undefined;
}

export const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.round(seconds % 60)).padStart(2, "0")}`;

async function take(job) {
  const before = state.job;
  state.job = job;
  emit("job");
  if (!before || !(before.state === "running" || before.state === "queued") || running()) return;
  const left = hasModel() ? "the model before it is still in use" : "there is no model yet";
  if (job.state === "done") {
    const first = !hasModel();
    await loadRun();
    const what = first ? "Every image has a prediction now; apply the new order to see the doubtful ones first." : changes(job);
    say(`Model ${state.run.model.version} is ready. ${what}`, "good");
  } else if (job.state === "failed") say(`The fit failed; ${left}. ${job.error || ""}`, "bad");
  else if (job.state === "cancelled") say(`The fit was stopped; ${left}.`);
  refreshRun();
}

/** What the last refit changed, in a sentence. */
export function changes(job) {
  if (!job?.changed) return "";
  const pairs = (job.changed.by_pair || []).slice(0, 3).map((p) => `${className(p.from_class)} → ${className(p.to_class)} ${p.n}`);
  return `${count(job.changed.n, "prediction")} changed${pairs.length ? ` (${pairs.join(", ")})` : ""}.`;
}

// -- the watch: quick while something runs, slow otherwise; the same round brings the news of other tabs

let timer = 0;
async function round() {
  clearTimeout(timer);
  try {
    const job = await api.job();
    if (!state.online || state.locked) returned();
    await take(job);
    if (!running() || Date.now() - lastFollow > 4000) {
      lastFollow = Date.now();
      await follow();
    }
  } catch (problem) {
    trouble(problem);
  }
  timer = setTimeout(round, !state.online ? 2000 : running() ? 1000 : document.hidden ? 15000 : 5000);
}
let lastFollow = 0;
export const wake = () => round();

// -- the top line

function drawFit() {
  const job = state.job;
  const place = $("#fit");
  if (!running()) {
    const again = hasModel();
    const kind = (again ? state.run.model.stale_by : !state.run.missing) ? "primary" : "";
    const title = again ? "Learn again from all labels" : state.run.missing || "Learn from all labels";
    return place.replaceChildren(button(again ? "Refit" : "Fit", refit, { kind, key: "r", title, disabled: readOnly() }));
  }
  const share = job.total ? job.step / job.total : 0;
  const words = `${job.phase || "starting"}${job.eta_s ? ` · ${clock(job.eta_s)} left` : ""}`;
  const bar = el("progress", { max: 1, "aria-label": "Refit" });
  if (job.total) bar.value = share;
  return place.replaceChildren(
    el("button", { type: "button", class: "job", onclick: progress, title: "How far the refit is" },
      bar, el("span", {}, `${job.total ? percent(share) : ""} ${words}`)),
    button("", () => api.cancel(job.id).then(take, trouble), { symbol: "close", kind: "plain", title: "Stop the refit" }));
}

function drawModel() {
  const model = state.run.model;
  if (!hasModel()) return $("#model").replaceChildren(el("span", { class: "muted" }, "no model yet"));
  const newer = `${count(model.stale_by, "label")} newer than the model`;
  const stale = model.stale_by ? el("span", { class: "stale" }, newer) : null;
  const name = button(`model ${model.version}`, models, { kind: "plain", title: "Models of this run" });
  return $("#model").replaceChildren(...[name, stale].filter(Boolean));
}

function drawOffers() {
  const offers = [];
  const job = state.job;
  const newer = state.run?.model && state.order.length && state.run.model.version !== state.orderVersion;
  if (newer && job?.state === "done" && job.changed?.n) {
    offers.push(button("Show what changed", () => show({ status: "changed", like: "" }), { kind: "pill" }));
  }
  const filtered = state.view.status && state.view.status !== "all";
  if (newer) offers.push(button("New order ready · apply", () => loadOrder(), { kind: "pill primary" }));
  else if (state.drifted && filtered) {
    offers.push(button(`${state.drifted} changed here · apply filter again`, () => loadOrder(), { kind: "pill" }));
  }
  $("#offers").replaceChildren(...offers);
}

export function startJob() {
  on("job run", drawFit);
  on("run", drawModel);
  on("run order drift job view", drawOffers);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) wake(); });
  ["run", "job"].forEach(emit);
  round();
}
