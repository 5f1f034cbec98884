"""Rows of tables in the form that the page shows: the name and the value of each column, as people write it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import TypedDict

from samekind.data.columns.typed_table import Column, TypedTable

MAX_TEXT = 1000  # largest number of characters of a text that are sent to the page
MISSING = "missing"
# from (number of a column, its values, a value) to the fraction of smaller values
Rank = Callable[[int, npt.NDArray[Any], Any], float]


class FieldValue(TypedDict):
    """One column of a row: its name, its value as text, and the fraction of rows with a smaller value (null for text)."""

    name: str
    value: str
    rank: float | None


def table_fields(table: TypedTable, row: int, rank: Rank) -> Iterator[FieldValue]:
    """Yield the columns of one row. `rank` is called for columns of numbers."""
    for at, (name, column) in enumerate(table.columns.items()):
        value = column.values[row]
        is_number = column.kind == "number" and value == value
        yield {"name": name, "value": _shown(column, value), "rank": rank(at, column.values, value) if is_number else None}


def numbers_of_row(table: TypedTable, row: int) -> npt.NDArray[np.float64]:
    """Return the numbers in one row, with 0 for missing ones. If the table has no numbers, return a single 0."""
    found = [column.values[row] for column in table.columns.values() if column.kind == "number"]
    return np.nan_to_num(np.array(found or [0.0], dtype=np.float64))


def format_number(value: Any) -> str:
    """Return a number as people write it: whole numbers without a fraction, others with six digits."""
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 1e12 else f"{number:.6g}"


def _shown(column: Column, value: Any) -> str:
    if value is None or value != value:
        return MISSING
    if column.kind == "boolean":
        return "true" if value else "false"
    if column.kind == "number":
        return format_number(value)
    if column.kind == "date":
        return str(value.astype("datetime64[s]").item()).removesuffix(" 00:00:00")
    if column.kind == "image":
        return "image" if isinstance(value, bytes) else Path(value).name
    return str(value)[:MAX_TEXT]


def image_of_row(table: TypedTable, row: int) -> Any:
    """Return the first image of a row, as a path or as a file in memory; None if the row has no image."""
    found = [column.values[row] for column in table.columns.values() if column.kind == "image"]
    present = [value for value in found if value is not None]
    if not present:
        return None
    return io.BytesIO(present[0]) if isinstance(present[0], bytes) else Path(present[0])
