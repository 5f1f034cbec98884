"""Supervised: the labelled rows and nothing else. What every other method has to beat."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.data.dataset import Batch, Dataset
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.methods.base import Task, seen
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class SupervisedConfig:
    """Nothing to set."""


class Supervised(nn.Module):
    iterative = True
    labelled_views: tuple[str, ...] = ("labelled_only",)  # not "weak": that may use the pool
    unlabelled_views: tuple[str, ...] = ()

    def __init__(self, net: Classifier, task: Task, config: SupervisedConfig | None = None) -> None:
        super().__init__()
        self.config = config or SupervisedConfig()
        self.student = net
        self.observed: dict[str, Tensor] = {}

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        logits = self.student(batch.x_l[0]).logits
        self.observed = seen(torch.softmax(logits.detach(), dim=-1))
        return {"supervised": label_cross_entropy(logits, batch.y_l) / len(batch.y_l)}

    def after_step(self) -> None:
        """Nothing moves but the student."""

    def refresh(self, pool: Dataset) -> None:
        """The pool is not looked at."""

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)
