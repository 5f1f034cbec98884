"""Conversion of data frames (pandas, Polars) and Arrow tables to a TypedTable. The declared types of columns are respected.

None of these libraries is imported here, unless X comes from it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from samekind.data.columns.arrow_columns import arrow_column
from samekind.data.columns.cells import CellSurvey, parse_cells, to_texts
from samekind.data.columns.image_cells import names_images
from samekind.data.columns.typed_table import Column, TypedTable
from samekind.errors import DataError

FRAMES = {"pandas": ["DataFrame"], "polars": ["DataFrame", "LazyFrame"], "pyarrow": ["Table", "RecordBatch"]}
NO_COLUMNS = "X is a data frame without columns: 0 feature(s) (shape={}) while a minimum of 1 is required."


def is_frame(X: Any) -> bool:
    """Return whether X is a data frame of pandas or Polars, an Arrow table, or a TypedTable."""
    return isinstance(X, TypedTable) or _library(X) is not None


def _library(X: Any) -> str | None:
    for library, names in FRAMES.items():
        module = sys.modules.get(library)
        if module is not None and isinstance(X, tuple(getattr(module, name) for name in names)):
            return library
    return None


def table_from_frame(X: Any) -> TypedTable:
    """Return a data frame or an Arrow table as a TypedTable; raise DataError for a column that cannot be used."""
    if isinstance(X, TypedTable):
        return X
    library = _library(X)
    if library == "polars" and hasattr(X, "collect"):
        X = X.collect()
    names = [str(name) for name in (X.column_names if library == "pyarrow" else X.columns)]
    shape = (int(X.shape[0]), len(names))
    if not names:
        raise DataError(NO_COLUMNS.format(shape))
    if shape[0] == 0:
        raise DataError(f"X is empty: found array with 0 sample(s) (shape={shape}) while a minimum of 1 is required.")
    require_unique(names, "X")
    convert: Callable[[int, str], Column] = {
        "pandas": lambda at, name: _pandas_column(X.iloc[:, at], name),
        "polars": lambda at, name: _polars_column(X.to_series(at), name),
        "pyarrow": lambda at, name: _parsed(arrow_column(X.column(at), name, "X"), name),
    }[str(library)]
    return TypedTable({name: convert(at, name) for at, name in enumerate(names)}, shape[0])


def require_unique(names: Sequence[str], where: str) -> None:
    """Raise DataError if two columns of a table have the same name."""
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise DataError(f"{where} has two columns called {twice[:80]!r}. Give each column its own name.")


def _parsed(column: Column, name: str) -> Column:
    """Return a column of an Arrow table. If its texts are numbers or dates, return a column of these."""
    return object_column(column.values.tolist(), name) if column.kind == "text" else column


def text_column(cells: Sequence[str], name: str) -> Column:
    """Return cells of text as a column of numbers, booleans or dates, if all of them can be read as such, else as texts."""
    survey = CellSurvey(name)
    survey.add(cells, lambda i: f"row {i}")
    kind, date_format = survey.kind(), survey.date_format
    values, unread = parse_cells(cells, kind, date_format)
    first = f"unreadable cells, which count as missing: {len(unread)}, first {survey.first_text}" if unread else ""
    return Column(kind, values, date_format, first)


def object_column(values: Sequence[Any], name: str, where: str = "X") -> Column:
    """Return Python objects as a column: texts, numbers, dates, or images (bytes, or a dict with bytes or path)."""
    present = [value for value in values if not _is_none(value)]
    kinds = {type(value) for value in present}
    if all(issubclass(kind, str) for kind in kinds):
        cells = ["" if _is_none(value) else str(value) for value in values]
        images = present and names_images(cells, Path())
        return Column("image", to_texts(cells)) if images else text_column(cells, name)
    if all(issubclass(kind, (bool, np.bool_)) for kind in kinds):
        return Column("boolean", _floats(values))
    if all(issubclass(kind, (int, float, Decimal, np.number, bool, np.bool_)) for kind in kinds):
        return Column("number", _floats(values))
    if all(issubclass(kind, date) for kind in kinds):
        return Column("date", np.array([None if _is_none(v) else _naive(v) for v in values], dtype="datetime64[us]"))
    if all(issubclass(kind, (bytes, Mapping)) for kind in kinds):
        return _image_column(values, name, where)
    if all(issubclass(kind, (str, int, float, Decimal, np.number, bool, np.bool_)) for kind in kinds):
        return text_column(["" if _is_none(value) else str(value) for value in values], name)
    example = next(value for value in present if not isinstance(value, (str, int, float)))
    raise DataError(
        f"{where}: column {name!r} holds {type(example).__name__} objects; expected numbers, text, dates or images. "
        "Convert the column, or leave it out."
    )


def _image_column(values: Sequence[Any], name: str, where: str) -> Column:
    images = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        if isinstance(value, Mapping):
            if not {"bytes", "path"} & set(value):
                raise DataError(
                    f"{where}: column {name!r} holds records with the fields {', '.join(map(str, value))[:80]}; expected the "
                    "fields bytes or path, as in records of images. Make one column of each field."
                )
            value = value.get("bytes") or value.get("path")
        images[i] = None if _is_none(value) else value
    return Column("image", images)


def _is_none(value: Any) -> bool:
    if value is None or (isinstance(value, float) and value != value):
        return True
    pandas = sys.modules.get("pandas")
    return pandas is not None and (value is pandas.NA or value is pandas.NaT)


def _naive(value: Any) -> Any:
    return value.astimezone(None).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


def _floats(values: Sequence[Any]) -> Any:
    return np.array([np.nan if _is_none(value) else float(value) for value in values], dtype=np.float64)


# ---------------------------------------------------------------- columns of pandas


def _pandas_column(series: Any, name: str) -> Column:
    from pandas.api import types

    kind = series.dtype
    if types.is_bool_dtype(kind) and not isinstance(kind, _categorical()):
        return Column("boolean", series.to_numpy(dtype=np.float64, na_value=np.nan))
    if types.is_complex_dtype(kind):
        raise DataError(f"Complex data not supported: column {name!r} holds complex numbers. Split them into two columns.")
    if types.is_numeric_dtype(kind):
        return Column("number", series.to_numpy(dtype=np.float64, na_value=np.nan))
    if types.is_datetime64_any_dtype(kind):
        moments = series.dt.tz_convert("UTC").dt.tz_localize(None) if getattr(kind, "tz", None) is not None else series
        return Column("date", moments.to_numpy(dtype="datetime64[us]"))
    if types.is_timedelta64_dtype(kind):
        return Column("number", series.dt.total_seconds().to_numpy(dtype=np.float64))
    if isinstance(kind, _categorical()):
        return Column("category", to_texts(_text(value) for value in series.tolist()))
    if getattr(kind, "name", "").startswith("period"):
        return Column("date", series.dt.to_timestamp().to_numpy(dtype="datetime64[us]"))
    return object_column(series.tolist(), name)


def _categorical() -> Any:
    return sys.modules["pandas"].CategoricalDtype


def _text(value: Any) -> str:
    if _is_none(value):
        return ""
    return f"{value:.15g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------- columns of Polars


def _polars_column(series: Any, name: str) -> Column:
    import polars

    kind = series.dtype
    if kind == polars.Boolean:
        return Column("boolean", series.cast(polars.Float64).to_numpy())
    if kind.is_numeric():
        return Column("number", series.cast(polars.Float64).to_numpy())
    if kind == polars.Datetime and getattr(kind, "time_zone", None):
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    if kind in (polars.Datetime, polars.Date):
        return Column("date", series.to_numpy().astype("datetime64[us]"))
    if kind == polars.Duration:
        return Column("number", series.dt.total_microseconds().cast(polars.Float64).to_numpy() / 1e6)
    if kind in (polars.Categorical, polars.Enum):
        return Column("category", to_texts("" if value is None else value for value in series.cast(polars.String).to_list()))
    return object_column(series.to_list(), name)
