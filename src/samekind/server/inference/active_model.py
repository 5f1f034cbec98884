"""The model in use with all that it says, as one thing: nobody gets the answers of one model beside another model."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samekind.errors import RequestError
from samekind.server.inference.predictions import Predictions
from samekind.server.unlabelled_project import NO_MODEL, CosineSearch

if TYPE_CHECKING:
    from samekind.server.inference.item_search import Alike


class Loaded:
    """The estimator in a folder, and what is like what by it; each is made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._model: Any = None
        self._alike: Alike | None = None
        self._loading, self._indexing = threading.Lock(), threading.Lock()

    def model(self) -> Any:
        with self._loading:
            if self._model is None:
                from samekind.estimator import SemiSupervisedClassifier

                self._model = SemiSupervisedClassifier.load(self._folder)
            return self._model

    def alike(self, predictions: Predictions) -> Alike:
        model = self.model()
        with self._indexing:
            if self._alike is None or len(self._alike) != len(predictions):
                from samekind.server.inference.item_search import Alike

                self._alike = Alike(model, predictions)
            return self._alike


@dataclass(frozen=True)
class ActiveModel:
    """What stays together for whoever holds it, also when another model is taken into use meanwhile."""

    predictions: Predictions
    before: Predictions | None  # those of the model that was in use before
    loaded: Loaded

    @property
    def model(self) -> Any:
        """The estimator whose answers these are."""
        self.require_model()
        return self.loaded.model()

    @property
    def alike(self) -> Alike | CosineSearch:
        """What is like what, by that estimator; before the first one, by features without training."""
        return self.loaded.alike(self.predictions) if self.predictions.trained else CosineSearch(self.predictions)

    def require_model(self) -> None:
        """Refuses what only a model can answer."""
        if not self.predictions.trained:
            raise RequestError(409, NO_MODEL)
