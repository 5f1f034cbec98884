"""Nearest neighbours: exact in bounded memory, or approximate by k-means cells for very many points.

scikit-learn and faiss are not used, for two reasons: duplicates must have a distance of exactly 0 and ties a fixed order,
also where float32 products round; and faiss would be one more compiled dependency for a search that is run once per fit.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from samekind.errors import SettingError

EXTRA = 8  # candidates beyond k, because a float32 matrix product may swap almost equal distances
MAX_DISTANCES = 2**22  # distances in memory at a time
ANN_FROM = 20_000  # number of points from which on the approximate search is faster
N_PROBES = 32  # the neighbours of a point are searched in this many cells: its own and those nearest to it
N_COMPONENTS = 64  # dimensions to which wide points are reduced in the search for candidates
N_SAMPLED = 10_000  # points from which components and cells are computed
CACHE_SIZE = 2**18  # numbers that fit in the CPU cache
KMEANS_STEPS = 8
Search = Literal["auto", "exact", "ann"]


def neighbors_within(points: Tensor, k: int, search: Search = "auto") -> tuple[Tensor, Tensor]:
    """Return the distances and indices (n, k) of the k nearest other points of each point.

    "exact" compares all pairs. "ann" compares each point with the points of the nearest cells only, so it may miss a neighbour;
    the distances that it returns are exact. "auto" is "ann" for 20,000 points and more.
    """
    if search == "ann" or (search == "auto" and len(points) >= ANN_FROM):
        return _approximate(points.detach(), k)
    return nearest_neighbors(points, points, k, exclude_self=True)


def _approximate(points: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return approximate neighbours: the points of a cell are compared with those of the nearest N_PROBES of sqrt(n) cells.

    The comparison uses the reduced points. The 2 k + 2 EXTRA best candidates are then sorted by their exact distances.
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
        others = torch.cat([members[c] for c in near[:n_cells].tolist()])  # `near` begins with the cell itself
        others_T = reduced[others].T
        size = max(1, MAX_DISTANCES // len(others))
        for start in range(0, len(own), size):
            queries = own[start : start + size]
            # squared distances without the norm of the query, which does not change their order
            d2 = torch.addmm(norms[others], reduced[queries], others_T, alpha=-2.0)
            d2.diagonal(start).fill_(torch.inf)
            candidates = others[d2.topk(n_candidates, dim=1, largest=False).indices].sort(dim=1).values
            distances[queries], indices[queries] = _sort_candidates(points, queries, candidates, k)
    return distances, indices


def _reduce(points: Tensor) -> Tensor:
    """Return reduced points (n, <= 65) whose distances are close to the exact ones, and not larger except for rounding.

    They are the N_COMPONENTS coordinates of largest variance, and the length of the remainder.
    """
    generator = torch.Generator().manual_seed(0)
    sample = points[torch.randperm(len(points), generator=generator)[:N_SAMPLED].to(points.device)]
    # center the points, because float32 loses digits far from the origin; by the median, because outliers move the mean
    origin = sample.median(dim=0).values
    centered, d = (points - origin).float(), points.shape[1]
    if d <= N_COMPONENTS:
        return centered
    centered_sample = (sample - origin).float()
    V = torch.randn(d, N_COMPONENTS, generator=generator).to(points.device)
    for _ in range(3):  # subspace iteration: three steps come close enough to the largest components
        V = torch.linalg.qr(centered_sample.T @ (centered_sample @ V)).Q
    projected = centered @ V
    remainder = (centered.square().sum(1) - projected.square().sum(1)).clamp_min(0.0).sqrt()
    return torch.cat([projected, remainder[:, None]], dim=1)


def _kmeans_cells(reduced: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """Return the k-means cell (n,) of each point, and for each cell all cells (m, m) by distance, the cell itself first."""
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
    """Return the k nearest of the candidates (m, c) of each query point (m,), sorted by their exact distances."""
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
    """Return the distances and indices (n_queries, k) of the k nearest points, nearest first.

    Ties are sorted by index, except that any of the points tied at the k-th place may be taken. With `exclude_self` the
    queries are the points, and query i excludes point i but not its duplicates. `block` queries are processed at a time, by
    default as many as keep memory within 2^22 distances. No gradient flows.
    """
    n = len(points)
    _require_enough(k, n - exclude_self)
    queries, points = queries.detach(), points.detach()
    # center the points: products of coordinates far from the origin would lose digits
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
    """Return the k nearest candidates by float64 norms of differences, so that duplicates have a distance of exactly 0."""
    # one candidate at a time: all at once would hold n_candidates copies of the queries
    wide = queries.double()
    distances = torch.stack([torch.linalg.vector_norm(wide - points[c], dim=1) for c in candidates.T], dim=1)
    distances, order = distances.sort(dim=1, stable=True)
    return distances[:, :k], candidates.gather(1, order)[:, :k]


def _require_enough(k: int, n: int) -> None:
    if not 1 <= k <= n:
        raise SettingError(f"{k} neighbours were requested, but there are {n} other points. Choose 1 to {n}, or add points.")
