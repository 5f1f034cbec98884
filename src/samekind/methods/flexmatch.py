"""FlexMatch: FixMatch with a threshold for each class, low for a class as long as few rows are surely in it.

Zhang et al. 2021, arXiv:2110.08263.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from samekind.losses.weak_strong_losses import masked_cross_entropy
from samekind.methods.base import Task, refuse_unknown_values
from samekind.methods.weak_to_strong import WeakToStrong
from samekind.nets.classifier import Classifier

NONE = -1  # the row has never been sure


@dataclass(frozen=True)
class FlexMatchConfig:
    threshold: float = 0.95  # τ, how sure a guess must be in the class that is learned best
    lambda_u: float = 1.0  # weight of what the guesses teach
    warmup: bool = True  # count the rows that have never been sure as if they were a class
    rise: float = 0.0  # share of the run over which that weight rises; ours, for short runs
    alpha: float | None = None  # how much of itself the average keeps per step; None: an average over 2 % of the run

    def __post_init__(self) -> None:
        refuse_unknown_values(self)


RECIPE = {"rise": 0.4}  # at first every guess is heard, and a short run has no time to unlearn what it believed


class FlexMatch(WeakToStrong):
    last: Tensor

    def __init__(self, net: Classifier, task: Task, config: FlexMatchConfig | None = None) -> None:
        config = config or FlexMatchConfig()
        super().__init__(net, task, config.alpha, config.rise)
        self.config = config
        self.lambda_u = task.unlabelled_weight * self.config.lambda_u
        self.n_classes = task.n_classes
        self.register_buffer("last", torch.full((task.n_samples,), NONE))  # the last sure guess about each row of the pool

    def learned(self, strong: Tensor, q: Tensor) -> dict[str, Tensor]:
        sure, guess = q.max(1)
        return {"guesses": self.lambda_u * masked_cross_entropy(strong, guess, sure >= self.thresholds()[guess])}

    def thresholds(self) -> Tensor:
        """τ b/(2 - b) for each class, b its count of sure rows as a share of the largest count."""
        never, *_ = counts = torch.bincount(self.last - NONE, minlength=self.n_classes + 1).float()
        most = counts[1:].max()
        b = counts[1:] / (torch.maximum(most, never) if self.config.warmup else most).clamp_min(1.0)
        return self.config.threshold * b / (2.0 - b)

    def keep(self, q: Tensor, index: Tensor) -> None:
        """A row keeps its last sure guess until it is sure of another; τ itself decides, not the threshold of the class."""
        sure, guess = q.max(1)
        passed = sure >= self.config.threshold
        self.last[index[passed]] = guess[passed]
