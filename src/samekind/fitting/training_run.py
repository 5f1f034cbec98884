"""TrainingRun: the training of one fit, on samples that are already read, encoded and scaled."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from samekind import defaults
from samekind.clock import Clock
from samekind.data.dataset import Dataset
from samekind.fitting.fit_options import FitOptions
from samekind.methods import (
    build,
    is_iterative,
    method_defaults,
    paper_settings,
    supervised_loss_fraction,
    supervised_method,
)
from samekind.methods.base import Method, Task
from samekind.methods.predictors import AnyPredictor, DeepPredictor
from samekind.model import inference_block_size, inference_dtype, prepare_for_inference
from samekind.nets.classifier import Classifier, classifier_from_features
from samekind.training.determinism import thread_count
from samekind.training.engine import Engine, round_batch_size
from samekind.training.time_budget import (
    INFERENCE_PART,
    STEPS_PART,
    THREADS_PART,
    TIMED,
    WARM,
    WORTH_TIMING,
    WORTH_TIMING_MINUTES,
    StepBudget,
    StepSeconds,
    faster_thread_count,
    load_step_budget,
    load_thread_count,
    plan_steps,
    save_step_budget,
    save_thread_count,
    time_inference,
    time_step,
)
from samekind.training.time_limit import StageTime, TimeLimit
from samekind.training.trainer import TrainConfig, TrainResult, TrainStage, require_whole_batches, train_stages

Prepare = Callable[[Method], None]  # called with each method that a run builds, before it is trained
TIMED_SAMPLES = 256  # number of samples that are timed to estimate a full inference pass


def no_preparation(method: Method) -> None:
    """Leave a new method as it is."""


class TrainingRun:
    """Training on a prepared dataset. Chooses the augmentations, the network, batch sizes, schedule and number of steps."""

    def __init__(
        self,
        options: FitOptions,
        dataset: Dataset,
        classes: list[Any],
        shape: tuple[int, ...],
        engine: Engine,
        seed: int,
        clock: Clock,
        *,
        prepare: Prepare = no_preparation,
        table: bool = False,
    ) -> None:
        self.clock, self.prepare = clock, prepare
        self.options, self.dataset, self.shape, self.engine = options, dataset, shape, engine
        n, n_classes, color = len(dataset), dataset.n_classes, defaults.is_color_image(dataset.shape)
        if options.batch_size == "auto":
            sizes = defaults.default_batch_sizes(n, color=color, paper=options.is_paper)
        else:
            sizes = defaults.BatchSizes(options.batch_size[0], min(options.batch_size[1], n))
        labelled = round_batch_size(sizes.labelled, engine.n_parts)
        unlabelled = round_batch_size(sizes.unlabelled, engine.n_parts, n)
        iterative = is_iterative(options.method)
        self.views = self._choose_views(classes, seed) if iterative else defaults.ViewDefaults({})
        self.net = self._build_net().to(engine.device) if iterative else None
        self.task = Task(n_classes, len(dataset.labelled), n, 0, labelled, unlabelled, self.views.unlabelled_weight, table)
        optimizer, schedule = defaults.optimizer_and_schedule(
            defaults.optimizer_for(options.optimizer, color=color, paper=options.is_paper), options.learning_rate
        )
        self.config = TrainConfig(
            0,
            labelled,
            unlabelled,
            schedule,
            seed,
            title=options.method,
            verbose=options.verbose,
            history=options.history,
            tensorboard=options.tensorboard,
            checkpoint=options.checkpoint,
            save_every=options.save_every,
            settings=self._identity(classes),
            progress=options.progress,
            optimizer=optimizer,
        )

    def train(self, steps: int | None = None, *, at_most: int | None = None) -> tuple[TrainResult, int]:
        """Train the supervised warm-up, if there is one, and then the method; return the result and the number of steps.

        Without `steps`, the options determine their number, which is `at_most` this.
        """
        if self.net is None:
            return train_stages(self._stages(0), self.dataset, self.views.views, self.engine), 0
        with thread_count(self._choose_threads(self.net, steps)):
            budget = self._budget_for(self.options.minutes, self.net) if steps is None and self.options.minutes else None
            if budget is not None:
                steps = budget.steps
            elif steps is None:
                steps = self._choose_steps()
            steps = steps if at_most is None else min(steps, at_most)
            result = train_stages(self._stages(steps, budget), self.dataset, self.views.views, self.engine)
            cost = {**result.cost, "threads": self._n_threads(), **({} if budget is None else {"planned_steps": steps})}
            return result._replace(cost=cost), int(cost.get("steps", steps))

    def _n_threads(self) -> int:
        return 1 if len(self.dataset.shape) == 1 else torch.get_num_threads()

    def _choose_threads(self, net: Classifier, steps: int | None) -> int | None:
        """Return the number of threads for the training; None for torch's default.

        Networks for vectors always train with one thread. For images, a long run first times a few steps with one thread and
        with all. A run that resumes uses the number of threads with which it began.
        """
        if self._n_threads() == 1 or self.engine.processes > 1 or self.engine.device.type != "cpu":
            return None
        folder = None if self.options.checkpoint is None else Path(self.options.checkpoint)
        chosen = None if folder is None else load_thread_count(folder)
        if chosen is None:
            chosen = torch.get_num_threads()
            minutes = self.options.minutes
            if minutes is None or steps is not None:
                worth_it, limit = (steps or self._choose_steps()) >= WORTH_TIMING, float("inf")
            else:
                worth_it, limit = minutes >= WORTH_TIMING_MINUTES, THREADS_PART * 60.0 * minutes
            if worth_it:
                chosen = faster_thread_count(lambda: self._time_step(net, warm=2, timed=4, limit=limit / 2).mean, chosen)
            if folder is not None:
                save_thread_count(folder, chosen)
        return chosen

    def finish(self, predictor: AnyPredictor) -> AnyPredictor:
        """Return the trained predictor in the form for inference."""
        predictor = prepare_for_inference(predictor, self.shape)
        if isinstance(predictor, DeepPredictor):
            predictor.mirrored = self._averages_flips
        return predictor

    def _stages(self, steps: int, budget: StepBudget | None = None) -> list[TrainStage]:
        options, net = self.options, self.net
        warmup_steps = round(self._warmup_fraction * steps)
        task = replace(self.task, steps=steps - warmup_steps)
        warmup, config = replace(self.config, steps=steps).split_warmup(warmup_steps)
        config = config.for_loss_fraction(supervised_loss_fraction(options.method, task))
        if budget is not None:
            limit = TimeLimit(budget.seconds, self.clock.seconds)
            warmup = replace(warmup, time=StageTime(limit, budget.seconds - budget.warmup_seconds))
            config = replace(config, time=StageTime(limit))
        stage = TrainStage(options.method, lambda: self._build_method(net, task), config)
        if net is None or not warmup_steps:
            return [stage]
        with torch.random.fork_rng(devices=[]):
            # raises an error for wrong settings before the warm-up, not after it
            require_whole_batches(self._build_method(copy.deepcopy(net), task), self.engine)
        return [TrainStage("supervised warm-up", lambda: supervised_method(net, task), warmup), stage]

    def _build_method(self, net: Classifier | None, task: Task) -> Method:
        preset = paper_settings if self.options.is_paper else method_defaults
        start = preset(self.options.method, defaults.kind_of(self.dataset.shape))
        method = build(self.options.method, net, task, {**start, **(self.options.settings or {})})
        self.prepare(method)
        return method

    def _build_net(self) -> Classifier:
        dataset, net = self.dataset, self.options.net
        if isinstance(net, Classifier):
            return copy.deepcopy(net)
        if isinstance(net, nn.Module):
            return classifier_from_features(copy.deepcopy(net), dataset.inputs(slice(2)), dataset.n_classes)
        built = defaults.net_for(dataset.shape, dataset.n_classes, net, paper=self.options.is_paper)
        defaults.initialize_whitening(built, dataset)
        return built

    def _choose_views(self, classes: list[Any], seed: int) -> defaults.ViewDefaults:
        views = self.options.views
        if not isinstance(views, str):
            return defaults.ViewDefaults(views)
        if views == "auto" and self.options.is_paper and len(self.dataset.shape) == 1:
            views = "noise"
        return defaults.view_defaults(self.dataset, seed, views, flip=not defaults.classes_are_characters(classes))

    def _choose_steps(self) -> int:
        options, n = self.options, len(self.dataset)
        if options.epochs in ("auto", "quick"):
            steps = defaults.steps_for(n)
            return steps if options.epochs == "auto" else max(1, steps // 4)
        return max(1, round(float(options.epochs) * n / self.task.batch_unlabelled))

    def _budget_for(self, minutes: float, net: Classifier) -> StepBudget:
        """Return the budget for these minutes, from a few timed steps of each stage on copies of the network.

        A run that resumes uses the budget with which it began.
        """
        folder = None if self.options.checkpoint is None else Path(self.options.checkpoint)
        budget = None if folder is None else load_step_budget(folder, minutes)
        if budget is None:
            seconds = self._time_step(net, limit=STEPS_PART * 60.0 * minutes)
            inference = self._time_training_set(net, limit=INFERENCE_PART * 60.0 * minutes)
            budget = plan_steps(minutes, seconds, spent=self.clock.seconds(), inference=inference)
        budget = StepBudget(*json.loads(self.engine.share(json.dumps(astuple(budget)).encode())))
        if folder is not None and self.engine.rank == 0:
            save_step_budget(folder, budget)
        return budget

    def _time_step(self, net: Classifier, *, warm: int = WARM, timed: int = TIMED, limit: float) -> StepSeconds:
        """Return the seconds of a step of the warm-up, and of a step of the method.

        Each of the two is timed for at most half of `limit` seconds, and then until the running step ends.
        """
        data, engine, fraction = (self.dataset, self.views.views), self.engine, self._warmup_fraction

        def supervised(steps: int) -> Method:
            return supervised_method(copy.deepcopy(net), replace(self.task, steps=steps))

        def method(steps: int) -> Method:
            built: Any = self._build_method(copy.deepcopy(net), replace(self.task, steps=steps))
            return cast(Method, built.to(engine.device))

        length: dict[str, Any] = {"warm": warm, "timed": timed, "limit": limit / 2 if fraction else limit}
        seconds = time_step(method, *data, self.config, engine, **length)
        if not fraction:
            return StepSeconds(seconds, seconds, 0.0)
        config = self.config.split_warmup(0)[0]
        return StepSeconds(time_step(supervised, *data, config, engine, **length), seconds, fraction)

    def _time_training_set(self, net: Classifier, limit: float) -> float:
        """Return the estimated seconds of an inference pass over the training set."""
        untimed = DeepPredictor(copy.deepcopy(net), mirrored=self._averages_flips).eval()
        predictor = prepare_for_inference(untimed, self.shape)
        n_timed = min(inference_block_size(self.shape), TIMED_SAMPLES)
        timed = self.dataset.inputs(slice(n_timed)).to(inference_dtype(self.shape))
        return time_inference(predictor.features, timed, len(self.dataset), limit)

    @property
    def _warmup_fraction(self) -> float:
        return self.options.warmup_fraction(self.task.n_labelled, self.dataset.shape)

    @property
    def _averages_flips(self) -> bool:
        """Return whether features are averaged over an image and its horizontal flip."""
        return self.views.flips and not self.options.is_paper

    def _identity(self, classes: list[Any]) -> dict[str, Any]:
        """Return the settings, besides those of the training itself, that must be equal for a checkpoint to be resumed."""
        options = self.options
        views, net = options.views, options.net
        return {
            "method": options.method,
            "preset": options.preset,
            "views": views if isinstance(views, str) else {name: type(view).__name__ for name, view in views.items()},
            "architecture": net if isinstance(net, str) else type(net).__name__,
            "precision": options.precision,
            "classes": classes,
            "supervised_warmup": options.supervised_warmup,
        }
