"""fast-SWA: the rate goes up and down in cycles, and the average of the weights met on the way answers in the end.

Athiwaratkun, Finzi, Izmailov & Wilson 2019, "There Are Many Consistent Explanations of Unlabeled Data", arXiv:1806.05594. An
addition to any method that is trained by steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from samekind.data.dataset import Dataset
from samekind.errors import SettingError
from samekind.methods.base import Cycles, Learner, Task, refuse_unknown_values
from samekind.methods.predictors import DeepPredictor
from samekind.methods.wrapper import MethodWrapper
from samekind.nets.ema import ema_copy, layers_with_running_statistics, recompute_norm_statistics, update_ema


@dataclass(frozen=True)
class FastSWAConfig:
    cycles_from: float = 180 / 780  # share of the run before the cycles
    cycle: float = 30 / 780  # share of the run that a cycle takes
    fall: float = 210 / 180  # length of the cosine along which the rate falls, as a multiple of `cycles_from`
    when: Literal["often", "cycle_ends"] = "often"  # which weights are averaged: fast-SWA or plain SWA
    average_from: float = 150 / 780  # share of the run before the first of them
    average_every: float = 3 / 780  # share of the run between two of them
    batches: int = 100  # of pool rows from which the batch-norm statistics of the average are counted anew

    def __post_init__(self) -> None:
        refuse_unknown_values(self)
        if not 0.0 < self.cycle <= self.cycles_from < 1.0:
            raise SettingError(
                f"cycle is {self.cycle} and cycles_from {self.cycles_from}; expected 0 < cycle <= cycles_from < 1"
            )
        if not self.fall >= 1.0 or not 0.0 <= self.average_from < 1.0 or not self.average_every > 0 or self.batches < 1:
            raise SettingError(
                f"fall is {self.fall}, average_from {self.average_from}, average_every {self.average_every}, batches "
                f"{self.batches}; expected fall and batches of 1 or more, and shares of the run"
            )


class FastSWA(MethodWrapper[Learner]):
    """`averaged` counts the weights in the average; the base trains on as if nobody took notice of it."""

    refresh_at_end = True
    step: Tensor
    averaged: Tensor

    def __init__(self, base: Learner, task: Task, config: FastSWAConfig | None = None) -> None:
        super().__init__(base)
        self.config = config or FastSWAConfig()
        self.task = task
        self.average = ema_copy(base.student)
        c = self.config
        self.cycles = Cycles(c.cycles_from, c.cycle, c.fall * c.cycles_from)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.register_buffer("averaged", torch.zeros((), dtype=torch.long))

    def after_step(self) -> None:
        super().after_step()
        self.step += 1
        if self._wanted(int(self.step)):
            self.averaged += 1
            # w_swa += (w - w_swa)/n
            update_ema(self.average, self.base.student, 1.0 - 1.0 / int(self.averaged), statistics="copy")

    def refresh(self, pool: Dataset) -> None:
        """What the base does; and, once there is an average, its batch-norm statistics, which no average of others can be."""
        super().refresh(pool)
        if int(self.averaged) and layers_with_running_statistics(self.average):
            size = max(2, self.task.batch_labelled + self.task.batch_unlabelled)
            order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(0))  # a pool may be sorted by class
            rows = [some for some in torch.split(order, size) if len(some) > 1][: self.config.batches]
            device = next(self.average.parameters()).device
            recompute_norm_statistics(self.average, (pool.inputs(some).to(device) for some in rows))

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.average) if int(self.averaged) else self.base.predictor()

    def _wanted(self, step: int) -> bool:
        """Whether the weights after so many steps go into the average; those of the last step always do."""
        c = self.config
        first, every = (c.average_from, c.average_every) if c.when == "often" else (c.cycles_from, c.cycle)
        begin = round(first * self.task.steps)
        gap = max(1, round(every * self.task.steps))
        return step == self.task.steps or (step >= max(begin, 1) and (step - begin) % gap == 0)
