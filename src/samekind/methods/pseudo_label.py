"""Pseudo-label: what the network is sure of, it takes for a label.

Lee 2013 (workshop on challenges in representation learning, ICML), with the threshold of Oliver et al. 2018, arXiv:1804.09170.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.data.dataset import Batch, Dataset
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.ramps import linear_ramp
from samekind.methods.base import Task, seen
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier
from samekind.nets.forward import forward_without_buffer_updates

IGNORED = -100  # cross-entropy passes over rows of this class


@dataclass(frozen=True)
class PseudoLabelConfig:
    threshold: float = 0.95  # a row is taught its likeliest class if that is more probable than this; Lee: 0
    w_max: float = 1.0  # weight of the pseudo-labels once ramped up; Lee: 3
    rampup: float = 0.4  # share of the run over which it rises in a straight line


class PseudoLabel(nn.Module):
    iterative = True
    labelled_views: tuple[str, ...] = ("weak",)
    unlabelled_views: tuple[str, ...] = ("weak",)

    def __init__(self, net: Classifier, task: Task, config: PseudoLabelConfig | None = None) -> None:
        super().__init__()
        self.config = config or PseudoLabelConfig()
        self.w_max = task.unlabelled_weight * self.config.w_max
        self.student = net
        self.observed: dict[str, Tensor] = {}

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        labelled = self.student(batch.x_l[0]).logits
        unlabelled = forward_without_buffer_updates(self.student, batch.x_u[0]).logits
        f = torch.softmax(unlabelled.detach(), dim=-1)
        self.observed = seen(f)
        how_sure, guess = f.max(dim=-1)
        guess = torch.where(how_sure > self.config.threshold, guess, IGNORED)
        w = self.w_max * linear_ramp(progress, self.config.rampup)
        return {
            "supervised": label_cross_entropy(labelled, batch.y_l) / len(batch.y_l),
            # over all rows, also those that are not sure: while few are, little is taught
            "pseudo": w * label_cross_entropy(unlabelled, guess) / len(guess),
        }

    def after_step(self) -> None:
        """Nothing moves but the student."""

    def refresh(self, pool: Dataset) -> None:
        """The pool is not looked at."""

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)
