"""Optimizers, and schedules of the learning rate and of Adam's betas. Progress goes from 0 to 1 over a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer

from samekind.config import validate_config
from samekind.errors import SettingError
from samekind.losses.ramps import cosine_rampdown, linear_ramp, sigmoid_rampdown, sigmoid_rampup
from samekind.methods.base import LearningRateCycles

Decay = Literal["sigmoid", "linear", "cosine", "multistep", "none"]


@dataclass(frozen=True)
class OptimizerConfig:
    """Optimizer: Adam or SGD, with or without weight decay.

    Weight decay applies to tensors of two or more dimensions, so not to biases and normalization layers. With Adam the decay is
    decoupled (AdamW); with SGD it is part of the gradient.
    """

    kind: Literal["adam", "sgd"] = "adam"
    momentum: float = 0.9  # Nesterov momentum of SGD; Adam ignores it
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        validate_config(self)
        if not 0.0 <= self.momentum < 1.0 or not self.weight_decay >= 0.0:
            found = f"momentum is {self.momentum} and weight_decay {self.weight_decay}"
            raise SettingError(f"{found}; expected momentum from 0 to below 1, and weight_decay of 0 or more")

    def build(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Return the torch optimizer for all of these parameters that require a gradient."""
        trained = [p for p in parameters if p.requires_grad]
        groups: list[dict[str, Any]] = [{"params": trained, "weight_decay": 0.0}]
        if self.weight_decay:
            decayed, others = [p for p in trained if p.ndim > 1], [p for p in trained if p.ndim <= 1]
            groups = [{"params": decayed, "weight_decay": self.weight_decay}, {"params": others, "weight_decay": 0.0}]
        if self.kind == "sgd":
            return torch.optim.SGD(groups, lr=0.0, momentum=self.momentum, nesterov=self.momentum > 0, fused=True)
        if self.weight_decay:
            return torch.optim.AdamW(groups, fused=True)
        return torch.optim.Adam(groups, fused=True)


@dataclass(frozen=True)
class Schedule:
    """Schedule of the learning rate, lr_max * U * V, and of Adam's betas.

    All lengths are fractions of the run; the defaults are 80 and 50 of the paper's 600 epochs. U is a sigmoid ramp-up. V is the
    decay: a sigmoid or a straight line over the last `rampdown` of the run; a cosine from the start, which would reach 0 at
    progress `rampdown`; or the steps in `milestones`. As V falls from 1 to 0, Adam's beta1 goes from 0.9 to 0.5. With `cycles`,
    the learning rate is lr_max * U times a cosine that is repeated in cycles, and does not decay at the end.
    """

    lr_max: float = 0.003
    rampup: float = 80 / 600
    rampdown: float = 50 / 600
    beta1: float = 0.9
    beta1_end: float = 0.5
    beta2_start: float = 0.999  # beta2 during the ramp-up; the paper has 0.99 here for SVHN
    beta2: float = 0.999
    cycles: LearningRateCycles | None = None  # taken from the method by `train`; None for methods without cycles
    decay: Decay = "sigmoid"
    milestones: tuple[tuple[float, float], ...] = ()  # (progress, factor on lr_max from this progress on), in ascending order
    part: tuple[float, float] = (0.0, 1.0)  # begin and end of this schedule, as fractions of the whole run

    def __post_init__(self) -> None:
        validate_config(self)

    def split(self, fraction: float) -> tuple[Schedule, Schedule]:
        """Return two schedules: for the steps before this fraction of a run, and for the steps after it.

        With sigmoid decay, each of the two is scheduled like a run of its own: both begin with a ramp-up, and only the second
        ends with a decay. With any other decay, the two together give the same learning rates as this schedule.
        """
        if self.decay == "sigmoid":
            return replace(self, rampdown=0.0), self
        return replace(self, part=(0.0, fraction)), replace(self, part=(fraction, 1.0))

    def lr(self, progress: float) -> float:
        """Return the learning rate at this progress in [0, 1]."""
        t = self._of_run(progress)
        ramped = self.lr_max * sigmoid_rampup(t, self.rampup)
        if self.cycles is not None:
            return ramped * cosine_rampdown(_cyclic_progress(t, self.cycles), self.cycles.fall)
        return ramped * self._decay_factor(t)

    def betas(self, progress: float) -> tuple[float, float]:
        """Return Adam's (beta1, beta2) at this progress in [0, 1]."""
        t = self._of_run(progress)
        v = self._decay_factor(t)
        beta2 = self.beta2_start if t < self.rampup else self.beta2
        return v * self.beta1 + (1.0 - v) * self.beta1_end, beta2

    def apply(self, optimizer: Optimizer, progress: float) -> None:
        """Set the learning rate, and the betas of Adam, to their values at this progress in [0, 1]."""
        for group in optimizer.param_groups:
            group["lr"] = self.lr(progress)
            if "betas" in group:
                group["betas"] = self.betas(progress)

    def _of_run(self, progress: float) -> float:
        begin, end = self.part
        return begin + (end - begin) * progress

    def _decay_factor(self, t: float) -> float:
        if self.cycles is not None or self.decay == "none":
            return 1.0
        if self.decay == "linear":
            return linear_ramp(1.0 - t, self.rampdown)
        if self.decay == "cosine":
            return cosine_rampdown(t, self.rampdown)
        if self.decay == "multistep":
            return next((factor for begin, factor in reversed(self.milestones) if t >= begin), 1.0)
        return sigmoid_rampdown(t, self.rampdown, 1.0)


def _cyclic_progress(progress: float, cycles: LearningRateCycles) -> float:
    """Return the position on the cosine: the progress until `start`, and then the last cycle before `start` again and again."""
    if progress < cycles.start:
        return progress
    return cycles.start - cycles.length + (progress - cycles.start) % cycles.length
