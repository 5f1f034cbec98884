"""SoftMatch: FixMatch without a threshold; a guess that is less sure than most is heard less, along a Gaussian.

Chen et al. 2023, arXiv:2301.10921.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from samekind.losses.weak_strong_losses import aligned, masked_cross_entropy
from samekind.methods.base import Task, refuse_unknown_values, require_positive
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.weak_to_strong import WeakToStrong
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class SoftMatchConfig:
    lambda_u: float = 1.0  # weight of what the guesses teach
    n_sigma: float = 2.0  # σ is divided by it: the larger, the nearer to a threshold at μ
    decay: float | None = 0.999  # what μ, σ² and p keep of themselves per step; None: an average over 2 % of the run
    align: bool = True  # sureness is that of answers aligned to even shares of the classes
    rise: float = 0.0  # share of the run over which the weight rises; ours, for short runs
    alpha: float | None = None  # how much of itself the average keeps per step; None: an average over 2 % of the run

    def __post_init__(self) -> None:
        refuse_unknown_values(self)
        require_positive(self, "n_sigma")


# 0.999 looks back over 1000 steps, which is all of a short run: σ² would stay near the 1 it begins with, all heard alike.
RECIPE = {"decay": None, "rise": 0.4}


class Levels(NamedTuple):
    """Running means over steps: how sure the largest answer is, the variance of that, and the answers (C,)."""

    mu: Tensor
    var: Tensor
    p: Tensor


class SoftMatch(WeakToStrong):
    mu: Tensor
    var: Tensor
    p: Tensor

    def __init__(self, net: Classifier, task: Task, config: SoftMatchConfig | None = None) -> None:
        config = config or SoftMatchConfig()
        super().__init__(net, task, config.alpha, config.rise)
        self.config = config
        self.decay = ema_decay_for(config.decay, task)
        self.lambda_u = task.unlabelled_weight * config.lambda_u
        self.register_buffer("mu", torch.tensor(1.0 / task.n_classes))
        self.register_buffer("var", torch.tensor(1.0))
        self.register_buffer("p", torch.full((task.n_classes,), 1.0 / task.n_classes))

    def learned(self, strong: Tensor, q: Tensor) -> dict[str, Tensor]:
        levels = self.levels(q)
        short = (self.sureness(q, levels.p) - levels.mu).clamp_max(0.0)
        heard = torch.exp(-(short**2) * self.config.n_sigma**2 / (2.0 * levels.var.clamp_min(torch.finfo(q.dtype).tiny)))
        return {"guesses": self.lambda_u * masked_cross_entropy(strong, q.argmax(1), heard)}

    def levels(self, q: Tensor) -> Levels:
        """The running means with these answers counted in: a batch is judged by what it has changed."""
        p = torch.lerp(q.mean(0), self.p, self.decay)
        sure = self.sureness(q, p)
        var = sure.var() if len(sure) > 1 else torch.zeros_like(self.var)
        return Levels(torch.lerp(sure.mean(), self.mu, self.decay), torch.lerp(var, self.var, self.decay), p)

    def sureness(self, q: Tensor, p: Tensor) -> Tensor:
        """The largest answer of each row, after alignment where it is wished; what is guessed is not aligned."""
        return (aligned(q, p) if self.config.align else q).amax(1)

    def keep(self, q: Tensor, index: Tensor) -> None:
        for kept, level in zip((self.mu, self.var, self.p), self.levels(q), strict=True):
            kept.copy_(level)
