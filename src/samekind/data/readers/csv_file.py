"""Reader of text tables (.csv and .tsv), whose first line is a header."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from samekind.data.columns.frames import require_unique
from samekind.data.readers.delimited_text import DelimitedText, open_delimited_text
from samekind.data.readers.table import BLOCK_ROWS, Cells, TableBlock, TableBlocks, table_reader
from samekind.errors import DataError


@dataclass(frozen=True)
class _TextBlock:
    columns: dict[str, list[str]]
    lines: list[int]
    ragged: dict[int, str]

    def __len__(self) -> int:
        return len(self.lines)

    def features(self, column: str) -> Cells:
        return self.columns[column]

    def values(self, column: str) -> list[Any]:
        return self.columns[column]

    def where(self, i: int) -> str:
        return f"line {self.lines[i]}"


@dataclass(frozen=True)
class _TextBlocks:
    text: DelimitedText
    header: list[str]

    @property
    def path(self) -> Path:
        return self.text.path

    @property
    def comma_decimals(self) -> bool:
        return self.text.separator != ","

    def __iter__(self) -> Iterator[TableBlock]:
        rows = islice(self.text.rows(empty=True), 1, None)
        while block := list(islice(rows, BLOCK_ROWS)):
            yield self._block(block)

    def _block(self, rows: list[tuple[int, list[str]]]) -> TableBlock:
        width = len(self.header)
        # a short row gets empty cells for its missing ones; a long row has cells that belong to no column
        ragged = {i: f"{len(cells)} cells; expected {width}" for i, (_, cells) in enumerate(rows) if any(cells[width:])}
        filled = [cells if len(cells) == width else (cells + [""] * width)[:width] for _, cells in rows]
        columns = {name: list(column) for name, column in zip(self.header, zip(*filled, strict=True), strict=True)}
        return _TextBlock(columns, [line for line, _ in rows], ragged)


def open_csv_table(path: Path) -> TableBlocks:
    text = open_delimited_text(path)
    first = next(text.rows(), None)
    if first is None:
        raise DataError(f"{path} is empty. Expected a header line with column names, then a line for each sample.")
    header = [cell.strip() or f"Unnamed: {i}" for i, cell in enumerate(first[1])]
    if not _is_header(header):
        raise DataError(
            f"{path} begins with numbers ({', '.join(header[:5])}). Expected a header with column names, to find the label "
            "and to read new data in the same way. Add a line such as: a,b,label"
        )
    require_unique(header, str(path))
    return _TextBlocks(text, header)


def _is_header(cells: list[str]) -> bool:
    """Return whether the cells of the first row are a header.

    They are if no cell is a number, or if the numbers are the positions of the columns: 0, 1, 2, ... or 1, 2, 3, ...
    """
    numbers = [cell for cell in cells if _is_number(cell)]
    return numbers in ([str(i + first) for i in range(len(numbers))] for first in (0, 1))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


READER = table_reader((".csv", ".tsv"), open_csv_table)
