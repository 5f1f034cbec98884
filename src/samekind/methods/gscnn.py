"""GSCNN: missing labels are completed as entries of a low-rank matrix, and triplets of completed labels shape the features.

Taherkhani, Kazemi & Nasrabadi 2019, "Matrix Completion for Graph-Based Deep Semi-Supervised Learning". Re-derived: no code of
the authors is public, and all settings are ours; docs/methods/gscnn.md says which steps are the paper's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from samekind.data.dataset import UNLABELLED, Batch, Dataset
from samekind.errors import SettingError
from samekind.graphs.matrix_completion import complete_labels
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.triplet import sample_triplets, triplet
from samekind.methods.base import Task, seen
from samekind.methods.full_pass import dataset_features, refresh_interval
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier, split_output


@dataclass(frozen=True)
class GSCNNConfig:
    weight: float = 1.0  # of the triplets
    margin: float = 0.2  # by which a row of another class is to be farther, features scaled to length 1
    label_weight: float = 4.0  # of a known label in the completion, a feature having 1
    block: int = 2000  # unlabelled rows that are completed at a time, beside all labelled ones
    start: float = 0.2  # share of the run before the first completion; 0 if the net has learned the labels before
    every: float = 1.0  # epochs between two completions

    def __post_init__(self) -> None:
        if not 0.0 <= self.start < 1.0:
            raise SettingError(f"start is {self.start}; expected a share from 0 to below 1")
        if not self.every > 0 or not self.label_weight > 0 or self.block < 1:
            raise SettingError(
                f"every is {self.every}, label_weight {self.label_weight} and block {self.block}; expected numbers above 0"
            )


class GSCNN(nn.Module):
    """`completed` (n_pool,) holds the class of every row; UNLABELLED throughout before the first completion."""

    iterative = True
    labelled_views: tuple[str, ...] = ("weak",)
    unlabelled_views: tuple[str, ...] = ("weak",)
    completed: Tensor
    step: Tensor

    def __init__(self, net: Classifier, task: Task, config: GSCNNConfig | None = None) -> None:
        super().__init__()
        self.config = config or GSCNNConfig()
        self.weight = task.unlabelled_weight * self.config.weight
        self.first = math.ceil(self.config.start * task.steps)
        self.refresh_every = refresh_interval(self.config.every, task.n_samples / max(task.batch_unlabelled, 1), task.steps)
        self.student = net
        self.register_buffer("completed", torch.full((task.n_samples,), UNLABELLED))
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.observed: dict[str, Tensor] = {}

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        (x_u,), n_l = batch.x_u, len(batch.y_l)
        output = self.student(torch.cat([x_u, batch.x_l[0]]))
        pool, labelled = split_output(output, [len(x_u), n_l])
        self.observed = seen(torch.softmax(pool.logits.detach(), dim=-1))
        terms = {"supervised": label_cross_entropy(labelled.logits, batch.y_l) / n_l}
        a, p, n = sample_triplets(torch.cat([self.completed[batch.index], batch.y_l]))
        if len(a):
            terms["triplet"] = self.weight * triplet(output.z, a, p, n, self.config.margin)
        return terms

    def after_step(self) -> None:
        self.step += 1

    def refresh(self, pool: Dataset) -> None:
        """Once the labels have had their share of the run: every row's class, completed from the net's present features."""
        if int(self.step) < self.first:
            return
        X, y = dataset_features(self.student, pool).double().numpy(), pool.y.cpu().numpy()
        L, U = np.flatnonzero(y >= 0), np.flatnonzero(y < 0)
        kinds = y.copy()
        n_blocks = -(-len(U) // self.config.block)
        for k in range(n_blocks):
            rows = np.concatenate([L, U[k::n_blocks]])  # every n-th: a pool may be sorted by class
            kinds[rows] = complete_labels(X[rows], y[rows], pool.n_classes, label_weight=self.config.label_weight)
        self.completed.copy_(torch.from_numpy(kinds))

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)
