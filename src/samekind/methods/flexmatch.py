"""FlexMatch: FixMatch with a threshold for each class. A class with few confident samples has a lower threshold.

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

    threshold: Fraction = 0.95  # τ, least confidence of a pseudo-label in the class that has the most confident samples
    lambda_u: NonNegative = 1.0  # weight of the pseudo-label loss
    warmup: bool = True  # True: while most samples were never confident, all thresholds are lower
    # fraction of training over which lambda_u rises from 0; not in the paper, useful in short training
    lambda_u_rampup: NonNegative = 0.0
    # decay per step of the EMA that predicts after training; None: averages over 2 % of the steps
    ema_decay: Fraction | None = None


class FlexMatch(WeakToStrong):
    """FixMatch with one threshold for each class.

    `pseudo_labels` (n_samples,) stores the last confident pseudo-label of each sample; the thresholds are computed from these.
    """

    stores_samples = True
    min_epochs = 2.0
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
        """Return the threshold τ b/(2 - b) of each class.

        b is the number of samples with a confident pseudo-label of the class, divided by the largest such number. With
        `warmup`, it is divided by the number of samples that were never confident, if that is larger.
        """
        never, *_ = counts = torch.bincount(self.pseudo_labels - NEVER_CONFIDENT, minlength=self.n_classes + 1).float()
        largest = counts[1:].max()
        b = counts[1:] / (torch.maximum(largest, never) if self.config.warmup else largest).clamp_min(1.0)
        return self.config.threshold * b / (2.0 - b)

    def update_statistics(self, q: Tensor, index: Tensor) -> None:
        """Store the pseudo-labels whose confidence is at least τ; the lower thresholds of the classes do not count here."""
        confidence, pseudo_label = q.max(1)
        confident = confidence >= self.config.threshold
        self.pseudo_labels[index[confident]] = pseudo_label[confident]


SPEC = MethodSpec(
    "flexmatch",
    FlexMatch,
    FlexMatchConfig,
    "FixMatch with a lower threshold for classes that are learned slowly",
    paper="Zhang et al. 2021, arXiv:2110.08263",
    # at first the thresholds are low, and a short training cannot correct the wrong pseudo-labels of its beginning
    defaults={"lambda_u_rampup": 0.4},
    search_space={**THRESHOLD_SPACE, **RAMPUP_SPACE},
)
