"""What takes the steps: Adam or SGD, with or without weight decay. Rate and betas are the schedule's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer

from samekind.errors import SettingError
from samekind.methods.base import refuse_unknown_values


@dataclass(frozen=True)
class OptimizerConfig:
    """How a gradient becomes a step.

    Weight decay is of weights with two or more dimensions: neither biases nor what normalises shrink. Adam's shrinks them by lr
    times `weight_decay` a step beside its own step (AdamW); SGD's is part of the gradient.
    """

    kind: Literal["adam", "sgd"] = "adam"
    momentum: float = 0.9  # SGD's, with Nesterov's correction
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        refuse_unknown_values(self)
        if not 0.0 <= self.momentum < 1.0 or not self.weight_decay >= 0.0:
            found = f"momentum is {self.momentum} and weight_decay {self.weight_decay}"
            raise SettingError(f"{found}; expected a share from 0 to below 1, and 0 or more")

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """On all of these that want a gradient."""
        trained = [p for p in parameters if p.requires_grad]
        groups: list[dict[str, Any]] = [{"params": trained, "weight_decay": 0.0}]
        if self.weight_decay:
            shrinking, others = [p for p in trained if p.ndim > 1], [p for p in trained if p.ndim <= 1]
            groups = [{"params": shrinking, "weight_decay": self.weight_decay}, {"params": others, "weight_decay": 0.0}]
        if self.kind == "sgd":
            return torch.optim.SGD(groups, lr=0.0, momentum=self.momentum, nesterov=self.momentum > 0, fused=True)
        if self.weight_decay:
            return torch.optim.AdamW(groups, fused=True)
        return torch.optim.Adam(groups, fused=True)
