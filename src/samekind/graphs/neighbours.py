"""The nearest neighbours of points, found exactly and in bounded memory."""

from __future__ import annotations

import torch
from torch import Tensor

from samekind.errors import SettingError

SPARE = 8  # candidates beyond k: a product of float32 numbers may misplace near-equals, their differences do not
CELLS = 2**22  # distances held at a time


def nearest(
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
