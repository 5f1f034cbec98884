"""fast-SWA: the learning rate is cyclic, and the final model is the average of the network weights during the cycles.

Athiwaratkun, Finzi, Izmailov & Wilson 2019, "There Are Many Consistent Explanations of Unlabeled Data", arXiv:1806.05594. This
is an add-on for any method that is trained by steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from samekind.config import Config, FractionBelowOne, NumberRange, Positive, PositiveInt
from samekind.data.dataset import Dataset
from samekind.errors import SettingError
from samekind.methods.base import LearningRateCycles, Method, Task
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import MethodSpec
from samekind.methods.wrapper import MethodWrapper
from samekind.nets.ema import ema_copy, layers_with_running_statistics, recompute_norm_statistics, update_ema


@dataclass(frozen=True)
class FastSWAConfig(Config):
    """Settings of fast-SWA. All lengths are fractions of training; the defaults are the paper's."""

    cycle_start: FractionBelowOne = 180 / 780  # fraction of training before the first cycle
    cycle_length: Positive = 30 / 780
    cosine_length: Annotated[float, NumberRange(1.0)] = 210 / 180  # length of the cosine decay, as a multiple of cycle_start
    # fast-SWA averages weights often; plain SWA ("cycle_ends") only at the ends of cycles
    when: Literal["often", "cycle_ends"] = "often"
    average_start: FractionBelowOne = 150 / 780  # fraction of training before the first weights enter the average
    average_every: Positive = 3 / 780  # fraction of training between two sets of weights that enter the average
    # number of batches from which batch-norm statistics are recomputed for the averaged weights
    norm_batches: PositiveInt = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cycle_length > self.cycle_start:
            raise SettingError(
                f"cycle_length is {self.cycle_length} and cycle_start {self.cycle_start}; expected cycle_length <= cycle_start"
            )


class FastSWA(MethodWrapper):
    """Averages the weights of the base method's student during training. The losses are those of the base method.

    `n_averaged` is the number of sets of weights in the average.
    """

    refresh_at_end = True
    step: Tensor
    n_averaged: Tensor

    def __init__(self, base: Method, task: Task, config: FastSWAConfig | None = None) -> None:
        super().__init__(base)
        self.config = config or FastSWAConfig()
        self.task = task
        self.average = ema_copy(base.student)
        c = self.config
        start, every = self._average_fractions
        self.steps, self.first_step, self.gap = task.steps, round(start * task.steps), max(1, round(every * task.steps))
        self.lr_cycles = LearningRateCycles(c.cycle_start, c.cycle_length, c.cosine_length * c.cycle_start)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.register_buffer("n_averaged", torch.zeros((), dtype=torch.long))

    def after_step(self) -> None:
        super().after_step()
        self.step += 1
        if self._averages_at(int(self.step)):
            self.n_averaged += 1
            # With this decay, the EMA is the plain mean of n sets of weights: w_swa += (w - w_swa)/n.
            update_ema(self.average, self.base.student, 1.0 - 1.0 / int(self.n_averaged), statistics="copy")

    def replan(self, step_at: Callable[[float], float]) -> None:
        super().replan(step_at)
        start, every = self._average_fractions
        self.steps, self.first_step = round(step_at(1.0)), round(step_at(start))
        self.gap = max(1, round(step_at(1.0) - step_at(1.0 - every)))

    def refresh(self, dataset: Dataset) -> None:
        """Refresh the base method. If weights have been averaged, recompute the batch-norm statistics for the average."""
        super().refresh(dataset)
        if int(self.n_averaged) and layers_with_running_statistics(self.average):
            size = max(2, self.task.batch_labelled + self.task.batch_unlabelled)
            # random order, because a dataset may be sorted by class
            order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0))
            batches = [index for index in torch.split(order, size) if len(index) > 1][: self.config.norm_batches]
            device = next(self.average.parameters()).device
            recompute_norm_statistics(self.average, (dataset.inputs(index).to(device) for index in batches))

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.average) if int(self.n_averaged) else self.base.predictor()

    def _averages_at(self, step: int) -> bool:
        """Return whether the weights after `step` steps enter the average; the weights after the last step always do."""
        return step == self.steps or (step >= max(self.first_step, 1) and (step - self.first_step) % self.gap == 0)

    @property
    def _average_fractions(self) -> tuple[float, float]:
        """Return two fractions of training: before the first weights in the average, and between two sets of weights in it."""
        c = self.config
        return (c.average_start, c.average_every) if c.when == "often" else (c.cycle_start, c.cycle_length)


SPEC = MethodSpec(
    "fast_swa",
    FastSWA,
    FastSWAConfig,
    "the average of the weights along learning-rate cycles predicts",
    paper="Athiwaratkun, Finzi, Izmailov & Wilson 2019, arXiv:1806.05594",
    base="mean_teacher",
    search_space={"cycle_start": (0.25, 0.5)},
)
