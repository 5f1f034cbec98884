"""The model in use with all that it says, as one thing: nobody gets the answers of one model beside another model."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samekind.errors import RequestError
from samekind.server.answers import Answers
from samekind.server.piles import NO_MODEL, ByCosine

if TYPE_CHECKING:
    from samekind.server.alike import Alike


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

    def alike(self, answers: Answers) -> Alike:
        model = self.model()
        with self._indexing:
            if self._alike is None or len(self._alike) != len(answers):
                from samekind.server.alike import Alike

                self._alike = Alike(model, answers)
            return self._alike


@dataclass(frozen=True)
class InUse:
    """What stays together for whoever holds it, also when another model is taken into use meanwhile."""

    answers: Answers
    before: Answers | None  # those of the model that was in use before
    loaded: Loaded

    @property
    def model(self) -> Any:
        """The estimator whose answers these are."""
        self.require_model()
        return self.loaded.model()

    @property
    def alike(self) -> Alike | ByCosine:
        """What is like what, by that estimator; before the first one, by features without training."""
        return self.loaded.alike(self.answers) if self.answers.trained else ByCosine(self.answers)

    def require_model(self) -> None:
        """Refuses what only a model can answer."""
        if not self.answers.trained:
            raise RequestError(409, NO_MODEL)
