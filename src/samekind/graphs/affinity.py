"""Graphs of nearest neighbours, whose edge weights come from distances (self-tuning) or from powers of the cosine.

Zelnik-Manor & Perona 2004, "Self-Tuning Spectral Clustering"; Iscen et al. 2019, arXiv:1904.04717.
"""

from __future__ import annotations

import math

import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import normalize

from samekind.errors import DataError, SettingError
from samekind.graphs.nearest_neighbors import Search, nearest_neighbors, neighbors_within

# smallest edge weight; without it, all edges of an outlier beside a dense cluster would underflow to weight 0
MIN_WEIGHT = 1e-8


def choose_n_neighbors(n: int, n_neighbors: int | None = None) -> int:
    """Return the number of neighbours in a graph of n samples: `n_neighbors`, or if it is None log2(n), but at least 5.

    The result is at most n - 1.
    """
    if n < 2:
        raise DataError(f"a graph needs at least 2 samples, but X has {n}. Pass more samples.")
    if n_neighbors is not None and n_neighbors < 1:
        raise SettingError(f"n_neighbors is {n_neighbors}; expected at least 1. Leave it out to choose it from the data.")
    return min(n - 1, max(5, round(math.log2(n))) if n_neighbors is None else n_neighbors)


def self_tuning_graph(
    points: Tensor, k: int | None = None, *, search: Search = "exact", sharpness: float = 1.0
) -> tuple[csr_array, Tensor]:
    """Return the symmetric edge weights W (n, n), and the widths s (n,): the distance of each point to its k-th neighbour.

    W_ij = exp(-sharpness ||x_i - x_j||^2 / (s_i s_j)) if i is among the k nearest of j or j among those of i, else 0. W_ii is
    0.
    """
    k = choose_n_neighbors(len(points), k)
    distances, indices = neighbors_within(points, k, search)
    widths = _widths(distances)
    weights = torch.exp(sharpness * log_affinity(distances, widths[:, None], widths[indices])).clamp_min(MIN_WEIGHT)
    return _symmetric(weights, indices), widths


def cosine_graph(points: Tensor, k: int, gamma: float = 3.0) -> csr_array:
    """Return the edge weights W = A + A^T (n, n), where A_ij = max(v_i.v_j, 0)^gamma if j is among the k nearest of i, else 0.

    v are the points scaled to length 1, so the nearest neighbours by cosine and by distance are the same. A point at the origin
    has no direction, and so no edges. The graph is that of Iscen et al. 2019.
    """
    v = normalize(points.detach().double(), dim=1)
    k = choose_n_neighbors(len(points), k)
    distances, indices = neighbors_within(v, k)
    cosine = 1.0 - 0.5 * distances.square()
    nonzero = v.any(dim=1)
    weights = cosine.clamp_min(0.0).pow(gamma) * (nonzero[:, None] & nonzero[indices])
    return graph_from_neighbors(weights, indices)


def graph_from_neighbors(weights: Tensor, indices: Tensor) -> csr_array:
    """Return the edge weights W = A + A^T (n, n), from the weights and indices (n, k) of each sample's neighbours."""
    A = _sparse_from_neighbors(weights, indices)
    W = csr_array(A + A.T)
    W.eliminate_zeros()
    return W


def cosine_neighbors(queries: Tensor, points: Tensor, k: int, *, exclude_self: bool = False) -> tuple[Tensor, Tensor]:
    """Return the cosines and the indices (n_queries, k) of the k points with the largest cosine to each query, largest first.

    Queries and points must have length 1. With `exclude_self`, the queries are the points themselves, and query i does not find
    point i. All cosines are in memory at once, and are rounded like a matrix product: this is for a few thousand points.
    """
    cosines = queries @ points.T
    if exclude_self:
        cosines.fill_diagonal_(-torch.inf)
    largest = cosines.topk(k, dim=1)
    return largest.values, largest.indices


def out_of_sample_weights(
    queries: Tensor, points: Tensor, widths: Tensor, k: int, *, tolerance: float = 0.0, sharpness: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return the weights of new points to their k nearest points of the graph, and the indices of these; both (n_new, k).

    The weights of a new point i are W_ij with W as in `self_tuning_graph`, divided by their sum. A new point that equals points
    of the graph, within `tolerance` times their width, gives all its weight to these points.
    """
    distances, indices = nearest_neighbors(queries, points, k + 1)
    s = _widths_of_new(distances, widths)
    distances, indices = distances[:, :k], indices[:, :k]
    same = distances <= tolerance * widths[indices]
    # softmax, because all weights of a far point would underflow to 0 before they are divided by their sum
    log_W = (sharpness * log_affinity(distances, s[:, None], widths[indices])).masked_fill(same[:, :1] & ~same, -torch.inf)
    return torch.softmax(log_W, dim=1), indices


def out_of_sample_widths(queries: Tensor, points: Tensor, widths: Tensor, k: int) -> Tensor:
    """Return the widths s (n_queries,): the distance to the k-th nearest point of the graph.

    A query that is itself a point of the graph gets the width that this point has in the graph.
    """
    distances, _ = nearest_neighbors(queries, points, k + 1)
    return _widths_of_new(distances, widths)


def log_affinity(d: Tensor, s_i: Tensor, s_j: Tensor) -> Tensor:
    """Return ln W = -d^2 / (s_i s_j) for distances d and widths s, as -(d / s_i) (d / s_j).

    The product s_i s_j of two tiny widths would underflow to 0.
    """
    return -(d / s_i) * (d / s_j)


def _widths(distances: Tensor) -> Tensor:
    """Return the widths (n,), the distances to the k-th neighbour, from the sorted distances (n, k) to the neighbours.

    Where duplicates make this distance 0, it is replaced by the smallest positive one.
    """
    s = distances[:, -1]
    positive = s[s > 0]
    return torch.where(s > 0, s, positive.min() if len(positive) else torch.ones_like(s))


def _widths_of_new(distances: Tensor, widths: Tensor) -> Tensor:
    """Return the width of each new point from the distances to its k + 1 nearest points of the graph.

    The width is the distance to the k-th nearest point of the graph, not counting a point that equals the new one.
    """
    s = torch.where(distances[:, 0] == 0, distances[:, -1], distances[:, -2])
    return torch.where(s > 0, s, widths.min())


def _symmetric(weights: Tensor, indices: Tensor) -> csr_array:
    """Return the sparse matrix of max(W_ij, W_ji), from the weights and indices (n, k) of each sample's neighbours."""
    W = _sparse_from_neighbors(weights, indices)
    return csr_array(W.maximum(W.T))


def _sparse_from_neighbors(weights: Tensor, indices: Tensor) -> csr_array:
    """Return the sparse matrix (n, n) with the weights (n, k) of the edges from each sample to its neighbours."""
    n, k = indices.shape
    starts = torch.arange(0, n * k + 1, k)
    parts = (weights.double().flatten(), indices.flatten(), starts)
    return csr_array(tuple(part.cpu().numpy() for part in parts), shape=(n, n))
