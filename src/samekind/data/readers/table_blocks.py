"""Tables read a block of rows at a time, as often as needed: text tables and Parquet behind one face."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from samekind.data.readers.csv_file import DelimitedText, open_csv
from samekind.errors import DataError

Numbers = npt.NDArray[np.float64]
Cells = Numbers | list[str]  # of one column: numbers where the file says so, else text
PARQUET = (".parquet", ".pq")
SIZE = 4096  # rows in a block


class TableBlock(Protocol):
    """Some rows. `ragged` holds the rows with more or fewer cells than the header, by position, with the reason."""

    @property
    def ragged(self) -> dict[int, str]: ...
    def __len__(self) -> int: ...
    def features(self, column: str) -> Cells: ...
    def values(self, column: str) -> list[Any]: ...
    def where(self, i: int) -> str: ...


class TableBlocks(Protocol):
    """A table that can be gone through again and again; `comma` says that 1,5 is a number."""

    @property
    def path(self) -> Path: ...
    @property
    def header(self) -> list[str]: ...
    @property
    def comma(self) -> bool: ...
    def __iter__(self) -> Iterator[TableBlock]: ...


def open_table(path: Path) -> TableBlocks:
    """By its ending: Parquet, or else text."""
    return _open_parquet(path) if path.suffix.lower() in PARQUET else _open_text(path)


# ---------------------------------------------------------------- text


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
    sheet: DelimitedText
    header: list[str]

    @property
    def path(self) -> Path:
        return self.sheet.path

    @property
    def comma(self) -> bool:
        return self.sheet.separator != ","

    def __iter__(self) -> Iterator[TableBlock]:
        rows = islice(self.sheet.rows(), 1, None)
        while block := list(islice(rows, SIZE)):
            yield self._block(block)

    def _block(self, rows: list[tuple[int, list[str]]]) -> TableBlock:
        width = len(self.header)
        ragged = {
            i: f"{len(cells)} cells, and {width} are expected" for i, (_, cells) in enumerate(rows) if len(cells) != width
        }
        filled = [(cells + [""] * width)[:width] if i in ragged else cells for i, (_, cells) in enumerate(rows)]
        columns = {name: list(column) for name, column in zip(self.header, zip(*filled, strict=True), strict=True)}
        return _TextBlock(columns, [line for line, _ in rows], ragged)


def _open_text(path: Path) -> TableBlocks:
    sheet = open_csv(path)
    first = next(sheet.rows(), None)
    if first is None:
        raise DataError(f"{path} is empty. Expected a line with the names of the columns, then a line for each row.")
    header = [cell.strip() or f"Unnamed: {i}" for i, cell in enumerate(first[1])]
    if not _is_header(header):
        raise DataError(
            f"{path} begins with numbers ({', '.join(header[:5])}). Expected the names of the columns first, so that the label "
            "is found and new data can be read in the same way. Add a line such as: a,b,label"
        )
    for i, name in enumerate(header):
        if name in header[:i]:
            raise DataError(f"{path} has two columns called {name!r}. Give each column its own name.")
    return _TextBlocks(sheet, header)


def _is_header(cells: list[str]) -> bool:
    """No cell is a number, or the numbers count the columns, as they do in tables made from an array."""
    numbers = [cell for cell in cells if _is_number(cell)]
    return numbers in ([str(i + first) for i in range(len(numbers))] for first in (0, 1))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


# ---------------------------------------------------------------- Parquet


@dataclass(frozen=True)
class _ParquetBlock:
    path: Path
    batch: Any
    first: int
    ragged: dict[int, str]

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def features(self, column: str) -> Cells:
        from pyarrow import types  # type: ignore[import-untyped]

        values = self.batch.column(column)
        values = values.dictionary_decode() if types.is_dictionary(values.type) else values
        if types.is_string(values.type) or types.is_large_string(values.type) or types.is_null(values.type):
            return ["" if value is None else str(value) for value in values.to_pylist()]
        if types.is_boolean(values.type):
            values = values.cast("int8")
        if not (types.is_integer(values.type) or types.is_floating(values.type) or types.is_decimal(values.type)):
            raise DataError(
                f"{self.path}: column {column!r} is of type {values.type}; expected numbers or text. "
                "Turn it into numbers, or remove it. Lists of numbers are best saved as one array, in a .npy file."
            )
        return np.asarray(values.cast("float64", safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)

    def values(self, column: str) -> list[Any]:
        return list(self.batch.column(column).to_pylist())

    def where(self, i: int) -> str:
        return f"row {self.first + i}"


@dataclass(frozen=True)
class _ParquetBlocks:
    path: Path
    header: list[str]
    comma: bool = False

    def __iter__(self) -> Iterator[TableBlock]:
        first = 0
        with _parquet_file(self.path) as file:
            batches = file.iter_batches(SIZE)
            while (batch := _next(batches, self.path)) is not None:
                yield _ParquetBlock(self.path, batch, first, {})
                first += batch.num_rows


def _open_parquet(path: Path) -> TableBlocks:
    with _parquet_file(path) as file:
        return _ParquetBlocks(path, list(file.schema_arrow.names))


def _parquet_file(path: Path) -> Any:
    try:
        from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]
    except ImportError as error:
        raise DataError(
            f"reading {path.name} needs pyarrow, which is not installed. Install samekind[parquet], or save the table as .csv."
        ) from error
    try:
        return ParquetFile(path)
    except Exception as error:  # pyarrow's own errors have no other root in common
        raise DataError(_damaged(path, error)) from error


def _next(batches: Iterator[Any], path: Path) -> Any:
    try:
        return next(batches, None)
    except Exception as error:
        raise DataError(_damaged(path, error)) from error


def _damaged(path: Path, error: Exception) -> str:
    return f"{path} cannot be read as Parquet ({error}). Save it again, or as .csv."
