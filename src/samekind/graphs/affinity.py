"""Fixed graphs of nearest neighbours: Gaussian weights with a width per sample (self-tuning), and powers of the cosine.

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

MIN_WEIGHT = 1e-8  # smallest edge weight; an outlier beside a dense cluster would otherwise have weights of 0 and no neighbour


def choose_n_neighbors(n: int, n_neighbors: int | None = None) -> int:
    """Return the number of neighbours for n samples: n_neighbors if given, else log2(n) but at least 5; at most n - 1."""
    if n < 2:
        raise DataError(f"a graph of {n} samples has no edge. Pass at least 2 samples.")
    if n_neighbors is not None and n_neighbors < 1:
        raise SettingError(f"n_neighbors is {n_neighbors}; expected at least 1. Leave it out to choose it from the data.")
    return min(n - 1, max(5, round(math.log2(n))) if n_neighbors is None else n_neighbors)


def self_tuning_graph(
    points: Tensor, k: int | None = None, *, search: Search = "exact", sharpness: float = 1.0
) -> tuple[csr_array, Tensor]:
    """Return the symmetric graph W (n, n) with zero diagonal, and the widths s (n,), the distances to the k-th neighbour.

    W_ij = exp(-sharpness ||x_i - x_j||^2 / (s_i s_j)) where i is among the k nearest of j or j among those of i, else 0.
    """
    k = choose_n_neighbors(len(points), k)
    distances, indices = neighbors_within(points, k, search)
    widths = _widths(distances)
    weights = torch.exp(sharpness * log_affinity(distances, widths[:, None], widths[indices])).clamp_min(MIN_WEIGHT)
    return _symmetric(weights, indices), widths


def cosine_graph(points: Tensor, k: int, gamma: float = 3.0) -> csr_array:
    """Return W = A + A^T (n, n), where A_ij = max(v_i.v_j, 0)^gamma if j is among the k nearest of i, else 0.

    v are the points scaled to length 1, so that cosine and distance give the same neighbours (Iscen et al. 2019). A point at
    the origin has no direction and no edges.
    """
    v = normalize(points.detach().double(), dim=1)
    k = choose_n_neighbors(len(points), k)
    distances, indices = neighbors_within(v, k)
    cosine = 1.0 - 0.5 * distances.square()
    nonzero = v.any(dim=1)
    weights = cosine.clamp_min(0.0).pow(gamma) * (nonzero[:, None] & nonzero[indices])
    A = _sparse_from_neighbors(weights, indices)
    W = csr_array(A + A.T)
    W.eliminate_zeros()
    return W


def out_of_sample_weights(
    queries: Tensor, points: Tensor, widths: Tensor, k: int, *, tolerance: float = 0.0, sharpness: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return the weights of new points to their k nearest graph points, and their indices: both (n_new, k).

    T_ij = W_ij / SUM_j W_ij with W as in `self_tuning_graph`. A point of the graph gives all its weight to itself and its
    duplicates: points within `tolerance` widths.
    """
    distances, indices = nearest_neighbors(queries, points, k + 1)
    s = _widths_of_new(distances, widths)
    distances, indices = distances[:, :k], indices[:, :k]
    same = distances <= tolerance * widths[indices]
    # softmax, because all weights of a distant point would underflow before the division by their sum
    log_W = (sharpness * log_affinity(distances, s[:, None], widths[indices])).masked_fill(same[:, :1] & ~same, -torch.inf)
    return torch.softmax(log_W, dim=1), indices


def out_of_sample_widths(queries: Tensor, points: Tensor, widths: Tensor, k: int) -> Tensor:
    """Return s (n_queries,): the distance to the k-th nearest graph point, or for a graph point itself its own width."""
    distances, _ = nearest_neighbors(queries, points, k + 1)
    return _widths_of_new(distances, widths)


def log_affinity(d: Tensor, s_i: Tensor, s_j: Tensor) -> Tensor:
    """Return ln W = -d^2 / (s_i s_j), computed as -(d / s_i) (d / s_j): the product of two tiny widths would underflow."""
    return -(d / s_i) * (d / s_j)


def _widths(distances: Tensor) -> Tensor:
    """Return the distance to the k-th neighbour; where that is 0 because of duplicates, the smallest positive one."""
    s = distances[:, -1]
    positive = s[s > 0]
    return torch.where(s > 0, s, positive.min() if len(positive) else torch.ones_like(s))


def _widths_of_new(distances: Tensor, widths: Tensor) -> Tensor:
    """Return the width of each new point from the distances to its k + 1 nearest graph points.

    The width is the distance to the k-th nearest graph point, without counting a graph point that equals the new point.
    """
    s = torch.where(distances[:, 0] == 0, distances[:, -1], distances[:, -2])
    return torch.where(s > 0, s, widths.min())


def _symmetric(weights: Tensor, indices: Tensor) -> csr_array:
    """Return the matrix of max(W_ij, W_ji), from the edges (n, k) of each sample to its neighbours."""
    W = _sparse_from_neighbors(weights, indices)
    return csr_array(W.maximum(W.T))


def _sparse_from_neighbors(weights: Tensor, indices: Tensor) -> csr_array:
    """Return the sparse matrix (n, n) with the edges (n, k) of each sample."""
    n, k = indices.shape
    starts = torch.arange(0, n * k + 1, k)
    parts = (weights.double().flatten(), indices.flatten(), starts)
    return csr_array(tuple(part.cpu().numpy() for part in parts), shape=(n, n))
