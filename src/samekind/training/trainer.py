"""One run from a pool to a predictor: the steps that estimator and experiments share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from samekind.data.augment.transforms import Views
from samekind.data.dataset import Dataset
from samekind.data.sampler import BatchSampler
from samekind.errors import SettingError
from samekind.methods.base import Method, OwnViews, cycles_of, pairs_labels, wants_refresh
from samekind.progress import Progress, TrainingBar, throttled
from samekind.training.checkpointer import (
    Checkpointer,
    NullCheckpointer,
    TrainState,
    broadcast_method_state,
    description,
    require_identical_state,
)
from samekind.training.determinism import preserve_random_state
from samekind.training.engine import Engine, round_batch_size
from samekind.training.loop import LOCAL_ENGINE, fit
from samekind.training.metering import Meter
from samekind.training.monitor import Monitor
from samekind.training.optimizers import OptimizerConfig
from samekind.training.schedules import Schedule
from samekind.training.tensorboard import TensorBoardWriter
from samekind.training.threads import single_thread

SAVE_EVERY = 60.0  # seconds


@dataclass(frozen=True)
class TrainConfig:
    """How long, how fast, how much at a time, and what is kept of it."""

    steps: int
    n_labelled: int
    n_unlabelled: int
    schedule: Schedule
    seed: int
    title: str = ""
    verbose: bool = False
    history: str | Path | None = None  # a file of JSON lines
    log_points: int = 100  # records kept of a run
    checkpoint: str | Path | None = None  # a folder; an unfinished run in it is taken up, a finished one is not repeated
    seconds: float = SAVE_EVERY  # between two checkpoints
    settings: Mapping[str, Any] = field(default_factory=dict)  # what else makes this run the one it is, as JSON can hold it
    tensorboard: str | Path | None = None  # a folder
    progress: Progress | None = None  # told now and then
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)  # how a gradient becomes a step
    sync_batch_norm: bool = False  # statistics of batch norm over all processes; needs GPUs

    def after_labels(self, steps: int) -> TrainConfig:
        """The plan of what is left when so many steps were made on the labels alone."""
        return replace(self, schedule=self.schedule.split(steps / max(steps + self.steps, 1))[1])

    def for_labels_alone(self, steps: int) -> TrainConfig:
        """The plan of what comes before: as many rows a step, all labelled, kept beside the rest."""
        beside = None if self.checkpoint is None else Path(self.checkpoint) / "supervised_warmup"
        return replace(
            self,
            steps=steps,
            n_labelled=self.n_labelled + self.n_unlabelled,
            schedule=self.schedule.split(steps / max(steps + self.steps, 1))[0],
            title=f"{self.title}: supervised warm-up",
            history=None,
            checkpoint=beside,
            tensorboard=None,
        )


class Trained(NamedTuple):
    """What is left of a run."""

    predictor: nn.Module
    history: list[dict[str, Any]]
    cost: dict[str, Any]


def train(method: Method, pool: Dataset, views: Views, plan: TrainConfig, engine: Engine = LOCAL_ENGINE) -> Trained:
    """Trains the method on the pool; with `plan.checkpoint`, goes on where the run in that folder stands."""
    method.refresh(pool)
    if not plan.steps:
        return Trained(method.predictor().eval(), [], {})
    plan = replace(plan, schedule=replace(plan.schedule, cycles=cycles_of(method)))
    _require_equal_parts(plan, len(pool), engine)
    if not plan.seconds >= 0:
        raise SettingError(f"save_every is {plan.seconds!r}; expected seconds between two checkpoints, 0 or more")
    moving = _moving(method, pool, views, plan, engine)
    # vectors on one thread: for small matrices more threads cost more than they save, and change the last bits
    with single_thread(len(pool.shape) == 1), _keeper(moving, pool, plan) as keeper:
        before = keeper.found()
        if before is None:
            cost = _steps(moving, pool, keeper, plan, 0)
        else:
            with preserve_random_state():
                moving.restore(before)
                cost = before.words.get("cost") or _steps(moving, pool, keeper, plan, before.step)
    return Trained(moving.method.predictor().eval(), moving.watch.records, cost)


def _moving(method: Method, pool: Dataset, views: Views, plan: TrainConfig, engine: Engine) -> TrainState:
    if plan.sync_batch_norm:
        method = _with_one_batch_norm(method, engine)
    if engine.rank:
        torch.manual_seed(plan.seed + engine.rank)  # the parts of a batch must not all lose the same units to dropout
    meter = Meter(engine.device)
    watch = Monitor(plan.history if engine.rank == 0 else None, meter=meter)
    moving = TrainState(
        method, plan.optimizer.optimizer(method.parameters()), make_stream(method, pool, views, plan), watch, meter, engine
    )
    if engine.processes > 1:
        broadcast_method_state(moving)
    return moving


def _steps(
    moving: TrainState, pool: Dataset, keeper: Checkpointer | NullCheckpointer, plan: TrainConfig, start: int
) -> dict[str, Any]:
    """The steps from `start` on, and what the whole run has cost."""
    method, engine, watch, meter = moving.method, moving.engine, moving.watch, moving.meter
    rows = plan.n_labelled + (plan.n_unlabelled if method.unlabelled_views else 0)
    every = max(1, plan.steps // plan.log_points)
    first = engine.rank == 0
    bar = TrainingBar(plan.steps, plan.title, done=start, batch_size=rows) if plan.verbose and first else None
    report = throttled(plan.progress, plan.title, plan.steps)
    events = TensorBoardWriter(plan.tensorboard, start) if plan.tensorboard is not None and first else None

    def on_step(step: int, terms: Any, observed: Any) -> None:
        if step % every == 0 or step == plan.steps - 1:
            watch(step, engine.mean(terms), engine.mean(observed))
            meter.look()
            if events is not None:
                events(watch.records[-1])
        if wants_refresh(method, step + 1, plan.steps):
            method.refresh(pool)
        if bar is not None:
            bar(step, terms)
        report(step + 1)
        if engine.processes > 1 and step in (start, plan.steps - 1):
            require_identical_state(moving, step + 1)
        keeper.after(step + 1)

    try:
        fit(
            method,
            moving.stream,
            moving.optimizer,
            plan.schedule,
            engine,
            steps=plan.steps,
            start=start,
            on_step=on_step,
            first_step=meter.counting(),
        )
    finally:
        for open_one in (watch, bar, events):
            if open_one is not None:
                open_one.close()
    cost = meter.summary(plan.steps, rows, engine.processes)
    keeper.finish({"cost": cost})
    return cost


def make_stream(method: Method, pool: Dataset, views: Views, plan: TrainConfig) -> BatchSampler:
    return BatchSampler(
        pool,
        method.own_views(views) if isinstance(method, OwnViews) else views,
        labelled_views=method.labelled_views,
        unlabelled_views=method.unlabelled_views,
        n_labelled=plan.n_labelled,
        n_unlabelled=plan.n_unlabelled,
        generator=torch.Generator().manual_seed(plan.seed),
        paired=pairs_labels(method),
    )


def _keeper(moving: TrainState, pool: Dataset, plan: TrainConfig) -> Checkpointer | NullCheckpointer:
    if plan.checkpoint is None:
        return NullCheckpointer()
    own = {"steps": plan.steps, "seed": plan.seed, "batch": [plan.n_labelled, plan.n_unlabelled]}
    run = description(
        moving.method, pool, {**own, "schedule": asdict(plan.schedule), "optimizer": asdict(plan.optimizer), **plan.settings}
    )
    return Checkpointer(Path(plan.checkpoint), moving, steps=plan.steps, seconds=plan.seconds, run=run)


def _require_equal_parts(plan: TrainConfig, n_pool: int, engine: Engine) -> None:
    for n, most in ((plan.n_labelled, None), (min(plan.n_unlabelled, n_pool), n_pool)):
        possible = round_batch_size(n, engine.n_parts, most)
        if possible != n:
            raise SettingError(
                f"a batch of {n} rows does not fall into {engine.n_parts} equal parts of whole pairs. Use {possible} rows."
            )


def _with_one_batch_norm(method: Method, engine: Engine) -> Method:
    if engine.device.type == "cpu":
        raise SettingError(
            "sync_batch_norm is True, and torch can only do that between GPUs. Leave it out: each process then uses the "
            "statistics of its own part of a batch."
        )
    return cast(Method, nn.SyncBatchNorm.convert_sync_batchnorm(cast(nn.Module, method)))  # type: ignore[no-untyped-call]
