"""LPDSSL: labels are propagated over a graph of the net's own features, and the net is trained on the propagated labels.

Iscen, Tolias, Avrithis & Chum 2019, "Label Propagation for Deep Semi-supervised Learning", arXiv:1904.04717.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.config import Config, FractionBelowOne, Positive, PositiveInt
from samekind.data.dataset import UNLABELLED, Batch, Dataset
from samekind.graphs.affinity import cosine_graph
from samekind.graphs.linear_systems import Floats
from samekind.graphs.propagation import local_global_consistency
from samekind.methods.base import Method, StepCounter, Task, prediction_statistics
from samekind.methods.full_pass import PassPlan, dataset_features
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import MethodSpec, SearchSpace
from samekind.nets.classifier import Classifier, Output, split_output

TOLERANCE = 1e-6  # relative tolerance of the linear solver; the weights of pseudo-labels need no higher precision


@dataclass(frozen=True)
class LPDSSLConfig(Config):
    """Settings of LPDSSL; the defaults are the paper's."""

    n_neighbors: PositiveInt = 50  # k, neighbours of each sample in the graph
    gamma: Positive = 3.0  # γ, power to which the cosine of two feature vectors is raised
    diffusion_alpha: FractionBelowOne = 0.99  # α, fraction of a propagated label that comes from the neighbours
    start: FractionBelowOne = 0.5  # fraction of training on the labels alone; 0 if the net is already trained on them
    refresh_epochs: Positive = 1.0  # epochs between two propagations of the labels


class PropagatedLabels(StepCounter):
    """Result of the last label propagation: a pseudo-label and a certainty of every sample, and a weight of every class.

    Before the first propagation, all certainties are 0 and all class weights are 1.
    """

    label: Tensor
    certainty: Tensor
    class_weight: Tensor

    def __init__(self, task: Task, config: LPDSSLConfig) -> None:
        super().__init__()
        self.config = config
        self.unlabelled_weight = task.unlabelled_weight
        self.first_step = math.ceil(config.start * task.steps)
        self.passes = PassPlan.of(config.start, config.refresh_epochs, task)
        self.refresh_every = self.passes.interval(task.steps)
        self.register_buffer("label", torch.zeros(task.n_samples, dtype=torch.long))
        self.register_buffer("certainty", torch.zeros(task.n_samples))
        self.register_buffer("class_weight", torch.ones(task.n_classes))

    def terms(self, unlabelled: Output, labelled: Output, batch: Batch) -> dict[str, Tensor]:
        """Return the loss (1/N) SUM_i w_i zeta_{y_i} CE(f_i, y_i) over the N samples of the batch, as two terms.

        w_i is the certainty of the pseudo-label, and 1 for a labelled sample. zeta_c is the weight of class c. The first term
        sums over labelled samples, the second over unlabelled ones; it is left out before the first propagation.
        """
        label, N = self.label[batch.index], len(batch.index) + len(batch.y_l)
        supervised = self.class_weight[batch.y_l] * F.cross_entropy(labelled.logits, batch.y_l, reduction="none")
        terms = {"supervised": supervised.sum() / N}
        if int(self.step) >= self.first_step and bool(self.certainty.any()):
            w = self.unlabelled_weight * self.certainty[batch.index] * self.class_weight[label]
            terms["pseudo"] = (w * F.cross_entropy(unlabelled.logits, label, reduction="none")).sum() / N
        return terms

    def replan(self, step_at: Callable[[float], float]) -> None:
        self.first_step = math.ceil(step_at(self.config.start))

    def refresh(self, net: Classifier, dataset: Dataset) -> None:
        """Propagate the labels over a graph of the net's features. While the net is trained on labels alone, do nothing."""
        if int(self.step) < self.first_step:
            return
        n_neighbors = min(self.config.n_neighbors, len(dataset) - 1)
        W = cosine_graph(dataset_features(net, dataset), n_neighbors, self.config.gamma)
        y, alpha = dataset.y.cpu().numpy(), self.config.diffusion_alpha
        F_star = local_global_consistency(W, y, dataset.n_classes, alpha, balanced=True, tolerance=TOLERANCE)
        label = np.where(y == UNLABELLED, F_star.argmax(1), y)
        certainty = np.where(y == UNLABELLED, entropy_certainty(F_star), 1.0)
        counts = np.bincount(label, minlength=dataset.n_classes)
        self.label.copy_(torch.from_numpy(label))
        self.certainty.copy_(torch.from_numpy(certainty))
        self.class_weight.copy_(torch.from_numpy(len(y) / dataset.n_classes / np.maximum(counts, 1)))


class LPDSSL(Method):
    """Trains on the labels alone at first, and later on the propagated pseudo-labels too."""

    averages_over_batch = True

    def __init__(self, net: Classifier, task: Task, config: LPDSSLConfig | None = None) -> None:
        super().__init__()
        self.config = config or LPDSSLConfig()
        self.student = net
        self.propagated = PropagatedLabels(task, self.config)
        self.refresh_every = self.propagated.refresh_every

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        (x_u,), x_l = batch.x_u, batch.x_l[0]
        unlabelled, labelled = split_output(self.student(torch.cat([x_u, x_l])), [len(x_u), len(x_l)])
        self.diagnostics = prediction_statistics(torch.softmax(unlabelled.logits.detach(), dim=-1))
        return self.propagated.terms(unlabelled, labelled, batch)

    def after_step(self) -> None:
        self.propagated.step += 1

    def refresh(self, dataset: Dataset) -> None:
        self.propagated.refresh(self.student, dataset)

    def full_passes(self, steps: int) -> int:
        return self.propagated.passes.count(steps)

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)


def entropy_certainty(F_star: Floats) -> Floats:
    """Return the certainty w (n,) of propagated labels F (n, C): w_i = 1 - H(F_i)/ln C, divided by the largest.

    H is the entropy. All certainties are 0 if nothing was propagated.
    """
    entropy = -np.where(F_star > 0, F_star * np.log(np.maximum(F_star, np.finfo(float).tiny)), 0.0).sum(axis=1)
    w = np.clip(1.0 - entropy / math.log(max(F_star.shape[1], 2)), 0.0, 1.0)
    return np.asarray(w / max(w.max(), np.finfo(float).tiny))


# a dozen labels are learned within less than the paper's half of training, and longer training on them alone overfits
DEFAULTS = {"start": 0.3}
SEARCH_SPACE: SearchSpace = {"start": (0.3, 0.5), "n_neighbors": (20, 50)}
SPEC = MethodSpec(
    "lpdssl",
    LPDSSL,
    LPDSSLConfig,
    "labels propagated over the net's own features become pseudo-labels",
    paper="Iscen, Tolias, Avrithis & Chum 2019, arXiv:1904.04717",
    defaults=DEFAULTS,
    search_space=SEARCH_SPACE,
)
