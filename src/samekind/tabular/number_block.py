"""NumberBlock: all numeric features of a table, on a common scale.

Missing values are imputed, and marked by further features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from sklearn.impute import SimpleImputer

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NumberBlock:
    """Numeric features of n rows from values (n, k) with nan for missing ones.

    A feature is (value - center) / scale. For each column in `flagged`, a further feature is 1 where the value is missing.
    """

    medians: Floats  # (k,): values that replace missing ones
    flagged: npt.NDArray[np.int64]  # indices of the columns that had missing values at the fit
    center: Floats  # (k,)
    scale: Floats  # (k,)

    @classmethod
    def fit(cls, values: Floats, weights: Floats, *, raw: bool) -> NumberBlock:
        """Return the block with the medians and the scales of these values.

        Each feature is scaled so that its standard deviation equals its entry in `weights`. With `raw`, values are neither
        shifted nor scaled.
        """
        if not values.shape[1]:
            return cls(np.empty(0), np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
        missing = np.isnan(values)
        from sklearn.impute import SimpleImputer  # imported here, because it loads packages that only tables need

        imputer = SimpleImputer(strategy="median", keep_empty_features=True).fit(values)
        medians = np.asarray(imputer.statistics_, dtype=np.float64)
        flagged = np.flatnonzero(missing.any(axis=0))
        if raw:
            return cls(medians, flagged, np.zeros(len(medians)), np.ones(len(medians)))
        filled = imputer.transform(values)
        center, spread = filled.mean(axis=0), filled.std(axis=0)
        spread = np.where(spread <= 1e-9 * np.maximum(np.abs(center), 1e-300), 1.0, spread)
        return cls(medians, flagged, center, spread / weights)

    @cached_property
    def _imputer(self) -> SimpleImputer:
        """Return scikit-learn's imputer with the medians of the fit.

        It is fitted to one row, because the median of one row is that row.
        """
        from sklearn.impute import SimpleImputer

        return SimpleImputer(strategy="median", keep_empty_features=True).fit(self.medians[None])

    def transform(self, values: Floats) -> Floats:
        """Return the features (n, width) of rows with these values (n, k)."""
        if not len(self.medians):
            return np.empty((len(values), 0))
        filled = (self._imputer.transform(values) - self.center) / self.scale
        return np.concatenate([filled, np.isnan(values[:, self.flagged])], axis=1)

    @property
    def width(self) -> int:
        """Return the number of features: one for each column, and one for each flag."""
        return len(self.medians) + len(self.flagged)

    def to_json(self) -> dict[str, Any]:
        """Return the block as a dict of JSON values, with all digits of the numbers."""
        return {name: getattr(self, name).tolist() for name in ("medians", "flagged", "center", "scale")}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> NumberBlock:
        """Return the block with the values that `to_json` returned."""
        floats = {name: np.array(content[name], dtype=np.float64) for name in ("medians", "center", "scale")}
        return cls(flagged=np.array(content["flagged"], dtype=np.int64), **floats)
