"""The static graph: each point tied to its nearest neighbours by Gaussian weights that tune their own width.

Zelnik-Manor & Perona 2004, "Self-Tuning Spectral Clustering".
"""

from __future__ import annotations

import math

import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import normalize

from samekind.errors import DataError, SettingError
from samekind.graphs.nearest_neighbors import Search, nearest_neighbors, neighbors_within

WEAKEST = 1e-8  # of the graph's edges: an outlier beside a dense crowd would have weights that are all 0, and no neighbour


def choose_n_neighbors(n: int, wanted: int | None = None) -> int:
    """k for n points: what is wanted, else log2(n) but at least 5 (8 for 200, 16 for 60 000); never more than n - 1."""
    if n < 2:
        raise DataError(f"A graph of {n} points has no edge. Give at least 2 points.")
    if wanted is not None and wanted < 1:
        raise SettingError(f"n_neighbors is {wanted}; expected at least 1. Leave it out to have it chosen from the data.")
    return min(n - 1, max(5, round(math.log2(n))) if wanted is None else wanted)


def self_tuning_graph(
    points: Tensor, k: int | None = None, *, search: Search = "exact", sharpness: float = 1.0
) -> tuple[csr_array, Tensor]:
    """W (n, n) symmetric with zero diagonal, and the widths s (n,).

    W_ij = exp(-sharpness ||x_i - x_j||^2 / (s_i s_j)) where i is among the k nearest of j or j among those of i, else 0.
    """
    k = choose_n_neighbors(len(points), k)
    distances, indices = neighbors_within(points, k, search)
    widths = _widths(distances)
    weights = torch.exp(sharpness * log_affinity(distances, widths[:, None], widths[indices])).clamp_min(WEAKEST)
    return _symmetric(weights, indices), widths


def cosine_graph(points: Tensor, k: int, gamma: float = 3.0) -> csr_array:
    """W = A + A^T (n, n), zero diagonal, A_ij = max(v_i.v_j, 0)^gamma where j is among the k nearest of i, else 0.

    v are the points scaled to length 1 (Iscen et al. 2019); by angle and by distance they have the same neighbours. A point
    at the origin has no direction, and is tied to nobody.
    """
    v = normalize(points.detach().double(), dim=1)
    k = choose_n_neighbors(len(points), k)
    distances, indices = neighbors_within(v, k)
    cosine = 1.0 - 0.5 * distances.square()
    somewhere = v.any(dim=1)
    weights = cosine.clamp_min(0.0).pow(gamma) * (somewhere[:, None] & somewhere[indices])
    A = _from_rows(weights, indices)
    W = csr_array(A + A.T)
    W.eliminate_zeros()
    return W


def out_of_sample_weights(queries: Tensor, points: Tensor, widths: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Weights of new points to their k nearest graph points, rows summing to one, and the indices: both (n_new, k).

    T_ij = W_ij / SUM_j W_ij with the graph's own formula. A point of the graph gives all its weight to itself, shared with
    its duplicates.
    """
    distances, indices = nearest_neighbors(queries, points, k + 1)
    s = _widths_of_new(distances, widths)
    distances, indices = distances[:, :k], indices[:, :k]
    known = distances[:, :1] == 0
    # a softmax, as all weights of a far point would underflow before they are divided by their sum
    log_W = log_affinity(distances, s[:, None], widths[indices]).masked_fill(known & (distances > 0), -torch.inf)
    return torch.softmax(log_W, dim=1), indices


def out_of_sample_widths(queries: Tensor, points: Tensor, widths: Tensor, k: int) -> Tensor:
    """s (n_queries,): the distance of anything to its k-th nearest graph point; a graph point finds its own width again."""
    distances, _ = nearest_neighbors(queries, points, k + 1)
    return _widths_of_new(distances, widths)


def log_affinity(d: Tensor, s_i: Tensor, s_j: Tensor) -> Tensor:
    """ln W = -d^2 / (s_i s_j), divided before multiplied: the product of two tiny widths would underflow."""
    return -(d / s_i) * (d / s_j)


def _widths(distances: Tensor) -> Tensor:
    """The distance to the k-th neighbour; inside a heap of duplicates, where that is 0, the smallest that is not."""
    s = distances[:, -1]
    positive = s[s > 0]
    return torch.where(s > 0, s, positive.min() if len(positive) else torch.ones_like(s))


def _widths_of_new(distances: Tensor, widths: Tensor) -> Tensor:
    """Widths from the distances to the k + 1 nearest, as in `_widths`: a graph point does not count itself."""
    s = torch.where(distances[:, 0] == 0, distances[:, -1], distances[:, -2])
    return torch.where(s > 0, s, widths.min())


def _symmetric(weights: Tensor, indices: Tensor) -> csr_array:
    """The larger of W_ij and W_ji from the rows' own edges (n, k)."""
    W = _from_rows(weights, indices)
    return csr_array(W.maximum(W.T))


def _from_rows(weights: Tensor, indices: Tensor) -> csr_array:
    """(n, n) with the edges (n, k) of each row."""
    n, k = indices.shape
    starts = torch.arange(0, n * k + 1, k)
    parts = (weights.double().flatten(), indices.flatten(), starts)
    return csr_array(tuple(part.cpu().numpy() for part in parts), shape=(n, n))
