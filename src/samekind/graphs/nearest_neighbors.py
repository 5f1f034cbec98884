"""The nearest neighbours of points, found exactly and in bounded memory; of very many points nearly so, cell by cell."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from samekind.errors import SettingError

SPARE = 8  # candidates beyond k: a product of float32 numbers may misplace near-equals, their differences do not
CELLS = 2**22  # distances held at a time
ANN_FROM = 20_000  # points from which on cells are worth their making
PROBED = 32  # cells that are looked through for the points of each
DIRECTIONS = 64  # in which wide points are seen while candidates are sought
SAMPLE = 10_000  # points that directions and cells are made from
CACHED = 2**18  # numbers that a processor keeps at hand
LLOYD = 8  # rounds of k-means
Search = Literal["auto", "exact", "ann"]


def neighbors_within(points: Tensor, k: int, search: Search = "auto") -> tuple[Tensor, Tensor]:
    """Distances and indices (n, k) of the k nearest other points of each point.

    "exact" compares all pairs. "ann" compares each point with those of the cells around its own, and may miss a neighbour
    now and then; the distances of those it finds are true to the precision of the points. "auto" is "ann" for
    20,000 points and more.
    """
    if search == "ann" or (search == "auto" and len(points) >= ANN_FROM):
        return _by_cells(points.detach(), k)
    return nearest_neighbors(points, points, k, exclude_self=True)


def _by_cells(points: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """sqrt(n) cells; the points of a cell are compared with those of the nearest PROBED cells, in few directions.

    The 2 k + 2 SPARE candidates that look nearest are then put in order by their distances in all directions.
    """
    n = len(points)
    _require_enough(k, n - 1)
    seen = _in_few_directions(points)
    cell, around = _cells(seen, round(n**0.5))
    by_cell, counts = cell.argsort(stable=True), cell.bincount(minlength=len(around))
    members = torch.split(by_cell, counts.tolist())
    norms, wanted = seen.square().sum(1), min(2 * k + 2 * SPARE, n - 1)
    distances, indices = points.new_empty((n, k)), by_cell.new_empty((n, k))
    for own, near in zip(members, around, strict=True):
        if len(own) == 0:
            continue
        enough = max(PROBED, 1 + int((counts[near].cumsum(0) <= wanted).sum()))
        others = torch.cat([members[c] for c in near[:enough].tolist()])  # its own cell comes first
        theirs = seen[others].T
        size = max(1, CELLS // len(others))
        for start in range(0, len(own), size):
            rows = own[start : start + size]
            d2 = torch.addmm(norms[others], seen[rows], theirs, alpha=-2.0)  # and a constant for each row
            d2.diagonal(start).fill_(torch.inf)
            candidates = others[d2.topk(wanted, dim=1, largest=False).indices].sort(dim=1).values
            distances[rows], indices[rows] = _nearest_of(points, rows, candidates, k)
    return distances, indices


def _in_few_directions(points: Tensor) -> Tensor:
    """Points (n, <= 65) whose distances are close to the true ones, and never above them but for rounding.

    They are the coordinates in the DIRECTIONS of largest variance, and the length of what these leave over.
    """
    generator = torch.Generator().manual_seed(0)
    sample = points[torch.randperm(len(points), generator=generator)[:SAMPLE].to(points.device)]
    origin = sample.median(dim=0).values  # far numbers lose digits, and a mean follows them
    centred, d = (points - origin).float(), points.shape[1]
    if d <= DIRECTIONS:
        return centred
    some = (sample - origin).float()
    V = torch.randn(d, DIRECTIONS, generator=generator).to(points.device)
    for _ in range(3):  # subspace iteration: enough to be near the largest, and all that is asked
        V = torch.linalg.qr(some.T @ (some @ V)).Q
    seen = centred @ V
    left = (centred.square().sum(1) - seen.square().sum(1)).clamp_min(0.0).sqrt()
    return torch.cat([seen, left[:, None]], dim=1)


def _cells(seen: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """The cell of each point (n,) by k-means, and for each of the m cells all of them, itself first, then the nearest."""
    chosen = torch.randperm(len(seen), generator=torch.Generator().manual_seed(1)).to(seen.device)
    centres, sample = seen[chosen[:m]].clone(), seen[chosen[: max(SAMPLE, 32 * m)]]
    for _ in range(LLOYD):
        cell = _closest(sample, centres)
        counts = cell.bincount(minlength=m)
        means = torch.zeros_like(centres).index_add_(0, cell, sample) / counts.clamp_min(1)[:, None]
        centres = torch.where(counts[:, None] > 0, means, centres)
    apart = torch.cdist(centres, centres)
    apart.fill_diagonal_(-1.0)
    return _closest(seen, centres), apart.argsort(dim=1)


def _closest(rows: Tensor, centres: Tensor) -> Tensor:
    norms = centres.square().sum(1)
    blocks = torch.split(rows, max(1, CELLS // len(centres)))
    return torch.cat([torch.addmm(norms, block, centres.T, alpha=-2.0).argmin(dim=1) for block in blocks])


def _nearest_of(points: Tensor, rows: Tensor, candidates: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k nearest of each row's candidates by their differences, some rows at a time."""
    size = max(1, CACHED // (candidates.shape[1] * points.shape[1]))
    parts = [
        torch.linalg.vector_norm(points[some].sub_(points[own][:, None]), dim=2)
        for own, some in zip(torch.split(rows, size), torch.split(candidates, size), strict=True)
    ]
    distances, order = torch.cat(parts).sort(dim=1, stable=True)
    return distances[:, :k], candidates.gather(1, order)[:, :k]


def nearest_neighbors(
    queries: Tensor, points: Tensor, k: int, *, exclude_self: bool = False, block: int | None = None
) -> tuple[Tensor, Tensor]:
    """Distances and indices (n_queries, k) of the k nearest points, nearest first; equals go by the smaller index,
    except that any of those equal at the k-th place may be taken.

    With `exclude_self` the queries are the points, and row i leaves out point i but not its duplicates. `block` queries are
    worked on at a time, by default as many as keep memory within 2^22 distances. No gradient flows.
    """
    n = len(points)
    _require_enough(k, n - exclude_self)
    queries, points = queries.detach(), points.detach()
    # seen from the middle, numbers are small, and the digits that far numbers share are not lost
    origin = points.median(dim=0).values
    centred, norms = points - origin, (points - origin).square().sum(1)
    size = block or max(1, CELLS // n)
    found = [(queries.new_empty((0, k), dtype=torch.float64), queries.new_empty((0, k), dtype=torch.long))]
    for start in range(0, len(queries), size):
        rows = queries[start : start + size]
        near = rows - origin
        d2 = torch.addmm(norms + near.square().sum(1)[:, None], near, centred.T, alpha=-2.0)
        if exclude_self:
            d2.diagonal(start).fill_(torch.inf)
        candidates = d2.topk(min(k + SPARE, n - exclude_self), dim=1, largest=False).indices.sort(dim=1).values
        found.append(_nearest_first(rows, points, candidates, k))
    distances, indices = (torch.cat(parts) for parts in zip(*found, strict=True))
    return distances.to(queries.dtype), indices


def _nearest_first(rows: Tensor, points: Tensor, candidates: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k nearest by distances taken from the differences, so that duplicates are exactly 0 apart."""
    # one candidate at a time: all at once would hold n_candidates copies of the rows
    wide = rows.double()
    distances = torch.stack([torch.linalg.vector_norm(wide - points[c], dim=1) for c in candidates.T], dim=1)
    distances, order = distances.sort(dim=1, stable=True)
    return distances[:, :k], candidates.gather(1, order)[:, :k]


def _require_enough(k: int, n: int) -> None:
    if not 1 <= k <= n:
        raise SettingError(f"{k} neighbours were asked for where there are {n}. Ask for 1 to {n}, or give more points.")
