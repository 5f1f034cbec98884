"""What is most alike by the learned similarity: an index of all items, made once for each model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from samekind.query.index import Index
from samekind.query.scores import Score, score_of
from samekind.serve.answers import Answers

Floats = npt.NDArray[np.float32]
Marks = npt.NDArray[np.bool_]
Pairs = list[tuple[int, float]]  # item, similarity


class Alike:
    """Answers to "what is like this?" for the items of a page."""

    def __init__(self, model: Any, answers: Answers) -> None:
        self.version = answers.version
        self._dtype: torch.dtype = model._dtype
        self._score: Score = score_of(model._predictor)
        self._index = Index(self._tensor(answers.z), self._score)
        self._index.neighbours([0], 1)  # what is made at the first question is made now, before many threads ask

    def __len__(self) -> int:
        return len(self._index)

    def similar(
        self, ids: Sequence[int], not_ids: Sequence[int], among: Marks, k: int, min_sim: float = 0.0
    ) -> tuple[Pairs, bool]:
        """The k items among `among` that are most like all of `ids` and unlike `not_ids`, and whether all were looked at."""
        found = self._index.like(ids, k, not_ids=not_ids, only=among, min_sim=min_sim)
        return found.pairs(), found.exact

    def nearest(self, z: Floats, k: int, *, without: int | None = None) -> Pairs:
        """The k items most alike to one feature vector z (d,)."""
        allowed = None
        if without is not None:
            allowed = np.ones(len(self), dtype=bool)
            allowed[without] = False
        return self._index.neighbours(self._tensor(z[None, :]), k, only=allowed).pairs()

    def similarity(self, z_a: Floats, z_b: Floats) -> Floats:
        """W (n_a, n_b) of features."""
        with torch.inference_mode():
            left, right = self._score.left(self._tensor(z_a)), self._score.right(self._tensor(z_b))
            return np.asarray(torch.sigmoid(self._score.grid(left, right)).numpy(), dtype=np.float32)

    def _tensor(self, z: Floats) -> torch.Tensor:
        return torch.from_numpy(np.array(z)).to(self._dtype)
