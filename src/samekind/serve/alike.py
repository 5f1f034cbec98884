"""What is most alike by the learned similarity: candidates by their features, then compared by the model itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from samekind.query.alike import all_pairs
from samekind.serve.answers import Answers

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
CANDIDATES = 2048  # items that the model compares with each query
QUERIES = 16  # more are thinned out: their mean would not change much


def similar(
    model: Any, answers: Answers, ids: Sequence[int], not_ids: Sequence[int], among: npt.NDArray[np.bool_], k: int
) -> tuple[Ids, Floats, bool]:
    """(ids, similarities, whether all items were compared): the k items among `among` that are most alike.

    Of several queries the mean counts, less the mean similarity to those in `not_ids`.
    """
    wanted, unwanted = _thinned(ids), _thinned(not_ids)
    open_ones = among.copy()
    open_ones[[*ids, *not_ids]] = False
    candidates, exact = _nearest(answers.z, np.asarray(answers.z[wanted], dtype=np.float32), np.flatnonzero(open_ones))
    if not len(candidates):
        return candidates, np.empty(0, np.float32), True
    W = similarity(model, answers, wanted, candidates).mean(axis=0)
    if len(unwanted):
        W = np.clip(W - similarity(model, answers, unwanted, candidates).mean(axis=0), 0.0, 1.0)
    best = np.argsort(-W, kind="stable")[:k]
    return candidates[best], W[best], exact


def similarity(model: Any, answers: Answers, a: Ids, b: Ids) -> Floats:
    """W (len(a), len(b)) of items by the model, the mean of both directions."""
    z_a, z_b = answers.z[a], answers.z[b]
    return np.asarray((similarity_of(model, z_a, z_b) + similarity_of(model, z_b, z_a).T) / 2)


def similarity_of(model: Any, z_a: Floats, z_b: Floats) -> Floats:
    """W (n_a, n_b) of features by the model, in the given direction."""
    left, right = (torch.from_numpy(np.asarray(z)).to(model._dtype) for z in (z_a, z_b))
    with torch.inference_mode():
        return np.asarray(all_pairs(model._predictor.similarity, left, right).numpy(), dtype=np.float32)


def nearest_items(model: Any, answers: Answers, z: Floats, k: int, *, without: int | None = None) -> tuple[Ids, Floats]:
    """The k items most alike to one feature vector z (d,), most alike first."""
    open_ones = np.arange(len(answers)) if without is None else np.delete(np.arange(len(answers)), without)
    candidates, _ = _nearest(answers.z, z[None, :], open_ones)
    W = similarity_of(model, z[None, :], answers.z[candidates])[0]
    best = np.argsort(-W, kind="stable")[:k]
    return candidates[best], W[best]


def _thinned(ids: Sequence[int]) -> Ids:
    every = max(1, -(-len(ids) // QUERIES))
    return np.asarray(ids[::every], dtype=np.int64)


def _nearest(z: Floats, q: Floats, open_ones: Ids) -> tuple[Ids, bool]:
    """The nearest by features to any of the queries: | z_j - q |^2 without the part that is the same for all j."""
    if len(open_ones) <= CANDIDATES:
        return open_ones, True
    rows = z if len(open_ones) == len(z) else z[open_ones]
    rows = np.asarray(rows, dtype=np.float32)
    squares = np.einsum("nd,nd->n", rows, rows)
    distance = squares[:, None] - 2.0 * (rows @ q.T) + (q**2).sum(axis=1)
    near = np.argpartition(distance.min(axis=1), CANDIDATES)[:CANDIDATES]
    return np.sort(open_ones[near]), False
