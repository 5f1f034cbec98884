"""LPDSSL: the labels are spread over a graph of the net's own features, and the net learns from what arrives.

Iscen, Tolias, Avrithis & Chum 2019, "Label Propagation for Deep Semi-supervised Learning", arXiv:1904.04717. Plain, or with
the consistency term of Mean Teacher beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.data.dataset import UNLABELLED, Batch, Dataset
from samekind.errors import SettingError
from samekind.graphs.affinity import cosine_graph
from samekind.graphs.linear_systems import Floats
from samekind.graphs.propagation import local_global_consistency
from samekind.methods.base import Onlooker, Task, seen
from samekind.methods.full_pass import dataset_features, refresh_interval
from samekind.methods.predictors import DeepPredictor
from samekind.methods.wrapper import MethodWrapper
from samekind.nets.classifier import Classifier, Output, split_output


@dataclass(frozen=True)
class LPDSSLConfig:
    n_neighbors: int = 50  # k, of each row in the graph
    gamma: float = 3.0  # γ, power of the cosine of two rows
    spread: float = 0.99  # share of a row's label that comes from its neighbours
    start: float = 0.5  # share of the run on the labels alone; 0 if the net has learned them before
    every: float = 1.0  # epochs between two looks at the pool

    def __post_init__(self) -> None:
        if not 0.0 <= self.start < 1.0:
            raise SettingError(f"start is {self.start}; expected a share from 0 to below 1")
        if not 0.0 <= self.spread < 1.0:
            raise SettingError(f"spread is {self.spread}; expected a share from 0 to below 1. The paper uses 0.99.")
        if not self.every > 0 or self.n_neighbors < 1 or not self.gamma > 0:
            raise SettingError(
                f"every is {self.every}, n_neighbors {self.n_neighbors} and gamma {self.gamma}; expected numbers above 0"
            )


TOLERANCE = 1e-6  # of the solution: certainties are rounded by far more than that
RECIPE = {"start": 0.3}  # a dozen labels are learned soon, and more must not be made of them than that


class PropagatedLabels(nn.Module):
    """A class and a certainty for every row of the pool, and a weight for every class; 0, 0 and 1 until there are any."""

    label: Tensor
    certainty: Tensor
    class_weight: Tensor
    step: Tensor

    def __init__(self, task: Task, config: LPDSSLConfig) -> None:
        super().__init__()
        self.config = config
        self.unlabelled_weight = task.unlabelled_weight
        self.first = math.ceil(config.start * task.steps)
        self.every = refresh_interval(config.every, task.n_samples / max(task.batch_unlabelled, 1), task.steps)
        self.register_buffer("label", torch.zeros(task.n_samples, dtype=torch.long))
        self.register_buffer("certainty", torch.zeros(task.n_samples))
        self.register_buffer("class_weight", torch.ones(task.n_classes))
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def terms(self, pool: Output, labelled: Output, batch: Batch) -> dict[str, Tensor]:
        """(1/N) SUM_i w_i zeta_{y_i} CE(f_i, y_i) over all N rows of the batch, w = 1 and the true class where it is known."""
        label, N = self.label[batch.index], len(batch.index) + len(batch.y_l)
        of_label = self.class_weight[batch.y_l] * F.cross_entropy(labelled.logits, batch.y_l, reduction="none")
        terms = {"supervised": of_label.sum() / N}
        if int(self.step) >= self.first and bool(self.certainty.any()):
            w = self.unlabelled_weight * self.certainty[batch.index] * self.class_weight[label]
            terms["pseudo"] = (w * F.cross_entropy(pool.logits, label, reduction="none")).sum() / N
        return terms

    def refresh(self, net: Classifier, pool: Dataset) -> None:
        """Once the labels alone have had their share of the run: the graph of the pool, solved, and what follows from it."""
        if int(self.step) < self.first:
            return
        W = cosine_graph(dataset_features(net, pool), min(self.config.n_neighbors, len(pool) - 1), self.config.gamma)
        y = pool.y.cpu().numpy()
        solved = local_global_consistency(W, y, pool.n_classes, self.config.spread, balanced=True, tolerance=TOLERANCE)
        label = np.where(y == UNLABELLED, solved.argmax(1), y)
        certainty = np.where(y == UNLABELLED, entropy_certainty(solved), 1.0)
        counts = np.bincount(label, minlength=pool.n_classes)
        self.label.copy_(torch.from_numpy(label))
        self.certainty.copy_(torch.from_numpy(certainty))
        self.class_weight.copy_(torch.from_numpy(len(y) / pool.n_classes / np.maximum(counts, 1)))


class LPDSSL(nn.Module):
    """Labels, and pseudo-labels once there are any."""

    iterative = True
    labelled_views: tuple[str, ...] = ("weak",)
    unlabelled_views: tuple[str, ...] = ("weak",)

    def __init__(self, net: Classifier, task: Task, config: LPDSSLConfig | None = None) -> None:
        super().__init__()
        self.config = config or LPDSSLConfig()
        self.student = net
        self.pseudo = PropagatedLabels(task, self.config)
        self.refresh_every = self.pseudo.every
        self.observed: dict[str, Tensor] = {}

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        (x_u,), x_l = batch.x_u, batch.x_l[0]
        pool, labelled = split_output(self.student(torch.cat([x_u, x_l])), [len(x_u), len(x_l)])
        self.observed = seen(torch.softmax(pool.logits.detach(), dim=-1))
        return self.pseudo.terms(pool, labelled, batch)

    def after_step(self) -> None:
        self.pseudo.step += 1

    def refresh(self, pool: Dataset) -> None:
        self.pseudo.refresh(self.student, pool)

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)


class LPDSSLOnBase(MethodWrapper[Onlooker]):
    """The same in place of the base's supervised term; whatever else the base has stays."""

    rides_on: ClassVar[tuple[str, ...]] = ("student", "look")

    def __init__(self, base: Onlooker, task: Task, config: LPDSSLConfig | None = None) -> None:
        super().__init__(base)
        self.config = config or LPDSSLConfig()
        self.pseudo = PropagatedLabels(task, self.config)
        self.refresh_every = self.pseudo.every

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        terms = super().losses(batch, progress)
        look = self.base.look
        assert look is not None
        return {**terms, **self.pseudo.terms(look.pool, look.labelled, batch)}

    def after_step(self) -> None:
        self.pseudo.step += 1
        super().after_step()

    def refresh(self, pool: Dataset) -> None:
        super().refresh(pool)
        self.pseudo.refresh(self.student, pool)


def entropy_certainty(solved: Floats) -> Floats:
    """w (n,) = 1 - H(F_i)/ln C, divided by the largest of all; 0 throughout if nothing is known of any row."""
    entropy = -np.where(solved > 0, solved * np.log(np.maximum(solved, np.finfo(float).tiny)), 0.0).sum(axis=1)
    w = np.clip(1.0 - entropy / math.log(max(solved.shape[1], 2)), 0.0, 1.0)
    return np.asarray(w / max(w.max(), np.finfo(float).tiny))
