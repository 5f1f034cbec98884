"""FlexMatch: FixMatch with a threshold for each class, lower for a class with few confident samples.

Zhang et al. 2021, arXiv:2110.08263.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from samekind.config import Config, Fraction, NonNegative
from samekind.losses.weak_strong_losses import masked_cross_entropy
from samekind.methods.base import Task
from samekind.methods.spec import RAMPUP_SPACE, THRESHOLD_SPACE, MethodSpec
from samekind.methods.weak_to_strong import WeakToStrong
from samekind.nets.classifier import Classifier

NEVER_CONFIDENT = -1  # pseudo-label of a sample that has never been above the threshold


@dataclass(frozen=True)
class FlexMatchConfig(Config):
    """Settings of FlexMatch; the defaults are the paper's."""

    threshold: Fraction = 0.95  # τ, minimum confidence of a pseudo-label in the class that is learned best
    lambda_u: NonNegative = 1.0  # weight of the pseudo-labels
    warmup: bool = True  # True: samples that were never confident count as one more class
    lambda_u_rampup: NonNegative = 0.0  # fraction of training over which lambda_u rises; not in the paper, for short training
    ema_decay: Fraction | None = None  # EMA decay per step; the EMA predicts in the end; None: averages over 2 % of training


class FlexMatch(WeakToStrong):
    """Keeps `pseudo_labels` (n_samples,), the last confident pseudo-label of each sample, to adapt the thresholds."""

    pseudo_labels: Tensor

    def __init__(self, net: Classifier, task: Task, config: FlexMatchConfig | None = None) -> None:
        config = config or FlexMatchConfig()
        super().__init__(net, task, config.ema_decay, config.lambda_u_rampup)
        self.config = config
        self.lambda_u = task.unlabelled_weight * self.config.lambda_u
        self.n_classes = task.n_classes
        self.register_buffer("pseudo_labels", torch.full((task.n_samples,), NEVER_CONFIDENT))

    def unlabelled_terms(self, strong: Tensor, q: Tensor) -> dict[str, Tensor]:
        confidence, pseudo_label = q.max(1)
        mask = confidence >= self.thresholds()[pseudo_label]
        return {"pseudo_label": self.lambda_u * masked_cross_entropy(strong, pseudo_label, mask)}

    def thresholds(self) -> Tensor:
        """Return the threshold τ b/(2 - b) of each class; b is its count of confident samples divided by the largest count."""
        never, *_ = counts = torch.bincount(self.pseudo_labels - NEVER_CONFIDENT, minlength=self.n_classes + 1).float()
        largest = counts[1:].max()
        b = counts[1:] / (torch.maximum(largest, never) if self.config.warmup else largest).clamp_min(1.0)
        return self.config.threshold * b / (2.0 - b)

    def update_statistics(self, q: Tensor, index: Tensor) -> None:
        """Store the pseudo-labels that are above τ itself, not above the threshold of their class."""
        confidence, pseudo_label = q.max(1)
        confident = confidence >= self.config.threshold
        self.pseudo_labels[index[confident]] = pseudo_label[confident]


SPEC = MethodSpec(
    "flexmatch",
    FlexMatch,
    FlexMatchConfig,
    "FixMatch with a lower threshold for classes that are learned slowly",
    paper="Zhang et al. 2021, arXiv:2110.08263",
    defaults={"lambda_u_rampup": 0.4},  # thresholds are low at first, and short training cannot unlearn wrong pseudo-labels
    search_space={**THRESHOLD_SPACE, **RAMPUP_SPACE},
)
