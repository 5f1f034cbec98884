"""FreeMatch: FixMatch with a threshold that follows how sure the student is, overall and of each class.

Wang et al. 2023, arXiv:2205.07246.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from samekind.losses.weak_strong_losses import fairness, masked_cross_entropy
from samekind.methods.base import Task, refuse_unknown_values
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.weak_to_strong import WeakToStrong
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class FreeMatchConfig:
    lambda_u: float = 1.0  # weight of what the guesses teach
    lambda_f: float = 0.001  # weight of fairness
    decay: float | None = 0.999  # what τ, p and shares keep of themselves per step; None: an average over 2 % of the run
    tau_max: float = 1.0  # the highest τ; 0.95 for SVHN
    rise: float = 0.0  # share of the run over which both weights rise; ours, for short runs
    alpha: float | None = None  # how much of itself the average keeps per step; None: an average over 2 % of the run

    def __post_init__(self) -> None:
        refuse_unknown_values(self)


# 0.999 looks back over 1000 steps, which is all of a short run: τ would stay low throughout. And at first every guess is heard.
RECIPE = {"decay": None, "rise": 0.4}


class Levels(NamedTuple):
    """Running means over steps: how sure the largest answer is, the answers (C,), and the shares of classes (C,)."""

    tau: Tensor
    p: Tensor
    share: Tensor


class FreeMatch(WeakToStrong):
    tau: Tensor
    p: Tensor
    share: Tensor

    def __init__(self, net: Classifier, task: Task, config: FreeMatchConfig | None = None) -> None:
        config = config or FreeMatchConfig()
        super().__init__(net, task, config.alpha, config.rise)
        self.config = config
        self.decay = ema_decay_for(self.config.decay, task)
        self.lambda_u, self.lambda_f = (
            task.unlabelled_weight * self.config.lambda_u,
            task.unlabelled_weight * self.config.lambda_f,
        )
        self.register_buffer("tau", torch.tensor(1.0 / task.n_classes))
        self.register_buffer("p", torch.full((task.n_classes,), 1.0 / task.n_classes))
        self.register_buffer("share", torch.full((task.n_classes,), 1.0 / task.n_classes))

    def learned(self, strong: Tensor, q: Tensor) -> dict[str, Tensor]:
        levels = self.levels(q)
        sure, guess = q.max(1)
        heard = sure >= (levels.tau * levels.p / levels.p.max())[guess]
        return {
            "guesses": self.lambda_u * masked_cross_entropy(strong, guess, heard),
            # a negative cross-entropy: to add it is to raise the cross-entropy of the two, as the authors do
            "fairness": self.lambda_f * fairness(strong[heard], levels.p, levels.share),
        }

    def levels(self, q: Tensor) -> Levels:
        """The running means with these answers counted in: a batch is judged by what it has changed."""
        sure, guess = q.max(1)
        share = torch.bincount(guess, minlength=q.shape[1]).to(q.dtype) / len(q)
        tau = torch.lerp(sure.mean(), self.tau, self.decay).clamp_max(self.config.tau_max)
        return Levels(tau, torch.lerp(q.mean(0), self.p, self.decay), torch.lerp(share, self.share, self.decay))

    def keep(self, q: Tensor, index: Tensor) -> None:
        for kept, level in zip((self.tau, self.p, self.share), self.levels(q), strict=True):
            kept.copy_(level)
