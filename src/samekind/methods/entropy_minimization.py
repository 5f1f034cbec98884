"""Entropy minimization: predictions for unlabelled samples should be confident, whatever the class.

Grandvalet & Bengio 2004, "Semi-supervised Learning by Entropy Minimization".
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.config import Config, NonNegative
from samekind.data.dataset import Batch
from samekind.losses.adversarial import entropy
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.ramps import linear_ramp
from samekind.methods.base import Method, Task, prediction_statistics
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import LogUniform, MethodSpec
from samekind.nets.classifier import Classifier, split_output


@dataclass(frozen=True)
class EntropyMinimizationConfig(Config):
    """Settings of entropy minimization."""

    w_max: NonNegative = 0.3  # λ, weight of the entropy after the ramp-up
    rampup: NonNegative = 0.4  # fraction of training over which it rises linearly


class EntropyMinimization(Method):
    """Adds the mean entropy of the predictions for unlabelled samples to the cross-entropy of the labels."""

    def __init__(self, net: Classifier, task: Task, config: EntropyMinimizationConfig | None = None) -> None:
        super().__init__()
        self.config = config or EntropyMinimizationConfig()
        self.w_max = task.unlabelled_weight * self.config.w_max
        self.student = net

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        (x_u,), x_l = batch.x_u, batch.x_l[0]
        unlabelled, labelled = split_output(self.student(torch.cat([x_u, x_l])), [len(x_u), len(x_l)])
        self.diagnostics = prediction_statistics(torch.softmax(unlabelled.logits.detach(), dim=-1))
        w = self.w_max * linear_ramp(progress, self.config.rampup)
        return {
            "supervised": label_cross_entropy(labelled.logits, batch.y_l) / len(batch.y_l),
            "entropy": w * entropy(unlabelled.logits),
        }

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)


SPEC = MethodSpec(
    "entropy_minimization",
    EntropyMinimization,
    EntropyMinimizationConfig,
    "predictions for unlabelled samples become confident",
    paper="Grandvalet & Bengio 2004",
    search_space={"w_max": LogUniform(0.03, 1.0), "rampup": (0.1, 0.4)},
)
