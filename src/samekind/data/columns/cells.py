"""Cells of text as numbers, booleans and dates: `CellSurvey` finds the kind of a column, and `parse_cells` returns its
values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.data.columns.typed_table import ColumnKind

Floats = npt.NDArray[np.float64]
Objects = npt.NDArray[np.object_]
MISSING_CELLS = frozenset(("", "na", "n/a", "nan", "nat", "null", "none", "?", "<na>", "#n/a"))
BOOLEANS = {"true": 1.0, "t": 1.0, "yes": 1.0, "y": 1.0, "false": 0.0, "f": 0.0, "no": 0.0, "n": 0.0}
FEW = 20  # largest number of different cells of a column of codes, such as 0, 1, 2, 3+
MAX_UNREAD = 0.1  # fraction of a column's cells that may have another type than the others
ISO = "ISO 8601"  # year-month-day, with or without a time
DAYS = (
    *("%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%d-%b-%Y", "%d %b %Y", "%d %B %Y"),
    *("%b %d %Y", "%b %d, %Y", "%B %d, %Y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y"),
)
FORMATS = (ISO, *(day + time for day, time in product(DAYS, ("", " %H:%M", " %H:%M:%S"))))
ISO_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ]\d\d?:\d\d(:\d\d(\.\d+)?)?)?\s*(Z|UTC|[+-]\d\d:?\d\d)?")
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
CODE = re.compile(r"0\d+")  # for example a postal code or an article number, which would lose its leading zero as a number


def is_missing(cell: str) -> bool:
    """Return whether a cell of text means a missing value. Such cells are, for example, empty, NA or ?."""
    return len(cell) < 8 and cell.strip().lower() in MISSING_CELLS


# ---------------------------------------------------------------- cells as numbers


def to_numbers(cells: Sequence[str], *, comma_decimals: bool = False) -> tuple[Floats, list[int]]:
    """Return the values of the cells, with nan for missing ones, and the indices of cells that are neither numbers nor missing.

    With `comma_decimals`, the cell 1,5 is the number 1.5; without, the cell 1,500 is the number 1500. Currency and percent
    signs are ignored.
    """
    try:
        return np.array(cells, dtype=np.float64), []
    except ValueError:
        pass
    values = np.full(len(cells), np.nan)
    return values, _fill(values, cells, lambda cell: _to_number(cell, comma_decimals))


def _fill(values: npt.NDArray[Any], cells: Sequence[str], read: Callable[[str], Any]) -> list[int]:
    """Write what `read` returns for each cell into `values`; return the indices of cells that it cannot read (None).

    Missing cells keep the value that `values` has, and are not among the indices.
    """
    unread = []
    for i, cell in enumerate(cells):
        found = read(cell)
        if found is not None:
            values[i] = found
        elif not is_missing(cell):
            unread.append(i)
    return unread


def _to_number(cell: str, comma_decimals: bool) -> float | None:
    if comma_decimals and cell.count(",") == 1:
        cell = cell.replace(",", ".")
    try:
        return float(cell)
    except ValueError:
        pass
    bare = cell.strip().strip("$€£% ")
    if THOUSANDS.fullmatch(bare):
        bare = bare.replace(",", "")
    try:
        return float(bare) if len(bare) < len(cell) else None
    except ValueError:
        return None


# ---------------------------------------------------------------- cells as dates


def to_dates(cells: Sequence[str], date_format: str) -> tuple[npt.NDArray[Any], list[int]]:
    """Return the dates as datetime64[us], with NaT for missing ones, and the indices of cells that are neither dates nor
    missing.
    """
    values = np.full(len(cells), np.datetime64("NaT"), dtype="datetime64[us]")
    return values, _fill(values, cells, lambda cell: _to_date(cell, date_format))


def _to_date(cell: str, date_format: str) -> datetime | None:
    cell = cell.strip()
    try:
        if date_format != ISO:
            return datetime.strptime(cell, date_format)
        if ISO_DATE.fullmatch(cell) is None:
            return None
        date = datetime.fromisoformat(_padded(cell))
    except ValueError:
        return None
    return date if date.tzinfo is None else date.astimezone(timezone.utc).replace(tzinfo=None)


def _padded(cell: str) -> str:
    """Return an ISO date in the form that `datetime.fromisoformat` of Python 3.10 can read."""
    cell = re.sub(r"\s*(Z|UTC)$", "+00:00", cell)
    cell = re.sub(r"\s*([+-]\d\d):?(\d\d)$", r"\1:\2", cell) if ":" in cell else cell
    day, separator, time = re.sub(r"\.(\d+)", lambda found: f".{found[1][:6]:0<6}", cell).replace("T", " ").partition(" ")
    year, month, date = day.split("-")[:3]
    return f"{year}-{month:0>2}-{date:0>2}{separator}{time if time[1:2] != ':' else '0' + time}"


# ---------------------------------------------------------------- kinds of columns


@dataclass
class CellSurvey:
    """Counts of the text cells in a column, from which the kind of the column is decided. Cells are added block by block."""

    name: str
    n_values: int = 0
    n_numbers: int = 0
    n_booleans: int = 0
    first_text: str = ""  # first cell that is not a number, with its place
    has_codes: bool = False
    formats: tuple[str, ...] = FORMATS  # date formats in which all cells so far can be read
    distinct: set[str] = field(default_factory=set)  # different cells, at most FEW + 1 of them

    def add(self, cells: Sequence[str], where: Callable[[int], str], *, comma_decimals: bool = False) -> None:
        """Count the cells of a block. `where(i)` returns the place of cell i for messages."""
        values, texts = to_numbers(cells, comma_decimals=comma_decimals)
        n_numbers = int((~np.isnan(values)).sum())
        self.n_numbers += n_numbers
        self.n_values += n_numbers + len(texts)
        if len(self.distinct) <= FEW:
            self.distinct.update(set(cells))
        if texts and not self.first_text:
            self.first_text = f"{cells[texts[0]][:80]!r} in {where(texts[0])}"
        if n_numbers and not self.has_codes:
            self.has_codes = any(CODE.fullmatch(cell) for cell in cells)
        if texts:
            self.n_booleans += sum(cells[i].strip().lower() in BOOLEANS for i in texts)
        self._keep_formats([] if n_numbers else [cells[i] for i in texts], possible=n_numbers == 0)

    def _keep_formats(self, texts: list[str], *, possible: bool) -> None:
        if not possible:
            self.formats = ()
        if texts and self.formats:
            near = [one for one in self.formats if _to_date(texts[0], one) is not None]
            self.formats = tuple(one for one in near if all(_to_date(text, one) is not None for text in texts))

    def kind(self) -> ColumnKind:
        """Return the kind of the column, decided from the cells so far."""
        if self.n_values == 0 or self.has_codes:
            return "text"
        if self.n_numbers == self.n_values:
            return "number"
        if self.n_booleans == self.n_values:
            return "boolean"
        if self.formats:
            return "date"
        is_number = len(self.distinct) > FEW and self.n_numbers >= (1 - MAX_UNREAD) * self.n_values
        return "number" if is_number else "text"

    @property
    def date_format(self) -> str:
        """Return the format of the dates; an empty text if the column does not contain dates."""
        return self.formats[0] if self.kind() == "date" else ""


def parse_cells(
    cells: Sequence[str], kind: ColumnKind, date_format: str = "", *, comma_decimals: bool = False
) -> tuple[npt.NDArray[Any], list[int]]:
    """Return the values of text cells in a column of this kind, and the indices of the cells that could not be read."""
    if kind == "number":
        return to_numbers(cells, comma_decimals=comma_decimals)
    if kind == "date":
        return to_dates(cells, date_format or ISO)
    if kind == "boolean":
        return _to_booleans(cells)
    return to_texts(cells), []


def _to_booleans(cells: Sequence[str]) -> tuple[Floats, list[int]]:
    values = np.array([BOOLEANS.get(cell.strip().lower(), np.nan) for cell in cells], dtype=np.float64)
    unread = []
    for i in np.flatnonzero(np.isnan(values)).tolist():
        number = _to_number(cells[i], False)
        if number is not None and number in (0.0, 1.0):
            values[i] = number
        elif not is_missing(cells[i]):
            unread.append(i)
    return values, unread


def to_texts(cells: Iterable[str]) -> Objects:
    """Return the cells as texts without surrounding spaces, and None for missing cells."""
    found = [None if is_missing(cell) else cell.strip() for cell in cells]
    values = np.empty(len(found), dtype=object)
    values[:] = found
    return values
