"""What is most alike by the learned similarity: an index of all items, made once for each model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.search.index import SimilarityIndex
from samekind.server.inference.predictions import Predictions

Floats = npt.NDArray[np.float32]
Marks = npt.NDArray[np.bool_]
Pairs = list[tuple[int, float]]  # item, similarity
FEW = 2048


class Alike:
    """Answers to "what is like this?" for the items of a page."""

    by = "learned similarity"

    def __init__(self, model: Any, predictions: Predictions) -> None:
        self._model = model
        self._index: SimilarityIndex = model.index(features=np.array(predictions.z))
        self._index.search([0], 1)  # what is made at the first question is made now, before many threads ask

    def __len__(self) -> int:
        return len(self._index)

    def similar(
        self, ids: Sequence[int], not_ids: Sequence[int], among: Marks, k: int, min_sim: float = 0.0
    ) -> tuple[Pairs, bool]:
        """The k items among `among` that are most like all of `ids` and unlike `not_ids`, and whether all were looked at."""
        found = self._index.search_by_example(ids, k, not_ids=not_ids, only=among, min_sim=min_sim)
        return found.pairs(), found.exact

    def nearest(self, z: Floats, k: int, *, without: int | None = None) -> Pairs:
        """The k items most alike to one feature vector z (d,)."""
        allowed = None
        if without is not None:
            allowed = np.ones(len(self), dtype=bool)
            allowed[without] = False
        return self._index.search(self._model.model_.as_features(np.array(z[None, :])), k, only=allowed).pairs()


def similarity_of(model: Any, z_a: Floats, z_b: Floats) -> Floats:
    """W (n_a, n_b) of features."""
    return np.asarray(model.model_.similarity_from_features(np.array(z_a), np.array(z_b)), dtype=np.float32)


def nearest_of(model: Any, predictions: Predictions, item: int, among: Marks, k: int) -> Pairs:
    """The k of a few items that are most alike to one, without the index of all. Of many, the nearest by features are asked."""
    few = np.flatnonzero(among)
    few = few[few != item]
    if len(few) > FEW:
        far = ((predictions.z[few] - predictions.z[item]) ** 2).sum(axis=1)
        few = few[np.argpartition(far, FEW)[:FEW]]
    if not len(few):
        return []
    W = similarity_of(model, predictions.z[[item]], predictions.z[few])[0]
    return [(int(few[at]), float(W[at])) for at in np.argsort(-W, kind="stable")[:k]]
