"""Temporal ensembling: the target of a sample is the moving average of the predictions for it in earlier epochs.

Laine & Aila 2017, arXiv:1610.02242.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.config import Config, Fraction, NonNegative
from samekind.data.dataset import Batch
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.ramps import sigmoid_rampup
from samekind.methods.base import BatchOutput, Method, Task, prediction_statistics
from samekind.methods.pi_model import consistency_weight
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import CONSISTENCY_SPACE, MethodSpec
from samekind.nets.classifier import Classifier, split_output


@dataclass(frozen=True)
class TemporalEnsemblingConfig(Config):
    """Settings of temporal ensembling; the defaults are the paper's."""

    ensembling_momentum: Fraction = 0.6  # α, decay per epoch of the moving average
    w_max: NonNegative | None = None  # weight of the consistency term after the ramp-up; None: 30 n_labelled/n_samples
    rampup: NonNegative = 80 / 300  # fraction of training over which the weight rises from 0


class TemporalEnsembling(Method):
    """Adds the squared difference between predictions and their moving averages to the cross-entropy of the labels.

    `Z` (n_samples, C) stores the moving averages, and `visits` (n_samples,) how many predictions each of them contains.
    """

    stores_samples = True
    averages_over_batch = True
    min_epochs = 2.0
    keeps_output = True
    Z: Tensor
    visits: Tensor

    def __init__(self, net: Classifier, task: Task, config: TemporalEnsemblingConfig | None = None) -> None:
        super().__init__()
        self.config = config or TemporalEnsemblingConfig()
        self.w_max = consistency_weight(self.config.w_max, task, rule=30.0)
        self.student = net
        self.register_buffer("Z", torch.zeros(task.n_samples, task.n_classes))
        self.register_buffer("visits", torch.zeros(task.n_samples, dtype=torch.long))
        self._predicted: list[tuple[Tensor, Tensor]] = []  # (index, prediction) of each part of the batch, for `after_step`

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        (x_u,) = batch.x_u
        n = len(x_u) + len(batch.y_l)
        unlabelled, labelled = split_output(self.student(torch.cat([x_u, batch.x_l[0]])), [len(x_u), len(batch.y_l)])
        f = torch.softmax(unlabelled.logits, dim=-1)
        self._predicted.append((batch.index, f.detach()))
        self.diagnostics = prediction_statistics(f.detach())
        w = self.w_max * sigmoid_rampup(progress, self.config.rampup)
        targets = self.targets(batch.index)
        self.last_output = BatchOutput(unlabelled, labelled, targets, w)
        # a sample has no target before its first visit, that is, in the first epoch
        visited = (self.visits[batch.index] > 0).to(f.dtype)[:, None]
        return {
            "supervised": label_cross_entropy(labelled.logits, batch.y_l) / n,
            "consistency": w * (visited * (f - targets)).square().mean(),
        }

    def targets(self, index: Tensor) -> Tensor:
        """Return the targets Z/(1 - α^visits) (n, C); a sample without a visit has the target 0.

        The division removes the bias of a moving average that starts at 0, as in Adam.
        """
        momentum = self.config.ensembling_momentum
        weight = 1.0 - momentum ** self.visits[index].clamp_min(1).to(self.Z.dtype)
        return self.Z[index] / weight[:, None]

    @torch.no_grad()
    def after_step(self) -> None:
        """Update the moving averages of the samples of this step: Z <- α Z + (1 - α) f. The next epoch uses them as targets."""
        momentum = self.config.ensembling_momentum
        for index, f in self._predicted:
            self.Z[index] = momentum * self.Z[index] + (1.0 - momentum) * f
            self.visits[index] += 1
        self._predicted = []

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)


SPEC = MethodSpec(
    "temporal_ensembling",
    TemporalEnsembling,
    TemporalEnsemblingConfig,
    "predictions agree with their average over earlier epochs",
    paper="Laine & Aila 2017, arXiv:1610.02242",
    # with a dozen labels among thousands of samples, the default 100 n_labelled/n_samples is far too small
    defaults={"w_max": 10.0},
    search_space=CONSISTENCY_SPACE,
)
