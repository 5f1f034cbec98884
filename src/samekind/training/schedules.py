"""How learning rate and Adam's betas move over a run, as functions of progress in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass

from torch.optim import Optimizer

from samekind.losses.ramps import cosine_rampdown, sigmoid_rampdown, sigmoid_rampup
from samekind.methods.contract import Cycles


@dataclass(frozen=True)
class Schedule:
    """lr = lr_max U V; beta1 goes from 0.9 to 0.5 as V falls. Lengths are shares of the run: 80 and 50 of 600 epochs.

    With `cycles`, lr = lr_max U times the cosine that they describe, and nothing falls at the end.
    """

    lr_max: float = 0.003
    rampup: float = 80 / 600
    rampdown: float = 50 / 600
    beta1: float = 0.9
    beta1_end: float = 0.5
    beta2_start: float = 0.999  # during the ramp-up; 0.99 in the SVHN settings
    beta2: float = 0.999
    cycles: Cycles | None = None  # what the method asks for

    def lr(self, progress: float) -> float:
        risen = self.lr_max * sigmoid_rampup(progress, self.rampup)
        if self.cycles is not None:
            return risen * cosine_rampdown(_replayed(progress, self.cycles), self.cycles.fall)
        return risen * self._falling(progress)

    def betas(self, progress: float) -> tuple[float, float]:
        v = self._falling(progress)
        beta2 = self.beta2_start if progress < self.rampup else self.beta2
        return v * self.beta1 + (1.0 - v) * self.beta1_end, beta2

    def apply(self, optimizer: Optimizer, progress: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = self.lr(progress)
            group["betas"] = self.betas(progress)

    def _falling(self, progress: float) -> float:
        return 1.0 if self.cycles is not None else sigmoid_rampdown(progress, self.rampdown, 1.0)


def _replayed(progress: float, cycles: Cycles) -> float:
    """Where on the cosine the run is: from the start on, again and again in the last cycle's length before it."""
    if progress < cycles.start:
        return progress
    return cycles.start - cycles.length + (progress - cycles.start) % cycles.length
