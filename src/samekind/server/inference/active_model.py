"""The active model with its predictions for all items, and similarity search among these items."""

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
MAX_COMPARED = 2048  # `nearest_among` compares one item with at most this many others


class ActiveModel:
    """The active model, its predictions, and the predictions of the model that was active before.

    A request takes this object once, so its results stay consistent if another model is activated meanwhile. The fitted
    model and its index are loaded when they are first needed. Before the first model (`predictions.trained` is false)
    items are compared by the cosine of baseline features.
    """

    def __init__(self, folder: Path, predictions: Predictions, previous: Predictions | None) -> None:
        self.predictions, self.previous = predictions, previous
        self._folder = folder
        self._fitted: FittedModel | None = None
        self._index: SimilarityIndex | None = None
        self._loading, self._indexing = threading.Lock(), threading.Lock()

    def with_predictions(self, predictions: Predictions, previous: Predictions | None) -> ActiveModel:
        """Return this model with reloaded predictions; the fitted model and, if possible, its index are kept in memory."""
        again = ActiveModel(self._folder, predictions, previous)
        again._fitted = self._fitted
        if len(predictions) == len(self.predictions):
            again._index = self._index
        return again

    def require_trained(self) -> None:
        """Refuse a request that needs a trained model if there is none yet."""
        if not self.predictions.trained:
            raise RequestError(409, NO_MODEL)

    @property
    def fitted(self) -> FittedModel:
        """The fitted model, loaded from disk at the first use."""
        self.require_trained()
        with self._loading:
            if self._fitted is None:
                from samekind.model import FittedModel

                self._fitted = FittedModel.load(self._folder)
            return self._fitted

    @property
    def index(self) -> SimilarityIndex:
        """The similarity index of all items."""
        fitted = self.fitted
        with self._indexing:
            if self._index is None:
                index = fitted.index(features=np.array(self.predictions.z))
                index.search([0], 1)  # the first search fills the caches of the index, which must not happen in several threads
                self._index = index
            return self._index

    def load(self) -> None:
        """Load everything that similarity search needs."""
        if self.predictions.trained:
            _ = self.index

    # ---------------------------------------------------------------- similarity

    @property
    def metric(self) -> str:
        """Name of the similarity that `most_similar` uses."""
        return "learned similarity" if self.predictions.trained else "cosine of baseline features"

    def most_similar(
        self, ids: Sequence[int], not_ids: Sequence[int], among: Mask, k: int, min_similarity: float | None = None
    ) -> tuple[Matches, bool]:
        """Return the k items in `among` most similar to `ids` and least to `not_ids`, and whether the search was exact."""
        if not self.predictions.trained:
            least = -1.0 if min_similarity is None else min_similarity
            return search_by_cosine(self.predictions.z, ids, not_ids, among, k, least), True
        found = self.index.search_by_example(ids, k, not_ids=not_ids, only=among, min_sim=min_similarity or 0.0)
        return found.ranked(), found.exact

    def nearest_to(self, z: Floats, k: int, *, without: int | None = None) -> Matches:
        """Return the k items most similar to a feature vector z (d,), except the item `without`."""
        index, allowed = self.index, None
        if without is not None:
            allowed = np.ones(len(index), dtype=bool)
            allowed[without] = False
        query = self.fitted.as_features(np.array(z[None, :]))
        return index.search(query, k, only=allowed).ranked()

    def similarity(self, z_a: Floats, z_b: Floats) -> Floats:
        """Return the learned similarities W (n_a, n_b) between feature vectors z_a (n_a, d) and z_b (n_b, d)."""
        W = self.fitted.similarity_from_features(np.array(z_a), np.array(z_b))
        return np.asarray(W, dtype=np.float32)

    def nearest_among(self, item: int, among: Mask, k: int, max_compared: int = MAX_COMPARED) -> Matches:
        """Return the k items in `among` most similar to one item, without the index.

        If `among` holds more than `max_compared` items, only those with the nearest features are compared.
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
        W = 0.5 + 0.5 * np.tanh(0.5 * log_odds)  # the logistic function, which cannot overflow in this form
        return [(int(others[at]), float(W[at]), float(log_odds[at])) for at in np.argsort(-log_odds, kind="stable")[:k]]
