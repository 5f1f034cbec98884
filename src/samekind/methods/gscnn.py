"""GSCNN: matrix completion predicts the missing labels, and a triplet loss on all labels trains the features.

Taherkhani, Kazemi & Nasrabadi 2019, "Matrix Completion for Graph-Based Deep Semi-Supervised Learning". The authors published no
code, so this is our implementation, and all settings are ours; docs/methods/gscnn.md says which steps are the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from samekind.config import Config, FractionBelowOne, NonNegative, Positive, PositiveInt
from samekind.data.dataset import UNLABELLED, Batch, Dataset
from samekind.graphs.matrix_completion import complete_labels
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.triplet import sample_triplets, triplet_loss
from samekind.methods.base import Method, Task, prediction_statistics
from samekind.methods.full_pass import PassPlan, dataset_features
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import LogUniform, MethodSpec
from samekind.nets.classifier import Classifier, split_output


@dataclass(frozen=True)
class GSCNNConfig(Config):
    """Settings of GSCNN. The paper gives none, so all defaults are ours."""

    weight: NonNegative = 1.0  # weight of the triplet loss
    margin: NonNegative = 0.2  # margin of the triplet loss, which compares squared distances on the unit sphere
    label_weight: Positive = 4.0  # weight of a known label in the matrix to complete; a feature has weight 1
    block_size: PositiveInt = 2000  # number of unlabelled samples in one matrix; each matrix has all labelled samples too
    # fraction of training before the first completion; 0 if the net is already trained on the labels
    start: FractionBelowOne = 0.2
    refresh_epochs: Positive = 1.0  # epochs between two completions of the labels


class GSCNN(Method):
    """Adds a triplet loss on completed labels to the cross-entropy of the labels.

    `completed` (n_samples,) stores the class of every sample after the last completion; before the first, all are UNLABELLED.
    """

    completed: Tensor
    step: Tensor

    def __init__(self, net: Classifier, task: Task, config: GSCNNConfig | None = None) -> None:
        super().__init__()
        self.config = config or GSCNNConfig()
        self.weight = task.unlabelled_weight * self.config.weight
        self.first_step = math.ceil(self.config.start * task.steps)
        self.passes = PassPlan.of(self.config.start, self.config.refresh_epochs, task)
        self.refresh_every = self.passes.interval(task.steps)
        self.student = net
        self.register_buffer("completed", torch.full((task.n_samples,), UNLABELLED))
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        (x_u,), n_l = batch.x_u, len(batch.y_l)
        output = self.student(torch.cat([x_u, batch.x_l[0]]))
        unlabelled, labelled = split_output(output, [len(x_u), n_l])
        self.diagnostics = prediction_statistics(torch.softmax(unlabelled.logits.detach(), dim=-1))
        terms = {"supervised": label_cross_entropy(labelled.logits, batch.y_l) / n_l}
        a, p, n = sample_triplets(torch.cat([self.completed[batch.index], batch.y_l]))
        if len(a):
            terms["triplet"] = self.weight * triplet_loss(output.z, a, p, n, self.config.margin)
        return terms

    def after_step(self) -> None:
        self.step += 1

    def replan(self, step_at: Callable[[float], float]) -> None:
        self.first_step = math.ceil(step_at(self.config.start))

    def refresh(self, dataset: Dataset) -> None:
        """Complete the classes of all samples from the net's present features.

        While `start` of training has not passed, do nothing.
        """
        if int(self.step) < self.first_step:
            return
        X, y = dataset_features(self.student, dataset).double().numpy(), dataset.y.cpu().numpy()
        L, U = np.flatnonzero(y >= 0), np.flatnonzero(y < 0)
        classes = y.copy()
        n_blocks = -(-len(U) // self.config.block_size)
        for k in range(n_blocks):
            # take every n_blocks-th sample, because a dataset may be sorted by class
            block = np.concatenate([L, U[k::n_blocks]])
            classes[block] = complete_labels(X[block], y[block], dataset.n_classes, label_weight=self.config.label_weight)
        self.completed.copy_(torch.from_numpy(classes))

    def full_passes(self, steps: int) -> int:
        return self.passes.count(steps)

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)


SPEC = MethodSpec(
    "gscnn",
    GSCNN,
    GSCNNConfig,
    "labels completed as a low-rank matrix, and a triplet loss on them",
    paper="Taherkhani, Kazemi & Nasrabadi 2019",
    search_space={"weight": LogUniform(0.1, 3.0), "start": (0.2, 0.5)},
)
