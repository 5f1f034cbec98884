"""CCLP: each class becomes one compact cluster of the features, by label propagation on a graph of each batch.

Kamnitsas et al. 2018, "Semi-Supervised Learning via Compact Latent Space Clustering", arXiv:1806.02679.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.config import Config, NonNegative, Positive, PositiveInt
from samekind.data.dataset import Batch
from samekind.losses.clustering import compact_clustering
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.methods.base import Method, Task, prediction_statistics
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import LogUniform, MethodSpec
from samekind.nets.classifier import Classifier, split_output


@dataclass(frozen=True)
class CCLPConfig(Config):
    """Settings of CCLP; the defaults are the paper's."""

    w: NonNegative = 1.0  # weight of the clustering term; the paper has 1 for SVHN and 0.1 for CIFAR-10
    n_steps: PositiveInt = 3  # S, the largest number of steps of a random walk
    feature_norm: Positive | None = None  # length to which feature vectors are scaled for the graph; None: not scaled


class CCLP(Method):
    """Adds the compact-clustering loss of the features of a batch to the cross-entropy of the labels."""

    def __init__(self, net: Classifier, task: Task, config: CCLPConfig | None = None) -> None:
        super().__init__()
        self.config = config or CCLPConfig()
        self.w = task.unlabelled_weight * self.config.w
        self.n_classes = task.n_classes
        self.student = net

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        (x_u,), n_l = batch.x_u, len(batch.y_l)
        output = self.student(torch.cat([batch.x_l[0], x_u]))
        labelled, unlabelled = split_output(output, [n_l, len(x_u)])
        self.diagnostics = prediction_statistics(torch.softmax(unlabelled.logits.detach(), dim=-1))
        Y = F.one_hot(batch.y_l, self.n_classes).to(output.z.dtype)
        norm = self.config.feature_norm
        z = output.z if norm is None else norm * F.normalize(output.z.float(), dim=1)
        with torch.autocast(output.z.device.type, enabled=False):  # no autocast, because a matrix inverse needs full precision
            clustering = compact_clustering(z, Y, self.config.n_steps)
        return {"supervised": label_cross_entropy(labelled.logits, batch.y_l) / n_l, "clustering": self.w * clustering}

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)


SPEC = MethodSpec(
    "cclp",
    CCLP,
    CCLPConfig,
    "each class becomes one compact cluster of the features",
    paper="Kamnitsas et al. 2018, arXiv:1806.02679",
    # w: the paper has 1 and 0.1, and 0.1 suits a training that is shorter than the paper's. feature_norm: without scaling,
    # every random walk would end at the sample with the longest feature vector (docs/methods/cclp.md).
    defaults={"w": 0.1, "feature_norm": 5.5},
    search_space={"w": LogUniform(0.03, 1.0), "n_steps": (1, 3)},
)
