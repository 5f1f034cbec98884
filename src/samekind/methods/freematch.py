"""FreeMatch: FixMatch with adaptive thresholds, computed from the student's mean confidence, overall and for each class.

Wang et al. 2023, arXiv:2205.07246.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from samekind.config import Config, Fraction, NonNegative
from samekind.losses.weak_strong_losses import fairness, masked_cross_entropy
from samekind.methods.base import Task
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.spec import RAMPUP_SPACE, MethodSpec
from samekind.methods.weak_to_strong import WeakToStrong
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class FreeMatchConfig(Config):
    """Settings of FreeMatch; the defaults are the paper's."""

    lambda_u: NonNegative = 1.0  # weight of the pseudo-label loss
    lambda_f: NonNegative = 0.001  # weight of the fairness term, which should keep all classes in use
    threshold_decay: Fraction | None = 0.999  # decay per step of the running means; None: averages over 2 % of the steps
    tau_max: NonNegative = 1.0  # upper bound of the threshold τ; the paper has 0.95 for SVHN
    lambda_u_rampup: NonNegative = 0.0  # fraction of training over which lambda_u and lambda_f rise from 0; not in the paper
    # decay per step of the EMA that predicts after training; None: averages over 2 % of the steps
    ema_decay: Fraction | None = None


class FreeMatchStatistics(NamedTuple):
    """Running means over steps: of the confidence, of the predictions (C,), and of the class fractions of pseudo-labels
    (C,).
    """

    tau: Tensor
    p: Tensor
    fractions: Tensor


class FreeMatch(WeakToStrong):
    """Adds a loss of pseudo-labels above adaptive thresholds, and a fairness term against unused classes."""

    stores_samples = True
    tau: Tensor
    p: Tensor
    fractions: Tensor

    def __init__(self, net: Classifier, task: Task, config: FreeMatchConfig | None = None) -> None:
        config = config or FreeMatchConfig()
        super().__init__(net, task, config.ema_decay, config.lambda_u_rampup)
        self.config = config
        self.threshold_decay = ema_decay_for(self.config.threshold_decay, task)
        self.lambda_u = task.unlabelled_weight * self.config.lambda_u
        self.lambda_f = task.unlabelled_weight * self.config.lambda_f
        self.register_buffer("tau", torch.tensor(1.0 / task.n_classes))
        self.register_buffer("p", torch.full((task.n_classes,), 1.0 / task.n_classes))
        self.register_buffer("fractions", torch.full((task.n_classes,), 1.0 / task.n_classes))

    def unlabelled_terms(self, strong: Tensor, q: Tensor) -> dict[str, Tensor]:
        now = self.statistics(q)
        confidence, pseudo_label = q.max(1)
        mask = confidence >= (now.tau * now.p / now.p.max())[pseudo_label]
        return {
            "pseudo_label": self.lambda_u * masked_cross_entropy(strong, pseudo_label, mask),
            # `fairness` returns a negative number, and training makes it more negative, as in the authors' code
            "fairness": self.lambda_f * fairness(strong[mask], now.p, now.fractions),
        }

    def statistics(self, q: Tensor) -> FreeMatchStatistics:
        """Return the running means, updated with the predictions q (n, C) of the current batch."""
        confidence, pseudo_label = q.max(1)
        fractions = torch.bincount(pseudo_label, minlength=q.shape[1]).to(q.dtype) / len(q)
        decay = self.threshold_decay
        tau = torch.lerp(confidence.mean(), self.tau, decay).clamp_max(self.config.tau_max)
        return FreeMatchStatistics(tau, torch.lerp(q.mean(0), self.p, decay), torch.lerp(fractions, self.fractions, decay))

    def update_statistics(self, q: Tensor, index: Tensor) -> None:
        for buffer, value in zip((self.tau, self.p, self.fractions), self.statistics(q), strict=True):
            buffer.copy_(value)


SPEC = MethodSpec(
    "freematch",
    FreeMatch,
    FreeMatchConfig,
    "FixMatch with thresholds that follow the student's confidence",
    paper="Wang et al. 2023, arXiv:2205.07246",
    # threshold_decay: with 0.999 the running means average over 1000 steps. A short training has no more steps, so τ would stay
    # low to its end. lambda_u_rampup: at first all pseudo-labels are above their thresholds, and many are wrong.
    defaults={"threshold_decay": None, "lambda_u_rampup": 0.4},
    search_space={"lambda_u": (0.5, 1.0, 2.0), **RAMPUP_SPACE},
)
