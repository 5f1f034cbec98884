"""Bank of features for label propagation during training: those of all labelled and of the most recent unlabelled samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from samekind.data.dataset import UNLABELLED
from samekind.graphs.affinity import cosine_neighbors, graph_from_neighbors
from samekind.graphs.propagation import local_global_consistency

TOLERANCE = 1e-3  # relative tolerance of the linear solver; pseudo-labels need no higher precision
# function that returns the weights (n, k) of the edges from samples with features (n, d) to their neighbours with features
# (n, k, d), given their cosines (n, k)
EdgeWeights = Callable[[Tensor, Tensor, Tensor], Tensor]


class Neighbors(NamedTuple):
    """Nearest samples of the graph: features (n, k, d), propagated class probabilities (n, k, C) and edge weights (n, k)."""

    z: Tensor
    F: Tensor
    weights: Tensor

    def mean_F(self) -> Tensor:
        """Return the weighted mean (n, C) of the neighbours' class probabilities."""
        return torch.einsum("nk,nkc->nc", self.weights / self.weights.sum(1, keepdim=True), self.F)


class PropagationBank(nn.Module):
    """Memory of features, and the graph of the last label propagation over them.

    Each labelled sample has its own slot. Unlabelled samples share `length` slots, in which a new sample replaces the oldest
    one. The graph holds a copy of the features at the last propagation, `graph_z` (n, d), and the class probabilities `graph_F`
    (n, C) that the propagation gave them; n is `graph_size`.
    """

    labelled_z: Tensor
    labelled_y: Tensor
    n_labelled_stored: Tensor
    recent_z: Tensor
    n_stored: Tensor
    graph_z: Tensor
    graph_F: Tensor
    graph_size: Tensor

    def __init__(self, length: int, n_labelled: int, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("labelled_z", torch.zeros(n_labelled, n_features))
        self.register_buffer("labelled_y", torch.full((n_labelled,), UNLABELLED))
        self.register_buffer("n_labelled_stored", torch.zeros((), dtype=torch.long))
        self.register_buffer("recent_z", torch.zeros(length, n_features))
        self.register_buffer("n_stored", torch.zeros((), dtype=torch.long))
        self.register_buffer("graph_z", torch.zeros(n_labelled + length, n_features))
        self.register_buffer("graph_F", torch.zeros(n_labelled + length, n_classes))
        self.register_buffer("graph_size", torch.zeros((), dtype=torch.long))

    def oldest_labelled(self, n: int) -> Tensor:
        """Return the slots of the n labelled samples whose features are the oldest, or have not been stored yet."""
        n_slots = len(self.labelled_y)
        return (int(self.n_labelled_stored) + torch.arange(min(n, n_slots))) % n_slots

    def store_labelled(self, slots: Tensor, z: Tensor, y: Tensor) -> None:
        """Store the features z (n, d) and the classes y (n,) of labelled samples, in place of their older features."""
        self.labelled_z[slots], self.labelled_y[slots] = z.to(self.labelled_z), y.to(self.labelled_y)
        self.n_labelled_stored += len(slots)

    def store_unlabelled(self, z: Tensor) -> None:
        """Store the features z (n, d) of unlabelled samples in place of the oldest ones."""
        length = len(self.recent_z)
        slots = (int(self.n_stored) + torch.arange(len(z), device=z.device))[-length:] % length
        self.recent_z[slots] = z[-length:].to(self.recent_z)
        self.n_stored += len(z)

    def propagate(self, n_neighbors: int, alpha: float, weigh: EdgeWeights) -> None:
        """Propagate the labels by local and global consistency over a new graph of all stored samples.

        Nothing changes as long as no label or too few samples are stored.
        """
        known = self.labelled_y != UNLABELLED
        recent = self.recent_z[: min(int(self.n_stored), len(self.recent_z))]
        z, n_known = torch.cat([self.labelled_z[known], recent]), int(known.sum())
        if not n_known or len(z) <= n_neighbors:
            return
        y = torch.full((len(z),), UNLABELLED)
        y[:n_known] = self.labelled_y[known]
        v = normalize(z, dim=1)
        cosines, indices = cosine_neighbors(v, v, n_neighbors, exclude_self=True)
        W = graph_from_neighbors(weigh(z, z[indices], cosines), indices)
        F = local_global_consistency(W, y.numpy(), self.graph_F.shape[1], alpha, dense_up_to=0, tolerance=TOLERANCE)
        self.graph_z[: len(z)], self.graph_F[: len(z)] = z, torch.from_numpy(F).to(self.graph_F)
        self.graph_size.fill_(len(z))

    def neighbors(self, z: Tensor, n_neighbors: int, weigh: EdgeWeights) -> Neighbors | None:
        """Return the samples of the graph that are nearest by cosine to samples with features z (n, d).

        The result is None before the first propagation.
        """
        size = int(self.graph_size)
        if not size:
            return None
        points = self.graph_z[:size]
        cosines, indices = cosine_neighbors(normalize(z.to(points), dim=1), normalize(points, dim=1), n_neighbors)
        found = points[indices]
        return Neighbors(found, self.graph_F[indices], weigh(z, found, cosines))

    def random_samples(self, n: int, k: int) -> tuple[Tensor, Tensor]:
        """Return the features (n, k, d) and the class probabilities (n, k, C) of random samples of the graph."""
        indices = torch.randint(int(self.graph_size), (n, k), device=self.graph_z.device)
        return self.graph_z[indices], self.graph_F[indices]
