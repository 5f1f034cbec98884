"""TypedTable: named columns of numbers, booleans, categories, dates and texts, which may have missing values.

The readers of files and the conversion of data frames return a TypedTable; samekind.tabular turns it into features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from samekind.errors import DataError

ColumnKind = Literal["number", "boolean", "category", "date", "text", "image"]
KINDS: tuple[ColumnKind, ...] = get_args(ColumnKind)
Values = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Column:
    """Values (n,) of one column, all of the same kind.

    Numbers and booleans are float64 with nan for missing values. Dates are datetime64[us] with NaT. Categories and texts are
    str or None. Images are a path, the bytes of a file, or None. `date_format` is the format of dates that were read from text.
    `unread` is a sentence about cells that could not be read, and so count as missing; it is empty if there are none.
    """

    kind: ColumnKind
    values: Values
    date_format: str = ""
    unread: str = ""

    def __len__(self) -> int:
        return len(self.values)

    def missing(self) -> npt.NDArray[np.bool_]:
        """Return for each of the n values whether it is missing."""
        if self.kind in ("number", "boolean"):
            return np.asarray(np.isnan(self.values))
        if self.kind == "date":
            return np.asarray(np.isnat(self.values))
        return np.array([value is None for value in self.values], dtype=bool)

    def rows(self, which: Any) -> Column:
        """Return the column with some rows only. `which` is a slice or an array of indices."""
        return replace(self, values=self.values[which])


@dataclass(frozen=True, eq=False)
class TypedTable:
    """Table: {name: column}. All columns have `n_rows` values."""

    columns: Mapping[str, Column]
    n_rows: int

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, which: Any) -> TypedTable:
        """Return the table with some rows only. `which` is a slice or an array of indices."""
        columns = {name: column.rows(which) for name, column in self.columns.items()}
        return TypedTable(columns, len(np.arange(self.n_rows)[which]))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(self.columns)

    @property
    def shape(self) -> tuple[int, int]:
        """Return (number of rows, number of columns)."""
        return self.n_rows, len(self.columns)


def require_columns(expected: Sequence[str], found: Sequence[str], where: str) -> None:
    """Raise DataError if a new table lacks columns of the fit. `where` is the name of the table in the message."""
    known = set(found)
    missing = [name for name in expected if name not in known]
    if missing:
        shown = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        raise DataError(
            f"{where} lacks {len(missing)} of the {len(expected)} columns that the model was fitted on: {shown}. "
            f"It has: {', '.join(found[:10]) or 'none'}. Add the missing columns; their cells may be empty."
        )
