"""CategoryBlock: one-hot features of all category columns of a table, by scikit-learn. An unknown category gets zeros only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from sklearn.preprocessing import OneHotEncoder

MISSING = ""  # category for missing values; no cell is an empty text, so the name is free


@dataclass(frozen=True)
class CategoryBlock:
    """One feature for each category of each category column."""

    categories: tuple[tuple[str, ...], ...]

    @cached_property
    def _encoder(self) -> OneHotEncoder:
        """Return scikit-learn's encoder. The categories are given, so its fit learns nothing."""
        from sklearn.preprocessing import OneHotEncoder  # imported here, because it loads packages that only tables need

        lists = [np.array(one, dtype=object) for one in self.categories]
        encoder = OneHotEncoder(categories=lists, handle_unknown="ignore", sparse_output=False, dtype=np.float64)
        return encoder.fit(np.array([[one[0] for one in self.categories]], dtype=object))

    def transform(self, columns: Sequence[npt.NDArray[Any]], n_rows: int) -> npt.NDArray[np.float64]:
        """Return the features (n, width) of n rows. `columns` are arrays (n,) of texts, or None for missing values."""
        if not self.categories:
            return np.empty((n_rows, 0))
        cells = np.empty((n_rows, len(columns)), dtype=object)
        for at, values in enumerate(columns):
            cells[:, at] = [MISSING if value is None else value for value in values]
        return np.asarray(self._encoder.transform(cells))

    @property
    def width(self) -> int:
        """Return the number of features, over all columns."""
        return sum(map(len, self.categories))
