"""Supervised: cross-entropy of the labelled samples alone. It is the baseline for every semi-supervised method."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.config import Config
from samekind.data.dataset import Batch
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.methods.base import Method, Task, prediction_statistics
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import MethodSpec
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class SupervisedConfig(Config):
    """Settings of the supervised baseline. It has none."""


class Supervised(Method):
    """Trains the net on the labelled samples alone."""

    labelled_views = ("labelled_only",)  # "weak" augmentation may use unlabelled samples, and a supervised baseline must not
    unlabelled_views = ()

    def __init__(self, net: Classifier, task: Task, config: SupervisedConfig | None = None) -> None:
        super().__init__()
        self.config = config or SupervisedConfig()
        self.student = net

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        logits = self.student(batch.x_l[0]).logits
        self.diagnostics = prediction_statistics(torch.softmax(logits.detach(), dim=-1))
        return {"supervised": label_cross_entropy(logits, batch.y_l) / len(batch.y_l)}

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)


SPEC = MethodSpec("supervised", Supervised, SupervisedConfig, "cross-entropy of the labelled samples alone")
