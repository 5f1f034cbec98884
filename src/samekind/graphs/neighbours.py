"""The nearest neighbours of points, found exactly and in bounded memory; of very many points nearly so, by faiss."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

from samekind.errors import SettingError

SPARE = 8  # candidates beyond k: a product of float32 numbers may misplace near-equals, their differences do not
CELLS = 2**22  # distances held at a time
ANN_FROM = 50_000  # points from which on an index of faiss is worth its building
PROBED = 32  # cells of the index that are looked through for each point
Search = Literal["auto", "exact", "ann"]


def neighbours_in_pool(points: Tensor, k: int, search: Search = "auto") -> tuple[Tensor, Tensor]:
    """Distances and indices (n, k) of the k nearest other points of each point.

    "exact" compares all pairs. "ann" asks an index of faiss for candidates, and may miss a neighbour now and then; distances
    and their order are exact. "auto" is "ann" for 50,000 points and more, if faiss is installed.
    """
    there = find_spec("faiss") is not None
    if search == "ann" and not there:
        raise SettingError(
            "search is 'ann', and faiss is not installed. Install it: pip install 'samekind[ann]', or use 'exact'."
        )
    if search == "ann" or (search == "auto" and there and len(points) >= ANN_FROM):
        return _by_index(points.detach(), k)
    return nearest(points, points, k, exclude_self=True)


def _by_index(points: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Candidates from an inverted file of sqrt(n) cells, in the order that exact distances give them."""
    import faiss

    n = len(points)
    _require_enough(k, n - 1)
    rows = (points - points.median(dim=0).values).float().cpu().contiguous().numpy()
    cells = max(1, round(n**0.5))
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(rows.shape[1]), rows.shape[1], cells)
    index.cp.min_points_per_centroid = 1  # few points make coarse cells, which is no reason to warn
    index.train(rows)
    index.add(rows)
    index.nprobe = min(cells, PROBED)
    wanted = min(k + 1 + SPARE, n)
    found = torch.from_numpy(index.search(rows, wanted)[1]).to(points.device)
    if bool((found < 0).any()):  # the cells that were looked through held too few points
        return nearest(points, points, k, exclude_self=True)
    own = torch.arange(n, device=points.device)[:, None]
    others = found[torch.arange(n, device=points.device)[:, None], (found == own).long().argsort(dim=1, stable=True)]
    candidates = others[:, : wanted - 1].sort(dim=1).values  # itself came last, or else the farthest candidate
    distances, indices = _nearest_first(points, points, candidates, k)
    return distances.to(points.dtype), indices


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
