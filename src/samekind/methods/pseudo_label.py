"""Pseudo-label: a confident prediction for an unlabelled sample becomes its label.

Lee 2013 (workshop on challenges in representation learning, ICML), with the threshold of Oliver et al. 2018, arXiv:1804.09170.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.config import Config, Fraction, NonNegative
from samekind.data.dataset import Batch
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.ramps import linear_ramp
from samekind.methods.base import Method, Task, prediction_statistics
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import LogUniform, MethodSpec
from samekind.nets.classifier import Classifier
from samekind.nets.forward import forward_without_buffer_updates

IGNORED = -100  # torch's cross-entropy skips samples of this class


@dataclass(frozen=True)
class PseudoLabelConfig(Config):
    """Settings of Pseudo-label; the defaults are those of Oliver et al. 2018."""

    threshold: Fraction = 0.95  # least confidence of a pseudo-label that is used; Lee has 0
    w_max: NonNegative = 1.0  # weight of the pseudo-label loss after the ramp-up; Lee has 3
    rampup: NonNegative = 0.4  # fraction of training over which the weight rises linearly from 0


class PseudoLabel(Method):
    """Adds the cross-entropy of confident pseudo-labels to the cross-entropy of the labels."""

    def __init__(self, net: Classifier, task: Task, config: PseudoLabelConfig | None = None) -> None:
        super().__init__()
        self.config = config or PseudoLabelConfig()
        self.w_max = task.unlabelled_weight * self.config.w_max
        self.student = net

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        labelled = self.student(batch.x_l[0]).logits
        unlabelled = forward_without_buffer_updates(self.student, batch.x_u[0]).logits
        f = torch.softmax(unlabelled.detach(), dim=-1)
        self.diagnostics = prediction_statistics(f)
        confidence, pseudo_label = f.max(dim=-1)
        pseudo_label = torch.where(confidence > self.config.threshold, pseudo_label, IGNORED)
        w = self.w_max * linear_ramp(progress, self.config.rampup)
        return {
            "supervised": label_cross_entropy(labelled, batch.y_l) / len(batch.y_l),
            # divided by the number of all unlabelled samples, so that the term is small while few pseudo-labels are above the
            # threshold
            "pseudo": w * label_cross_entropy(unlabelled, pseudo_label) / len(pseudo_label),
        }

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)


SPEC = MethodSpec(
    "pseudo_label",
    PseudoLabel,
    PseudoLabelConfig,
    "confident predictions become labels",
    paper="Lee 2013",
    search_space={"threshold": (0.8, 0.9, 0.95), "w_max": LogUniform(0.3, 3.0)},
)
