"""Column names of data frames: they are stored at fit, and compared with those of new samples, as in scikit-learn."""

from __future__ import annotations

import warnings
from typing import Any

from samekind.errors import DataError

ESTIMATOR = "SemiSupervisedClassifier"
SHOWN = 5  # largest number of column names that a message lists


def feature_names(X: Any) -> tuple[str, ...] | None:
    """Return the column names of a data frame (pandas, polars).

    Return None for other types of X, and if no name is a string.
    """
    columns = getattr(X, "columns", None) if hasattr(X, "dtypes") else None
    if columns is None or len(columns) == 0:
        return None
    kinds = sorted({type(name).__qualname__ for name in columns})
    if "str" in kinds and len(kinds) > 1:
        raise DataError(
            f"Feature names are only supported if all input features have string names, but X has {kinds} as column names. "
            "Convert all of them to strings, for example with X.columns = X.columns.astype(str)."
        )
    return tuple(str(name) for name in columns) if kinds == ["str"] else None


def require_feature_names(X: Any, fitted: tuple[str, ...] | None) -> None:
    """Raise DataError if the columns of X differ from those at fit; warn if only one of the two has column names."""
    require_same_names(feature_names(X), fitted)


def require_same_names(found: tuple[str, ...] | None, fitted: tuple[str, ...] | None) -> None:
    """Raise DataError if the names of columns differ from those at the fit; warn if only one of the two has names."""
    if found == fitted:
        return
    if found is None:
        warnings.warn(f"X does not have valid feature names, but {ESTIMATOR} was fitted with feature names", stacklevel=2)
    elif fitted is None:
        warnings.warn(f"X has feature names, but {ESTIMATOR} was fitted without feature names", stacklevel=2)
    else:
        raise DataError(_difference(found, fitted))


def _difference(found: tuple[str, ...], fitted: tuple[str, ...]) -> str:
    unseen, missing = sorted(set(found) - set(fitted)), sorted(set(fitted) - set(found))
    lines = ["The feature names should match those that were passed during fit."]
    if unseen:
        lines += ["Feature names unseen at fit time:", *_listed(unseen)]
    if missing:
        lines += ["Feature names seen at fit time, yet now missing:", *_listed(missing)]
    if not unseen and not missing:
        lines.append("Feature names must be in the same order as they were in fit.")
    return "\n".join([*lines, "Pass the same columns in the same order: X[list(model.feature_names_in_)].", ""])


def _listed(names: list[str]) -> list[str]:
    return [*(f"- {name}" for name in names[:SHOWN]), *["- ..."] * (len(names) > SHOWN)]
