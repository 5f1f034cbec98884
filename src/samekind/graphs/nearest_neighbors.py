"""Nearest neighbours: exact in bounded memory, or approximate by k-means cells if there are very many points.

scikit-learn and faiss are not used, for two reasons. Duplicates must have distance exactly 0 and ties a fixed order, although
float32 products round. And faiss would be one more compiled dependency for a search that runs once per fit.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from samekind.errors import SettingError

EXTRA = 8  # number of candidates beyond k, because a float32 matrix product may swap almost equal distances
MAX_DISTANCES = 2**22  # largest number of distances in memory at a time
ANN_FROM = 20_000  # number of points from which the approximate search is faster
N_PROBES = 32  # number of cells in which the neighbours of a point are searched: its own cell and those nearest to it
N_COMPONENTS = 64  # number of dimensions to which points are reduced while candidates are searched
N_SAMPLED = 10_000  # number of points from which the components and the cells are computed
CACHE_SIZE = 2**18  # number of float values that fit into the CPU cache
KMEANS_STEPS = 8
Search = Literal["auto", "exact", "ann"]


def neighbors_within(points: Tensor, k: int, search: Search = "auto") -> tuple[Tensor, Tensor]:
    """Return the distances and the indices (n, k) of the k nearest other points of each point.

    "exact" compares all pairs. "ann" compares each point only with the points in the nearest cells, so it may miss a neighbour;
    the distances that it returns are exact. "auto" is "ann" for 20,000 points or more, and else "exact".
    """
    if search == "ann" or (search == "auto" and len(points) >= ANN_FROM):
        return _approximate(points.detach(), k)
    return nearest_neighbors(points, points, k, exclude_self=True)


def _approximate(points: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return approximate neighbours: the distances and the indices (n, k).

    The points are divided into sqrt(n) cells. The points of a cell are compared, in reduced dimensions, with the points of the
    nearest N_PROBES cells. The best 2 k + 2 EXTRA candidates of each point are then sorted by their exact distances.
    """
    n = len(points)
    _require_enough(k, n - 1)
    reduced = _reduce(points)
    cell, neighbor_cells = _kmeans_cells(reduced, round(n**0.5))
    by_cell, counts = cell.argsort(stable=True), cell.bincount(minlength=len(neighbor_cells))
    members = torch.split(by_cell, counts.tolist())
    norms, n_candidates = reduced.square().sum(1), min(2 * k + 2 * EXTRA, n - 1)
    distances, indices = points.new_empty((n, k)), by_cell.new_empty((n, k))
    for own, near in zip(members, neighbor_cells, strict=True):
        if len(own) == 0:
            continue
        n_cells = max(N_PROBES, 1 + int((counts[near].cumsum(0) <= n_candidates).sum()))
        # `near` lists the cells by distance and begins with the cell itself
        others = torch.cat([members[c] for c in near[:n_cells].tolist()])
        others_T = reduced[others].T
        size = max(1, MAX_DISTANCES // len(others))
        for start in range(0, len(own), size):
            queries = own[start : start + size]
            # squared distances without the squared norm of the query point, which does not change their order
            d2 = torch.addmm(norms[others], reduced[queries], others_T, alpha=-2.0)
            d2.diagonal(start).fill_(torch.inf)
            candidates = others[d2.topk(n_candidates, dim=1, largest=False).indices].sort(dim=1).values
            distances[queries], indices[queries] = _sort_candidates(points, queries, candidates, k)
    return distances, indices


def _reduce(points: Tensor) -> Tensor:
    """Return points (n, at most 65) whose distances are close to the exact distances, and never larger, except by rounding.

    The new coordinates are the N_COMPONENTS directions of largest variance, and the length of the part of each point outside
    these directions.
    """
    generator = torch.Generator().manual_seed(0)
    sample = points[torch.randperm(len(points), generator=generator)[:N_SAMPLED].to(points.device)]
    # Move the center of the points to 0, because float32 loses digits far from 0. The center is the median, because outliers
    # move the mean.
    origin = sample.median(dim=0).values
    centered, d = (points - origin).float(), points.shape[1]
    if d <= N_COMPONENTS:
        return centered
    centered_sample = (sample - origin).float()
    V = torch.randn(d, N_COMPONENTS, generator=generator).to(points.device)
    for _ in range(3):  # subspace iteration: after three steps, V is close enough to the directions of largest variance
        V = torch.linalg.qr(centered_sample.T @ (centered_sample @ V)).Q
    projected = centered @ V
    remainder = (centered.square().sum(1) - projected.square().sum(1)).clamp_min(0.0).sqrt()
    return torch.cat([projected, remainder[:, None]], dim=1)


def _kmeans_cells(reduced: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """Return the number of the k-means cell (n,) of each of n points, and for each of m cells the numbers of all cells (m, m).

    The numbers of the cells are sorted by distance; each row begins with the cell itself.
    """
    chosen = torch.randperm(len(reduced), generator=torch.Generator().manual_seed(1)).to(reduced.device)
    centers, sample = reduced[chosen[:m]].clone(), reduced[chosen[: max(N_SAMPLED, 32 * m)]]
    for _ in range(KMEANS_STEPS):
        cell = _closest(sample, centers)
        counts = cell.bincount(minlength=m)
        means = torch.zeros_like(centers).index_add_(0, cell, sample) / counts.clamp_min(1)[:, None]
        centers = torch.where(counts[:, None] > 0, means, centers)
    between = torch.cdist(centers, centers)
    between.fill_diagonal_(-1.0)
    return _closest(reduced, centers), between.argsort(dim=1)


def _closest(points: Tensor, centers: Tensor) -> Tensor:
    norms = centers.square().sum(1)
    blocks = torch.split(points, max(1, MAX_DISTANCES // len(centers)))
    return torch.cat([torch.addmm(norms, block, centers.T, alpha=-2.0).argmin(dim=1) for block in blocks])


def _sort_candidates(points: Tensor, queries: Tensor, candidates: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the distances and the indices of the k nearest among the candidates (m, c) of each query point, nearest first.

    `queries` (m,) and `candidates` are indices of points. The distances are exact.
    """
    size = max(1, CACHE_SIZE // (candidates.shape[1] * points.shape[1]))
    parts = [
        torch.linalg.vector_norm(points[others].sub_(points[own][:, None]), dim=2)
        for own, others in zip(torch.split(queries, size), torch.split(candidates, size), strict=True)
    ]
    distances, order = torch.cat(parts).sort(dim=1, stable=True)
    return distances[:, :k], candidates.gather(1, order)[:, :k]


def nearest_neighbors(
    queries: Tensor, points: Tensor, k: int, *, exclude_self: bool = False, block: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the distances and the indices (n_queries, k) of the k nearest points of each query, nearest first.

    Points at equal distances are sorted by index; if several points tie for the k-th place, any of them may be returned. With
    `exclude_self`, the queries are the points themselves, and query i does not find point i, but finds its duplicates. `block`
    queries are processed at a time; by default, as many as need at most 2^22 distances in memory. No gradient flows.
    """
    n = len(points)
    _require_enough(k, n - exclude_self)
    queries, points = queries.detach(), points.detach()
    # move the center of the points to 0: products of coordinates far from 0 would lose digits
    origin = points.median(dim=0).values
    centered, norms = points - origin, (points - origin).square().sum(1)
    size = block or max(1, MAX_DISTANCES // n)
    found = [(queries.new_empty((0, k), dtype=torch.float64), queries.new_empty((0, k), dtype=torch.long))]
    for start in range(0, len(queries), size):
        part = queries[start : start + size]
        shifted = part - origin
        d2 = torch.addmm(norms + shifted.square().sum(1)[:, None], shifted, centered.T, alpha=-2.0)
        if exclude_self:
            d2.diagonal(start).fill_(torch.inf)
        candidates = d2.topk(min(k + EXTRA, n - exclude_self), dim=1, largest=False).indices.sort(dim=1).values
        found.append(_sort_exactly(part, points, candidates, k))
    distances, indices = (torch.cat(parts) for parts in zip(*found, strict=True))
    return distances.to(queries.dtype), indices


def _sort_exactly(queries: Tensor, points: Tensor, candidates: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the distances and the indices of the k nearest candidates, nearest first.

    The distances are float64 norms of differences, so that duplicates have distance exactly 0.
    """
    # one candidate at a time: all at once would need n_candidates copies of the queries
    wide = queries.double()
    distances = torch.stack([torch.linalg.vector_norm(wide - points[c], dim=1) for c in candidates.T], dim=1)
    distances, order = distances.sort(dim=1, stable=True)
    return distances[:, :k], candidates.gather(1, order)[:, :k]


def _require_enough(k: int, n: int) -> None:
    if not 1 <= k <= n:
        raise SettingError(f"{k} neighbours were requested, but there are {n} other points. Choose 1 to {n}, or add points.")
