"""Training runs: train one stage from a method to a predictor, or several stages in order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from samekind.data.augment.transforms import Views
from samekind.data.dataset import Dataset
from samekind.data.sampler import BatchSampler
from samekind.errors import SettingError, ShortTrainingWarning
from samekind.flops import count_flops
from samekind.methods.base import Method
from samekind.parameters import require_parameter
from samekind.progress import Progress, TrainingBar, throttled
from samekind.training.checkpointer import (
    Checkpointer,
    NullCheckpointer,
    TrainState,
    broadcast_method_state,
    describe_run,
    require_identical_state,
)
from samekind.training.determinism import preserve_random_state, single_thread
from samekind.training.engine import Engine, round_batch_size
from samekind.training.loop import LOCAL_ENGINE, fit
from samekind.training.metering import Meter, merge_costs
from samekind.training.monitor import Monitor, TensorBoardWriter
from samekind.training.schedules import OptimizerConfig, Schedule
from samekind.training.step_plan import StepPlan
from samekind.training.time_limit import PlanShortener, StageTime

SAVE_EVERY = 60.0  # seconds between two checkpoints


@dataclass(frozen=True)
class TrainConfig:
    """Settings of one training stage: its length, batch sizes, schedule, and the files that it writes."""

    steps: int
    n_labelled: int  # labelled samples in a batch
    n_unlabelled: int  # unlabelled samples in a batch
    schedule: Schedule
    seed: int
    title: str = ""
    verbose: bool = False
    history: str | Path | None = None  # file that gets the log records as JSON lines
    log_points: int = 100  # number of log records in a run
    # directory; an unfinished run in it is resumed, a finished one is loaded and not trained again
    checkpoint: str | Path | None = None
    save_every: float = SAVE_EVERY  # seconds between two checkpoints
    # further JSON-serializable settings; a checkpoint is resumed only if they are equal
    settings: Mapping[str, Any] = field(default_factory=dict)
    tensorboard: str | Path | None = None  # directory of the TensorBoard events
    progress: Progress | None = None
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    time: StageTime | None = None  # time within which the stage must end; steps are dropped if it would take longer
    sync_batch_norm: bool = False  # compute batch-norm statistics over all processes; only possible with GPUs

    def for_loss_fraction(self, fraction: float) -> TrainConfig:
        """Return the configuration for a method that multiplies its whole loss by `fraction`.

        With SGD, the learning rate is divided by `fraction` and the weight decay multiplied by it. So the steps, and the decay
        of the weights, are the same as with the full loss. Adam needs no change, because its steps do not depend on the scale
        of the loss.
        """
        if self.optimizer.kind != "sgd" or fraction == 1.0:
            return self
        schedule = replace(self.schedule, lr_max=self.schedule.lr_max / fraction)
        return replace(
            self, schedule=schedule, optimizer=replace(self.optimizer, weight_decay=self.optimizer.weight_decay * fraction)
        )

    def split_warmup(self, warmup_steps: int) -> tuple[TrainConfig, TrainConfig]:
        """Return two configurations: of the supervised warm-up, and of the steps after it.

        A batch of the warm-up has as many samples as any other batch, but all of them are labelled. The checkpoints of the
        warm-up lie in a subdirectory.
        """
        before, after = self.schedule.split(warmup_steps / max(self.steps, 1))
        warmup = replace(
            self,
            steps=warmup_steps,
            n_labelled=self.n_labelled + self.n_unlabelled,
            schedule=before,
            title=f"{self.title}: supervised warm-up",
            history=None,
            checkpoint=None if self.checkpoint is None else Path(self.checkpoint) / "supervised_warmup",
            tensorboard=None,
        )
        return warmup, replace(self, steps=self.steps - warmup_steps, schedule=after)


class TrainResult(NamedTuple):
    """Result of a training run: the trained predictor, the log records, the cost, and the trained method."""

    predictor: nn.Module
    history: list[dict[str, Any]]
    cost: dict[str, Any]
    method: Method


@dataclass(frozen=True)
class TrainStage:
    """One stage of a run.

    `build` is called when the stage begins, because the method may copy weights that earlier stages train.
    """

    name: str
    build: Callable[[], Method]
    config: TrainConfig


def train_stages(stages: Sequence[TrainStage], dataset: Dataset, views: Views, engine: Engine = LOCAL_ENGINE) -> TrainResult:
    """Train the stages in order. Return the result of the last stage, with the cost of all stages together."""
    first, *later = stages
    result = train(_on_device(first.build(), engine), dataset, views, first.config, engine)
    for stage in later:
        # Each stage is seeded anew. So its random draws are the same whether the earlier stages ran now or before an
        # interruption.
        torch.manual_seed(stage.config.seed)
        spent = result.cost
        result = train(_on_device(stage.build(), engine), dataset, views, stage.config, engine)
        result = result._replace(cost=merge_costs(spent, result.cost))
    return result


def train(method: Method, dataset: Dataset, views: Views, config: TrainConfig, engine: Engine = LOCAL_ENGINE) -> TrainResult:
    """Train the method on the dataset and return its predictor. If `config.checkpoint` contains a saved run, resume it."""
    with count_flops() as first_pass:
        method.refresh(dataset)
    if not config.steps:
        cost = {"flops": first_pass(), "full_pass_flops": first_pass()}
        return TrainResult(method.predictor().eval(), [], cost, method)
    config = replace(config, schedule=replace(config.schedule, cycles=method.lr_cycles))
    require_whole_batches(method, engine)
    _warn_if_short(method, config, len(dataset))
    _require_equal_parts(config, len(dataset), engine)
    require_parameter("save_every", config.save_every)
    state = _initial_state(method, dataset, views, config, engine)
    state.meter.add_full_pass(first_pass())
    # Use one thread for vectors: on small matrices several threads are slower, and they change the last bits of the results.
    with single_thread(len(dataset.shape) == 1), _checkpointer(state, dataset, config) as checkpointer:
        found = checkpointer.load()
        if found is None:
            cost = _train_steps(state, dataset, checkpointer, config, 0)
        else:
            with preserve_random_state():
                state.restore(found)
                if config.time is not None:
                    config.time.limit.spend(found.metadata["meter"]["seconds"])
                cost = found.metadata.get("cost") or _train_steps(state, dataset, checkpointer, config, found.step)
    return TrainResult(state.method.predictor().eval(), state.monitor.records, cost, state.method)


def require_whole_batches(method: Method, engine: Engine) -> None:
    """Raise SettingError if the method needs all samples of a batch, of which each process has only a part."""
    if engine.processes > 1 and method.stores_samples:
        raise SettingError(
            f"{type(method).__name__} stores values of the samples of each batch, and each of the {engine.processes} processes "
            "would store only those of its own part. Train it in one process; accumulation_steps= may divide the batches."
        )


def _warn_if_short(method: Method, config: TrainConfig, n_samples: int) -> None:
    reason = method.shortfall(config.steps * config.n_unlabelled / n_samples)
    if reason is not None:
        message = f"{config.title or type(method).__name__} may not work as in its paper: {reason}."
        warnings.warn(message, ShortTrainingWarning, stacklevel=2)


def make_sampler(method: Method, dataset: Dataset, views: Views, config: TrainConfig) -> BatchSampler:
    """Return the sampler of batches, which applies the augmentations that the method asks for."""
    return BatchSampler(
        dataset,
        method.adapt_views(views),
        labelled_views=method.labelled_views,
        unlabelled_views=method.unlabelled_views,
        n_labelled=config.n_labelled,
        n_unlabelled=config.n_unlabelled,
        generator=torch.Generator().manual_seed(config.seed),
        paired=method.pairs_labelled,
    )


def _on_device(method: Any, engine: Engine) -> Method:
    return cast(Method, method.to(engine.device))


def _initial_state(method: Method, dataset: Dataset, views: Views, config: TrainConfig, engine: Engine) -> TrainState:
    if config.sync_batch_norm:
        method = _with_sync_batch_norm(method, engine)
    if engine.rank:
        torch.manual_seed(config.seed + engine.rank)  # dropout must differ between the processes
    meter = Meter(engine.device)
    monitor = Monitor(config.history if engine.rank == 0 else None, meter=meter)
    optimizer = config.optimizer.build(method.parameters())
    sampler = make_sampler(method, dataset, views, config)
    state = TrainState(method, optimizer, sampler, monitor, meter, engine, StepPlan(config.steps))
    if engine.processes > 1:
        broadcast_method_state(state)
    return state


def _train_steps(
    state: TrainState, dataset: Dataset, checkpointer: Checkpointer | NullCheckpointer, config: TrainConfig, start: int
) -> dict[str, Any]:
    """Train from step `start` to the last step. Return the cost of the whole run, including its earlier sessions."""
    method, engine, monitor, meter, plan = state.method, state.engine, state.monitor, state.meter, state.plan
    batch_size = config.n_labelled + (config.n_unlabelled if method.unlabelled_views else 0)
    log_every = max(1, plan.planned // config.log_points)
    main = engine.rank == 0
    display = _TrainingDisplay(config, plan, start, batch_size=batch_size, visible=config.verbose and main)
    folder = None if config.checkpoint is None else Path(config.checkpoint)
    shortener = PlanShortener(plan, config.time, engine, folder, start)
    tensorboard = TensorBoardWriter(config.tensorboard, start) if config.tensorboard is not None and main else None

    def on_step(step: int, terms: Any, observed: Any) -> None:
        meter.note_terms(terms)
        if step % log_every == 0 or step == plan.steps - 1:
            monitor(step, engine.mean(terms), engine.mean(observed))
            meter.sample_memory()
            if tensorboard is not None:
                tensorboard(monitor.records[-1])
        if method.refresh_due(step + 1, plan.steps):
            with meter.full_pass():
                method.refresh(dataset)
        display(step, terms)
        if engine.processes > 1 and step in (start, plan.steps - 1):
            require_identical_state(state, step + 1)
        if shortener.after_step(step + 1):
            method.replan(plan.step_at)
            display.shorten()
        checkpointer.after_step(step + 1)

    try:
        fit(
            method,
            state.sampler,
            state.optimizer,
            config.schedule,
            engine,
            plan=plan,
            start=start,
            on_step=on_step,
            around_step=lambda step: meter.step(step, plan.planned),
        )
    finally:
        for output in (monitor, display, tensorboard):
            if output is not None:
                output.close()
    cost = meter.summary(plan.steps, batch_size, engine.processes)
    checkpointer.finish({"cost": cost})
    return cost


class _TrainingDisplay:
    """Shows the progress of a stage to the user: with a progress bar, by calling the user's function, or both."""

    def __init__(self, config: TrainConfig, plan: StepPlan, start: int, *, batch_size: int, visible: bool) -> None:
        self._config, self._plan = config, plan
        self._bar = TrainingBar(plan.steps, config.title, done=start, batch_size=batch_size) if visible else None
        self._report = throttled(config.progress, config.title, plan.steps)

    def __call__(self, step: int, terms: Mapping[str, Tensor]) -> None:
        """Show that one more step is done."""
        if self._bar is not None:
            self._bar(step, terms)
        self._report(step + 1)

    def shorten(self) -> None:
        """Show the new number of steps after the plan was shortened."""
        self._report = throttled(self._config.progress, self._config.title, self._plan.steps)
        if self._bar is not None:
            self._bar.shorten(self._plan.steps)

    def close(self) -> None:
        """Close the progress bar, so that other output can follow on the terminal."""
        if self._bar is not None:
            self._bar.close()


def _checkpointer(state: TrainState, dataset: Dataset, config: TrainConfig) -> Checkpointer | NullCheckpointer:
    if config.checkpoint is None:
        return NullCheckpointer()
    settings = {
        "steps": config.steps,
        "seed": config.seed,
        "batch_size": [config.n_labelled, config.n_unlabelled],
        "schedule": asdict(config.schedule),
        "optimizer": asdict(config.optimizer),
        **config.settings,
    }
    run = describe_run(state.method, dataset, settings)
    return Checkpointer(Path(config.checkpoint), state, save_every=config.save_every, run=run)


def _require_equal_parts(config: TrainConfig, n_samples: int, engine: Engine) -> None:
    for n, most in ((config.n_labelled, None), (min(config.n_unlabelled, n_samples), n_samples)):
        possible = round_batch_size(n, engine.n_parts, most)
        if possible != n:
            raise SettingError(
                f"a batch of {n} samples cannot be divided into {engine.n_parts} equal parts, each with an even number of "
                f"samples. Use a batch of {possible} samples."
            )


def _with_sync_batch_norm(method: Method, engine: Engine) -> Method:
    if engine.device.type == "cpu":
        raise SettingError(
            "sync_batch_norm is True, but torch can synchronize batch norm only between GPUs. Leave sync_batch_norm "
            "out: each process then uses the statistics of its own part of a batch."
        )
    return cast(Method, nn.SyncBatchNorm.convert_sync_batchnorm(cast(nn.Module, method)))  # type: ignore[no-untyped-call]
