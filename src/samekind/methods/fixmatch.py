"""FixMatch: where the student is sure of a weak look, that guess is the label of the strong look.

Sohn et al. 2020, arXiv:2001.07685.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from samekind.losses.weak_strong_losses import masked_cross_entropy
from samekind.methods.base import Task, refuse_unknown_values
from samekind.methods.weak_to_strong import WeakToStrong
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class FixMatchConfig:
    threshold: float = 0.95  # τ, how sure a guess must be
    lambda_u: float = 1.0  # weight of what the guesses teach
    rise: float = 0.0  # share of the run over which that weight rises; ours, for short runs
    alpha: float | None = None  # how much of itself the average keeps per step; None: an average over 2 % of the run

    def __post_init__(self) -> None:
        refuse_unknown_values(self)


class FixMatch(WeakToStrong):
    def __init__(self, net: Classifier, task: Task, config: FixMatchConfig | None = None) -> None:
        config = config or FixMatchConfig()
        super().__init__(net, task, config.alpha, config.rise)
        self.config = config
        self.lambda_u = task.unlabelled_weight * self.config.lambda_u

    def learned(self, strong: Tensor, q: Tensor) -> dict[str, Tensor]:
        sure, guess = q.max(1)
        return {"guesses": self.lambda_u * masked_cross_entropy(strong, guess, sure >= self.config.threshold)}

    def keep(self, q: Tensor, index: Tensor) -> None:
        """Nothing is remembered."""
