"""FixMatch: a confident pseudo-label, predicted for the weak view, becomes the label of the strong view.

Sohn et al. 2020, arXiv:2001.07685.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from samekind.config import Config, Fraction, NonNegative
from samekind.losses.weak_strong_losses import masked_cross_entropy
from samekind.methods.base import Task
from samekind.methods.spec import RAMPUP_SPACE, THRESHOLD_SPACE, MethodSpec
from samekind.methods.weak_to_strong import WeakToStrong
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class FixMatchConfig(Config):
    """Settings of FixMatch; the defaults are the paper's."""

    threshold: Fraction = 0.95  # τ, minimum confidence of a pseudo-label
    lambda_u: NonNegative = 1.0  # weight of the pseudo-label loss
    # fraction of training over which lambda_u rises from 0; not in the paper, useful in short training
    lambda_u_rampup: NonNegative = 0.0
    # decay per step of the EMA that predicts after training; None: averages over 2 % of the steps
    ema_decay: Fraction | None = None


class FixMatch(WeakToStrong):
    """Adds the cross-entropy of the strong views with those pseudo-labels that are above a fixed threshold."""

    def __init__(self, net: Classifier, task: Task, config: FixMatchConfig | None = None) -> None:
        config = config or FixMatchConfig()
        super().__init__(net, task, config.ema_decay, config.lambda_u_rampup)
        self.config = config
        self.lambda_u = task.unlabelled_weight * self.config.lambda_u

    def unlabelled_terms(self, strong: Tensor, q: Tensor) -> dict[str, Tensor]:
        confidence, pseudo_label = q.max(1)
        mask = confidence >= self.config.threshold
        return {"pseudo_label": self.lambda_u * masked_cross_entropy(strong, pseudo_label, mask)}


SPEC = MethodSpec(
    "fixmatch",
    FixMatch,
    FixMatchConfig,
    "a confident pseudo-label from the weak view is the label of the strong view",
    paper="Sohn et al. 2020, arXiv:2001.07685",
    search_space={**THRESHOLD_SPACE, **RAMPUP_SPACE},
)
