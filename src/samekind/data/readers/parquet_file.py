"""Reader of Parquet tables, .parquet and .pq. It needs the package pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samekind.data.columns.arrow_columns import arrow_column
from samekind.data.columns.frames import require_unique
from samekind.data.readers.reader import require_regular_file, shorten
from samekind.data.readers.table import BLOCK_ROWS, Cells, TableBlock, TableBlocks, table_reader
from samekind.errors import DataError


@dataclass(frozen=True)
class ArrowBlock:
    """Rows of a Parquet file, as an Arrow record batch. `first` is the number of the first of these rows in the file `path`."""

    path: Path
    batch: Any
    first: int
    ragged: dict[int, str]

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def features(self, column: str) -> Cells:
        found = arrow_column(self.batch.column(column), column, str(self.path))
        if found.kind == "text":  # texts that are numbers or dates become a column of these, as in a text file
            return ["" if value is None else str(value) for value in found.values]
        return found

    def values(self, column: str) -> list[Any]:
        return list(self.batch.column(column).to_pylist())

    def where(self, i: int) -> str:
        return f"row {self.first + i}"


@dataclass(frozen=True)
class _ParquetBlocks:
    path: Path
    header: list[str]
    comma_decimals: bool = False

    def __iter__(self) -> Iterator[TableBlock]:
        first = 0
        with _parquet_file(self.path) as file:
            batches = file.iter_batches(BLOCK_ROWS)
            while (batch := _next(batches, self.path)) is not None:
                yield ArrowBlock(self.path, batch, first, {})
                first += batch.num_rows


def open_parquet_table(path: Path) -> TableBlocks:
    require_regular_file(path)
    with _parquet_file(path) as file:
        header = list(file.schema_arrow.names)
    require_unique(header, str(path))
    return _ParquetBlocks(path, header)


def _parquet_file(path: Path) -> Any:
    try:
        from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]
    except ImportError as error:
        raise DataError(
            f"reading {path.name} needs pyarrow, which is not installed. Install samekind[parquet], or save the table as .csv."
        ) from error
    try:
        return ParquetFile(path)
    except Exception as error:  # pyarrow's errors have no other common base class
        raise DataError(_unreadable_message(path, error)) from error


def _next(batches: Iterator[Any], path: Path) -> Any:
    try:
        return next(batches, None)
    except Exception as error:
        raise DataError(_unreadable_message(path, error)) from error


def _unreadable_message(path: Path, error: Exception) -> str:
    return f"{path} cannot be read as Parquet ({shorten(error)}). Save it again, or as .csv."


READER = table_reader((".parquet", ".pq"), open_parquet_table)
