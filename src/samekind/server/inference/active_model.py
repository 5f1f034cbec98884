"""The active model, its predictions for all items, and the similarity search among these items."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from samekind.errors import RequestError
from samekind.server.inference.cosine_search import Matches, search_by_cosine
from samekind.server.inference.predictions import Predictions

if TYPE_CHECKING:
    from samekind.model import FittedModel
    from samekind.search.index import SimilarityIndex

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

NO_MODEL = "There is no model yet. Label a few images of two classes or more, then fit."
MAX_COMPARED = 2048  # largest number of items with which `nearest_among` compares one item


class ActiveModel:
    """The active model with its predictions, and the predictions of the model that was active before it.

    A request reads this object once, so that its results belong to one model even if another is activated meanwhile. The fitted
    model and its index are loaded when they are first needed. As long as no model is trained (`predictions.trained` is False),
    items are compared by the cosine of baseline features.
    """

    def __init__(self, folder: Path, predictions: Predictions, previous: Predictions | None) -> None:
        self.predictions, self.previous = predictions, previous
        self._folder = folder
        self._fitted: FittedModel | None = None
        self._index: SimilarityIndex | None = None
        self._loading, self._indexing = threading.Lock(), threading.Lock()

    def with_predictions(self, predictions: Predictions, previous: Predictions | None) -> ActiveModel:
        """Return this model with other predictions.

        The fitted model stays loaded, and so does its index if there are as many items.
        """
        again = ActiveModel(self._folder, predictions, previous)
        again._fitted = self._fitted
        if len(predictions) == len(self.predictions):
            again._index = self._index
        return again

    def require_trained(self) -> None:
        """Raise RequestError if there is no trained model yet."""
        if not self.predictions.trained:
            raise RequestError(409, NO_MODEL)

    @property
    def fitted(self) -> FittedModel:
        """Return the fitted model. It is loaded from disk at the first use."""
        self.require_trained()
        with self._loading:
            if self._fitted is None:
                from samekind.model import FittedModel

                self._fitted = FittedModel.load(self._folder)
            return self._fitted

    @property
    def index(self) -> SimilarityIndex:
        """Return the similarity index of all items. It is built at the first use."""
        fitted = self.fitted
        with self._indexing:
            if self._index is None:
                index = fitted.index(features=np.array(self.predictions.z))
                # the first search fills the caches of the index, which must not happen in several threads at once
                index.search([0], 1)
                self._index = index
            return self._index

    def load(self) -> None:
        """Load all that a similarity search needs."""
        if self.predictions.trained:
            _ = self.index

    # ---------------------------------------------------------------- similarity of items

    @property
    def metric(self) -> str:
        """Return the name of the similarity by which `most_similar` compares items."""
        return "learned similarity" if self.predictions.trained else "cosine of baseline features"

    def most_similar(
        self, ids: Sequence[int], not_ids: Sequence[int], among: Mask, k: int, min_similarity: float | None = None
    ) -> tuple[Matches, bool]:
        """Return the k items that are most similar to `ids` and least similar to `not_ids`, and whether the search was exact.

        `among` (n,) is True for the items that may be found.
        """
        if not self.predictions.trained:
            least = -1.0 if min_similarity is None else min_similarity
            return search_by_cosine(self.predictions.z, ids, not_ids, among, k, least), True
        found = self.index.search_by_example(ids, k, not_ids=not_ids, only=among, min_sim=min_similarity or 0.0)
        return found.ranked(), found.exact

    def nearest_to(self, z: Floats, k: int, *, without: int | None = None) -> Matches:
        """Return the k items that are most similar to the feature vector z (d,), but not the item `without`."""
        index, allowed = self.index, None
        if without is not None:
            allowed = np.ones(len(index), dtype=bool)
            allowed[without] = False
        query = self.fitted.as_features(np.array(z[None, :]))
        return index.search(query, k, only=allowed).ranked()

    def similarity(self, z_a: Floats, z_b: Floats) -> Floats:
        """Return the learned similarities W (n_a, n_b) of feature vectors z_a (n_a, d) and z_b (n_b, d)."""
        W = self.fitted.similarity_from_features(np.array(z_a), np.array(z_b))
        return np.asarray(W, dtype=np.float32)

    def nearest_among(self, item: int, among: Mask, k: int, max_compared: int = MAX_COMPARED) -> Matches:
        """Return the k items that are most similar to one item, without using the index.

        `among` (n,) is True for the items that may be found. If these are more than `max_compared`, only those with the nearest
        feature vectors are compared.
        """
        z = self.predictions.z
        others = np.flatnonzero(among)
        others = others[others != item]
        if len(others) > max_compared:
            distance = ((z[others] - z[item]) ** 2).sum(axis=1)
            others = others[np.argpartition(distance, max_compared)[:max_compared]]
        if not len(others):
            return []
        log_odds = self.fitted.log_odds_from_features(np.array(z[[item]]), np.array(z[others]))[0]
        W = 0.5 + 0.5 * np.tanh(0.5 * log_odds)  # the logistic function, in a form that cannot overflow
        return [(int(others[at]), float(W[at]), float(log_odds[at])) for at in np.argsort(-log_odds, kind="stable")[:k]]
