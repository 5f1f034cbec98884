"""Reader of Arrow tables, .arrow and .feather; needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samekind.data.readers.parquet_file import ArrowBlock
from samekind.data.readers.table import TableBlock, TableBlocks, table_reader
from samekind.errors import DataError


@dataclass(frozen=True)
class _ArrowBlocks:
    path: Path
    header: list[str]
    comma_decimals: bool = False

    def __iter__(self) -> Iterator[TableBlock]:
        first = 0
        file = _open_file(self.path)
        for i in range(file.num_record_batches):
            try:
                batch = file.get_batch(i)
            except Exception as error:  # pyarrow's errors have no narrower common base class
                raise DataError(_unreadable_message(self.path, error)) from error
            yield ArrowBlock(self.path, batch, first, {})
            first += batch.num_rows


def open_arrow_table(path: Path) -> TableBlocks:
    return _ArrowBlocks(path, list(_open_file(path).schema.names))


def _open_file(path: Path) -> Any:
    try:
        from pyarrow import ipc, memory_map  # type: ignore[import-untyped]
    except ImportError as error:
        raise DataError(
            f"reading {path.name} needs pyarrow, which is not installed. Install samekind[parquet], or save the table as .csv."
        ) from error
    try:
        return ipc.open_file(memory_map(str(path)))
    except Exception as error:  # as in _ArrowBlocks
        raise DataError(_unreadable_message(path, error)) from error


def _unreadable_message(path: Path, error: Exception) -> str:
    return f"{path} cannot be read as an Arrow file ({error}). Save it again, or as .csv."


READER = table_reader((".arrow", ".feather"), open_arrow_table)
