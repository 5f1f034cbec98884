"""CCLP: each class becomes one compact cluster, by a graph that is built, and its labels propagated, in every batch.

Kamnitsas et al. 2018, "Semi-Supervised Learning via Compact Latent Space Clustering", arXiv:1806.02679.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.data.dataset import Batch, Dataset
from samekind.errors import SettingError
from samekind.losses.clustering import compact_clustering
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.methods.base import Task, seen
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier, split_output


@dataclass(frozen=True)
class CCLPConfig:
    w: float = 1.0  # weight of the clustering term; 1 for SVHN, 0.1 for CIFAR-10
    n_steps: int = 3  # S, the most hops of a walk
    length: float | None = None  # that features are brought to before they make a graph; None: as they come

    def __post_init__(self) -> None:
        if self.n_steps < 1:
            raise SettingError(f"n_steps is {self.n_steps}; expected a whole number of hops, 1 or more")
        if self.length is not None and not self.length > 0:
            raise SettingError(f"length is {self.length}; expected a number above 0, or None for features as they come")


# Of the paper's two weights the one that short runs bear. Features of our nets are so long that every hop would end at the
# longest row of the batch; see docs/methods/cclp.md.
RECIPE = {"w": 0.1, "length": 5.5}


class CCLP(nn.Module):
    iterative = True
    labelled_views: tuple[str, ...] = ("weak",)
    unlabelled_views: tuple[str, ...] = ("weak",)

    def __init__(self, net: Classifier, task: Task, config: CCLPConfig | None = None) -> None:
        super().__init__()
        self.config = config or CCLPConfig()
        self.w = task.unlabelled_weight * self.config.w
        self.n_classes = task.n_classes
        self.student = net
        self.observed: dict[str, Tensor] = {}

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        (x_u,), n_l = batch.x_u, len(batch.y_l)
        output = self.student(torch.cat([batch.x_l[0], x_u]))
        labelled, unlabelled = split_output(output, [n_l, len(x_u)])
        self.observed = seen(torch.softmax(unlabelled.logits.detach(), dim=-1))
        Y = F.one_hot(batch.y_l, self.n_classes).to(output.z.dtype)
        length = self.config.length
        z = output.z if length is None else length * F.normalize(output.z.float(), dim=1)
        with torch.autocast(output.z.device.type, enabled=False):  # an inverse wants all digits
            clustering = compact_clustering(z, Y, self.config.n_steps)
        return {"supervised": label_cross_entropy(labelled.logits, batch.y_l) / n_l, "clustering": self.w * clustering}

    def after_step(self) -> None:
        """Nothing moves but the student."""

    def refresh(self, pool: Dataset) -> None:
        """The pool is not looked at."""

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)
