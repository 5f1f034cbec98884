"""Similarity search before a model is trained: by the cosine of baseline features, over all items."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# (item, similarity, log-odds of the learned similarity or None), most similar item first
Matches = Sequence[tuple[int, float, float | None]]


def search_by_cosine(
    z: npt.NDArray[np.float32],
    ids: Sequence[int],
    not_ids: Sequence[int],
    among: npt.NDArray[np.bool_],
    k: int,
    min_similarity: float,
) -> Matches:
    """Return the k items with the largest score: mean cosine to `ids` minus mean cosine to `not_ids`.

    The rows of z (n, d) have length 1. `among` (n,) is True for the items that may be found.
    """
    query = z[list(ids)].mean(axis=0)
    if not_ids:
        query = query - z[list(not_ids)].mean(axis=0)
    cosine = np.asarray(z) @ query
    allowed = among & (cosine >= min_similarity)
    allowed[[*ids, *not_ids]] = False
    found = np.flatnonzero(allowed)
    if len(found) > k:
        found = found[np.argpartition(-cosine[found], k - 1)[:k]]
    found = found[np.argsort(-cosine[found], kind="stable")]
    return [(int(item), float(cosine[item]), None) for item in found]
