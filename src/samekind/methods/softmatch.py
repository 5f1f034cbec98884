"""SoftMatch: FixMatch without a threshold. Less confident pseudo-labels get a smaller weight, by a Gaussian function.

Chen et al. 2023, arXiv:2301.10921.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from samekind.config import Config, Fraction, NonNegative, Positive
from samekind.losses.weak_strong_losses import align_to_uniform, masked_cross_entropy
from samekind.methods.base import Task
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.spec import RAMPUP_SPACE, MethodSpec
from samekind.methods.weak_to_strong import WeakToStrong
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class SoftMatchConfig(Config):
    """Settings of SoftMatch; the defaults are the paper's."""

    lambda_u: NonNegative = 1.0  # weight of the pseudo-label loss
    # divisor of the Gaussian's width σ; a large value approaches a hard threshold at the mean confidence μ
    n_sigma: Positive = 2.0
    threshold_decay: Fraction | None = 0.999  # decay per step of the running means; None: averages over 2 % of the steps
    align: bool = True  # True: compute the confidence after distribution alignment to equal class fractions
    # fraction of training over which lambda_u rises from 0; not in the paper, useful in short training
    lambda_u_rampup: NonNegative = 0.0
    # decay per step of the EMA that predicts after training; None: averages over 2 % of the steps
    ema_decay: Fraction | None = None


class SoftMatchStatistics(NamedTuple):
    """Running means over steps: of the confidence, of its variance, and of the predictions (C,)."""

    mu: Tensor
    var: Tensor
    p: Tensor


class SoftMatch(WeakToStrong):
    """Weights each pseudo-label by a Gaussian function of its confidence; confidences above the mean get weight 1."""

    stores_samples = True
    mu: Tensor
    var: Tensor
    p: Tensor

    def __init__(self, net: Classifier, task: Task, config: SoftMatchConfig | None = None) -> None:
        config = config or SoftMatchConfig()
        super().__init__(net, task, config.ema_decay, config.lambda_u_rampup)
        self.config = config
        self.threshold_decay = ema_decay_for(config.threshold_decay, task)
        self.lambda_u = task.unlabelled_weight * config.lambda_u
        self.register_buffer("mu", torch.tensor(1.0 / task.n_classes))
        self.register_buffer("var", torch.tensor(1.0))
        self.register_buffer("p", torch.full((task.n_classes,), 1.0 / task.n_classes))

    def unlabelled_terms(self, strong: Tensor, q: Tensor) -> dict[str, Tensor]:
        now = self.statistics(q)
        below = (self.confidence(q, now.p) - now.mu).clamp_max(0.0)
        weight = torch.exp(-(below**2) * self.config.n_sigma**2 / (2.0 * now.var.clamp_min(torch.finfo(q.dtype).tiny)))
        return {"pseudo_label": self.lambda_u * masked_cross_entropy(strong, q.argmax(1), weight)}

    def statistics(self, q: Tensor) -> SoftMatchStatistics:
        """Return the running means, updated with the predictions q (n, C) of the current batch."""
        decay = self.threshold_decay
        p = torch.lerp(q.mean(0), self.p, decay)
        confidence = self.confidence(q, p)
        var = confidence.var() if len(confidence) > 1 else torch.zeros_like(self.var)
        return SoftMatchStatistics(torch.lerp(confidence.mean(), self.mu, decay), torch.lerp(var, self.var, decay), p)

    def confidence(self, q: Tensor, p: Tensor) -> Tensor:
        """Return the largest probability of each sample; if `align` is on, after dividing q (n, C) by the mean prediction p
        (C,).
        """
        return (align_to_uniform(q, p) if self.config.align else q).amax(1)

    def update_statistics(self, q: Tensor, index: Tensor) -> None:
        for buffer, value in zip((self.mu, self.var, self.p), self.statistics(q), strict=True):
            buffer.copy_(value)


SPEC = MethodSpec(
    "softmatch",
    SoftMatch,
    SoftMatchConfig,
    "FixMatch with a weight for each pseudo-label instead of a threshold",
    paper="Chen et al. 2023, arXiv:2301.10921",
    # threshold_decay: with 0.999 the running means average over 1000 steps. A short training has no more steps, so the variance
    # σ² would stay near its initial 1, and then all pseudo-labels have nearly the same weight.
    defaults={"threshold_decay": None, "lambda_u_rampup": 0.4},
    search_space={"lambda_u": (0.5, 1.0, 2.0), **RAMPUP_SPACE},
)
