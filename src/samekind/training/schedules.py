"""How learning rate and Adam's betas move over a run, as functions of progress in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from torch.optim import Optimizer

from samekind.losses.ramps import cosine_rampdown, linear_ramp, sigmoid_rampdown, sigmoid_rampup
from samekind.methods.base import Cycles, refuse_unknown_values

Fall = Literal["sigmoid", "linear", "cosine", "stairs", "none"]


@dataclass(frozen=True)
class Schedule:
    """lr = lr_max U V; beta1 goes from 0.9 to 0.5 as V falls. Lengths are shares of the run: 80 and 50 of 600 epochs.

    U rises along a sigmoid. V falls over the last `rampdown` of the run along a sigmoid or a line; from the start on along a
    cosine, which would end at 0 after `rampdown`; or from each place of `stairs` on to the share that stands beside it. With
    `cycles`, lr = lr_max U times the cosine that they describe, and nothing falls at the end.
    """

    lr_max: float = 0.003
    rampup: float = 80 / 600
    rampdown: float = 50 / 600
    beta1: float = 0.9
    beta1_end: float = 0.5
    beta2_start: float = 0.999  # during the ramp-up; 0.99 in the SVHN settings
    beta2: float = 0.999
    cycles: Cycles | None = None  # what the method asks for
    fall: Fall = "sigmoid"
    stairs: tuple[tuple[float, float], ...] = ()  # (from where on, share of the rate), in this order
    part: tuple[float, float] = (0.0, 1.0)  # of the whole run, which this is the schedule of

    def __post_init__(self) -> None:
        refuse_unknown_values(self)

    def split(self, share: float) -> tuple[Schedule, Schedule]:
        """What comes before this share of a run, and what comes after.

        The sigmoids are those of the second part: the first has a rise of its own, and its rate is not brought down.
        """
        if self.fall == "sigmoid":
            return replace(self, rampdown=0.0), self
        return replace(self, part=(0.0, share)), replace(self, part=(share, 1.0))

    def lr(self, progress: float) -> float:
        t = self._whole(progress)
        risen = self.lr_max * sigmoid_rampup(t, self.rampup)
        if self.cycles is not None:
            return risen * cosine_rampdown(_replayed(t, self.cycles), self.cycles.fall)
        return risen * self._falling(t)

    def betas(self, progress: float) -> tuple[float, float]:
        t = self._whole(progress)
        v = self._falling(t)
        beta2 = self.beta2_start if t < self.rampup else self.beta2
        return v * self.beta1 + (1.0 - v) * self.beta1_end, beta2

    def apply(self, optimizer: Optimizer, progress: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = self.lr(progress)
            if "betas" in group:
                group["betas"] = self.betas(progress)

    def _whole(self, progress: float) -> float:
        begin, end = self.part
        return begin + (end - begin) * progress

    def _falling(self, t: float) -> float:
        if self.cycles is not None or self.fall == "none":
            return 1.0
        if self.fall == "linear":
            return linear_ramp(1.0 - t, self.rampdown)
        if self.fall == "cosine":
            return cosine_rampdown(t, self.rampdown)
        if self.fall == "stairs":
            return next((share for place, share in reversed(self.stairs) if t >= place), 1.0)
        return sigmoid_rampdown(t, self.rampdown, 1.0)


def _replayed(progress: float, cycles: Cycles) -> float:
    """Where on the cosine the run is: from the start on, again and again in the last cycle's length before it."""
    if progress < cycles.start:
        return progress
    return cycles.start - cycles.length + (progress - cycles.start) % cycles.length
