"""Predictions as a series or a data frame of pandas or Polars. With pandas, they have the index of X."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy.typing as npt

from samekind.errors import SettingError

LIBRARIES = ("pandas", "polars")
NAME = "prediction"  # name of a series of predictions


def as_series(values: npt.NDArray[Any], X: Any, library: str) -> Any:
    """Return the predictions (n,) as a series. With pandas, it has the index of X."""
    module = _imported(library)
    if library == "polars":
        return module.Series(NAME, values.tolist())
    return module.Series(values, index=getattr(X, "index", None) if hasattr(X, "iloc") else None, name=NAME)


def as_frame(values: npt.NDArray[Any], columns: Sequence[str], X: Any, library: str) -> Any:
    """Return the values (n, C) as a data frame with these column names. With pandas, it has the index of X."""
    module = _imported(library)
    if library == "polars":
        return module.DataFrame(values, schema=list(columns), orient="row")
    return module.DataFrame(values, columns=list(columns), index=getattr(X, "index", None) if hasattr(X, "iloc") else None)


def _imported(library: str) -> Any:
    try:
        return import_module(library)
    except ImportError as error:
        raise SettingError(
            f"set_output asks for {library}, which is not installed. Run pip install {library}, or "
            "set_output(transform='default')."
        ) from error
