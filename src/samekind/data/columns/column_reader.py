"""Columns of a known kind, read block by block: those of the fit, or new ones, which must have the same kind as at the fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.data.columns.cells import MAX_UNREAD, parse_cells
from samekind.data.columns.typed_table import Column, ColumnKind
from samekind.errors import DataError

LARGEST = float(np.finfo(np.float32).max)
NOUNS = {"number": "numbers", "boolean": "true or false", "date": "dates", "category": "categories"}
NOUNS |= {"text": "text", "image": "images"}
TEXTS = ("text", "category")


@dataclass
class ColumnReader:
    """Collects the cells of one column, block by block, as values of `kind`."""

    name: str
    kind: ColumnKind
    date_format: str = ""
    parts: list[npt.NDArray[Any]] = field(default_factory=list)
    n_values: int = 0
    n_unread: int = 0
    first: str = ""  # first cell that could not be read, with its place

    def add_cells(self, cells: Sequence[str], where: Callable[[int], str], *, comma_decimals: bool = False) -> None:
        """Add cells of text, which are parsed."""
        values, unread = parse_cells(cells, self.kind, self.date_format, comma_decimals=comma_decimals)
        self._add(Column(self.kind, values), unread, lambda i: f"{cells[i][:80]!r} in {where(i)}")

    def add_column(self, column: Column, where: Callable[[int], str]) -> None:
        """Add values that have a type. Texts are parsed if the column has another kind."""
        both = {column.kind, self.kind}
        if len(both) == 1 or both <= {*TEXTS} or both == {"number", "boolean"}:
            self._add(column, [], lambda i: f"a number too large for 32 bits in {where(i)}")
        elif column.kind in TEXTS and self.kind != "image":
            self.add_cells(["" if value is None else value for value in column.values], where)
        elif self.kind in TEXTS and column.kind in ("number", "boolean"):
            self._add(Column(self.kind, _as_texts(column)), [], where)
        elif self.kind == "image" and column.kind in TEXTS:
            self._add(Column("image", column.values), [], where)
        else:
            present = np.flatnonzero(~column.missing())
            other = Column(self.kind, _empty(self.kind, len(column)))
            self._add(other, present.tolist(), lambda i: f"{NOUNS[column.kind]} in {where(i)}")

    def _add(self, column: Column, unread: Sequence[int], describe: Callable[[int], str]) -> None:
        values, unread = column.values, list(unread)
        if self.kind in ("number", "boolean"):
            too_large = np.flatnonzero(np.abs(values) > LARGEST)  # this includes infinity
            if len(too_large):
                values = np.where(np.abs(values) > LARGEST, np.nan, values)
                unread += too_large.tolist()
        self.parts.append(values)
        self.n_values += int((~Column(self.kind, values).missing()).sum()) + len(unread)
        self.n_unread += len(unread)
        if unread and not self.first:
            self.first = describe(unread[0])

    def finish(self, source: str, *, is_new: bool = False) -> Column:
        """Return the column; raise DataError if it is new (`is_new`) and has another type than at the fit."""
        if is_new and self.n_unread > MAX_UNREAD * self.n_values:
            raise DataError(
                f"{source}: column {self.name!r} held {NOUNS[self.kind]} at the fit, and now {self.n_unread} of its "
                f"{self.n_values} cells hold something else, first {self.first}. Correct the column, or fit again."
            )
        values = np.concatenate(self.parts) if self.parts else _empty(self.kind, 0)
        unread = f"unreadable cells, which count as missing: {self.n_unread}, first {self.first}" if self.n_unread else ""
        return Column(self.kind, values, self.date_format, unread)


def as_kind(column: Column, name: str, kind: ColumnKind, date_format: str = "", source: str = "X") -> Column:
    """Return a new column with the kind that it had at the fit; raise DataError if its type has changed."""
    if column.kind == kind:
        return column
    reader = ColumnReader(name, kind, date_format)
    reader.add_column(column, lambda i: f"row {i}")
    return reader.finish(source, is_new=True)


def _as_texts(column: Column) -> npt.NDArray[Any]:
    texts = np.empty(len(column), dtype=object)
    texts[:] = [None if value != value else f"{value:.15g}" for value in column.values.tolist()]
    return texts


def _empty(kind: ColumnKind, n: int) -> npt.NDArray[Any]:
    """Return n missing values of this kind."""
    if kind in ("number", "boolean"):
        return np.full(n, np.nan)
    return np.full(n, np.datetime64("NaT"), "datetime64[us]") if kind == "date" else np.full(n, None, dtype=object)
