"""Reader of tables as JSON lines, .jsonl and .ndjson: each line is an object whose keys are the names of the columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from samekind.data.readers.delimited_text import BYTE_ORDER_MARKS, limited_lines, not_utf8
from samekind.data.readers.reader import require_regular_file, shorten
from samekind.data.readers.table import BLOCK_ROWS, Cells, TableBlock, TableBlocks, table_reader
from samekind.errors import DataError

MAX_COLUMNS = 100_000  # largest number of different keys in a file


@dataclass(frozen=True)
class _ObjectBlock:
    rows: list[tuple[int, dict[str, Any]]]
    ragged: dict[int, str]

    def __len__(self) -> int:
        return len(self.rows)

    def features(self, column: str) -> Cells:
        return [_as_cell(value) for value in self.values(column)]

    def values(self, column: str) -> list[Any]:
        return [row.get(column) for _, row in self.rows]

    def where(self, i: int) -> str:
        return f"line {self.rows[i][0]}"


@dataclass(frozen=True)
class _JsonLines:
    path: Path
    header: list[str]
    comma_decimals: bool = False

    def __iter__(self) -> Iterator[TableBlock]:
        rows = _objects(self.path)
        while block := list(islice(rows, BLOCK_ROWS)):
            yield _ObjectBlock(block, {})


def open_json_lines(path: Path) -> TableBlocks:
    """Return a file as a table. Its columns are the keys of all lines, in the order in which they first occur."""
    require_regular_file(path)
    header: dict[str, None] = {}
    for line, row in _objects(path):
        header |= dict.fromkeys(row)
        if len(header) > MAX_COLUMNS:
            raise DataError(
                f"{path} has more than {MAX_COLUMNS:,} different keys up to line {line}; expected the same few keys in "
                "each line."
            )
    if not header:
        raise DataError(f'{path} holds no line with a value. Expected lines such as {{"text": "some words", "label": "a"}}.')
    return _JsonLines(path, list(header))


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) for each line that is not blank. Line numbers begin at 1."""
    number = 0
    try:
        with path.open(encoding=_encoding(path)) as file:
            for number, line in enumerate(limited_lines(file, path), 1):
                if line.strip():
                    yield number, _parse(path, number, line)
    except UnicodeDecodeError as error:
        raise DataError(f"{not_utf8(path, error, number)}. Save it as UTF-8.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be opened ({error.strerror or error}). Check the path and its permissions.") from error


def _parse(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", None) or error
        raise DataError(
            f"{path}: line {number} is not JSON ({reason}): {shorten(line.strip(), 60)!r}. Expected one object in each line."
        ) from error
    if not isinstance(row, dict):
        raise DataError(
            f'{path}: line {number} is {shorten(line.strip(), 60)}; expected an object such as {{"text": "some words"}}.'
        )
    return row


def _encoding(path: Path) -> str:
    with path.open("rb") as file:
        first = file.read(4)
    return next((name for mark, name in BYTE_ORDER_MARKS.items() if first.startswith(mark)), "utf-8")


def _as_cell(value: Any) -> str:
    """Return a JSON value as the text of a table cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


READER = table_reader((".jsonl", ".ndjson"), open_json_lines)
