"""Semi-supervised embedding: neighbours on a fixed graph are pulled together, and pairs of other samples are pushed apart.

Weston, Ratle & Collobert 2008, "Deep Learning via Semi-Supervised Embedding".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from samekind.config import NonNegative, Positive
from samekind.data.dataset import Batch, Dataset
from samekind.errors import DataError
from samekind.graphs.affinity import choose_n_neighbors
from samekind.graphs.nearest_neighbors import neighbors_within
from samekind.losses.cross_entropy import label_cross_entropy, label_hinge
from samekind.losses.laplacian import margin_hinge, squared_distance
from samekind.methods.base import Method, Task, prediction_statistics
from samekind.methods.fixed_graph import GraphConfig
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import MethodSpec
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class SemiSupervisedEmbeddingConfig(GraphConfig):
    """Settings of semi-supervised embedding; the defaults are the paper's."""

    weight: NonNegative = 1.0  # λ, weight of the loss of neighbours, and of the loss of non-neighbours
    margin: Positive = 1.0  # m, the distance up to which non-neighbours are pushed apart
    # which vectors are pulled together or pushed apart: the net's outputs or its features
    embed: Literal["output", "features"] = "output"
    label_loss: Literal["hinge", "cross_entropy"] = "hinge"


class SemiSupervisedEmbedding(Method):
    """Adds a loss that pulls neighbours together and pushes other pairs apart to the loss of the labels."""

    uses_fixed_graph = True
    labelled_views = ("labelled_only",)
    unlabelled_views = ("labelled_only",)

    def __init__(self, net: Classifier, task: Task, config: SemiSupervisedEmbeddingConfig | None = None) -> None:
        super().__init__()
        self.config = config or SemiSupervisedEmbeddingConfig()
        self.weight = task.unlabelled_weight * self.config.weight
        self.student = net
        self.dataset: Dataset | None = None
        # (n, k) neighbours of each sample; not in checkpoints, because `refresh` computes them again
        self.neighbors = torch.empty(0, 0, dtype=torch.long)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        x, n_u, n_l = batch.x_u[0], len(batch.index), len(batch.y_l)
        z, logits = self.student(torch.cat([x, self._random_neighbors(batch.index).to(x), batch.x_l[0]]))
        f = torch.softmax(logits, dim=-1)
        self.diagnostics = prediction_statistics(f[:n_u].detach())
        hinge = self.config.label_loss == "hinge"
        # With the hinge loss, embed logits, which this loss keeps near -1 and 1; with cross-entropy, embed probabilities.
        h = z if self.config.embed == "features" else logits if hinge else f
        own, near, _ = h.split([n_u, n_u, n_l])
        # samples at a distance of half the batch are random pairs, because the batch is in random order
        far = own.roll(n_u // 2, dims=0)
        label_loss = label_hinge if hinge else label_cross_entropy
        return {
            "supervised": label_loss(logits[2 * n_u :], batch.y_l) / n_l,
            "neighbours": self.weight * squared_distance(own, near).mean(),
            "strangers": self.weight * margin_hinge(squared_distance(own, far), self.config.margin).mean(),
        }

    def refresh(self, dataset: Dataset) -> None:
        """Find the neighbours of every sample of the dataset."""
        points = dataset.inputs(slice(None)).flatten(1).to(torch.get_default_dtype())
        k = choose_n_neighbors(len(points), self.config.n_neighbors)
        self.dataset, self.neighbors = dataset, neighbors_within(points, k, self.config.search)[1].cpu()

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)

    def _random_neighbors(self, index: Tensor) -> Tensor:
        """Return the input of one random neighbour of each sample in `index`, without augmentation."""
        if self.dataset is None:
            raise DataError("the neighbours are not known yet. Call refresh(dataset) before losses().")
        index = index.cpu()
        column = torch.randint(self.neighbors.shape[1], (len(index),))
        return self.dataset.inputs(self.neighbors[index, column])


SPEC = MethodSpec(
    "semi_supervised_embedding",
    SemiSupervisedEmbedding,
    SemiSupervisedEmbeddingConfig,
    "neighbours on a fixed graph are pulled together, other pairs pushed apart",
    paper="Weston, Ratle & Collobert 2008",
)
