"""Semi-supervised embedding: neighbours on a fixed graph of the inputs are drawn together, strangers are pushed apart.

Weston, Ratle & Collobert 2008, "Deep Learning via Semi-Supervised Embedding".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from samekind.data.dataset import Batch, Dataset
from samekind.errors import DataError, SettingError
from samekind.graphs.affinity import choose_n_neighbors
from samekind.graphs.nearest_neighbors import neighbors_within
from samekind.losses.cross_entropy import label_cross_entropy, label_hinge
from samekind.losses.laplacian import margin_hinge, squared_distance
from samekind.methods.base import Task, seen
from samekind.methods.fixed_graph import GraphConfig
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class SemiSupervisedEmbeddingConfig(GraphConfig):
    weight: float = 1.0  # λ, of neighbours and of strangers alike
    margin: float = 1.0  # m, how far strangers should be apart
    embed: Literal["output", "features"] = "output"  # what is drawn together: answers, or the features below them
    label_loss: Literal["hinge", "cross_entropy"] = "hinge"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weight >= 0 or not self.margin > 0:
            raise SettingError(f"weight is {self.weight} and margin is {self.margin}; expected weight from 0, margin above 0")


class SemiSupervisedEmbedding(nn.Module):
    iterative = True
    on_fixed_graph = True
    labelled_views: tuple[str, ...] = ("labelled_only",)
    unlabelled_views: tuple[str, ...] = ("labelled_only",)

    def __init__(self, net: Classifier, task: Task, config: SemiSupervisedEmbeddingConfig | None = None) -> None:
        super().__init__()
        self.config = config or SemiSupervisedEmbeddingConfig()
        self.weight = task.unlabelled_weight * self.config.weight
        self.student = net
        self.pool: Dataset | None = None
        self.neighbours = torch.empty(0, 0, dtype=torch.long)  # (n, k), found again whenever the pool is looked at
        self.observed: dict[str, Tensor] = {}

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        x, n_u, n_l = batch.x_u[0], len(batch.index), len(batch.y_l)
        z, logits = self.student(torch.cat([x, self._neighbour_of_each(batch.index).to(x), batch.x_l[0]]))
        f = torch.softmax(logits, dim=-1)
        self.observed = seen(f[:n_u].detach())
        hinge = self.config.label_loss == "hinge"
        # answers are compared as the label loss sees them: a hinge keeps outputs near -1 and 1, cross-entropy does not
        h = z if self.config.embed == "features" else logits if hinge else f
        own, near, _ = h.split([n_u, n_u, n_l])
        stranger = own.roll(n_u // 2, dims=0)  # the batch is in random order
        label_loss = label_hinge if hinge else label_cross_entropy
        return {
            "supervised": label_loss(logits[2 * n_u :], batch.y_l) / n_l,
            "neighbours": self.weight * squared_distance(own, near).mean(),
            "strangers": self.weight * margin_hinge(squared_distance(own, stranger), self.config.margin).mean(),
        }

    def after_step(self) -> None:
        """Nothing moves but the student."""

    def refresh(self, pool: Dataset) -> None:
        """Find the neighbours of every row, once and for all."""
        points = pool.inputs(slice(None)).flatten(1).to(torch.get_default_dtype())
        k = choose_n_neighbors(len(points), self.config.n_neighbors)
        self.pool, self.neighbours = pool, neighbors_within(points, k, self.config.search)[1].cpu()

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)

    def _neighbour_of_each(self, index: Tensor) -> Tensor:
        """For each of these rows of the pool one of its neighbours, drawn evenly, as it is."""
        if self.pool is None:
            raise DataError("No pool has been looked at, so no row has neighbours. Call refresh(pool) before losses().")
        rows = index.cpu()
        drawn = torch.randint(self.neighbours.shape[1], (len(rows),))
        return self.pool.inputs(self.neighbours[rows, drawn])
