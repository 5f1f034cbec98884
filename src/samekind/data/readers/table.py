"""Tables of features: columns of numbers stay as they are, and text columns are one-hot encoded.

A text column may have at most 20 categories, which are sorted by alphabet; with more, an error is raised. The layout of the
columns is stored, so that new tables are encoded in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from samekind.data.readers.label_file import LABEL_NAMES, clean_labels, label_array, naming_by_row, read_label_file
from samekind.data.readers.reader import Encoding, FeatureColumn, Reader, Skipped, TableLayout, UserData, shorten
from samekind.errors import DataError, LabelError, did_you_mean

BLOCK_ROWS = 4096
ID_NAMES = ("id", "name", "path", "file", "filename", "key", "row", "index", "unnamed: 0", "__index_level_0__")
Numbers = npt.NDArray[np.float64]
Cells = Numbers | list[str]  # cells of one column: an array if the file declares a numeric type, else a list of texts
MISSING_CELLS = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))
MAX_CATEGORIES = 20


# ---------------------------------------------------------------- interfaces of tables and their blocks


class TableBlock(Protocol):
    """Some rows of a table.

    `ragged` is {row index: error message} for the rows that have more or fewer cells than the header.
    """

    @property
    def ragged(self) -> dict[int, str]: ...
    def __len__(self) -> int: ...
    def features(self, column: str) -> Cells: ...
    def values(self, column: str) -> list[Any]: ...
    def where(self, i: int) -> str: ...


class TableBlocks(Protocol):
    """A table that can be read several times, in blocks of rows. With `comma_decimals`, the cell 1,5 is the number 1.5."""

    @property
    def path(self) -> Path: ...
    @property
    def header(self) -> list[str]: ...
    @property
    def comma_decimals(self) -> bool: ...
    def __iter__(self) -> Iterator[TableBlock]: ...


def table_reader(suffixes: tuple[str, ...], open_blocks: Callable[[Path], TableBlocks]) -> Reader:
    """Return the reader of a table format. `open_blocks` opens a file of this format."""

    def read(path: Path, labels: Path | None = None, label_column: str | None = None) -> UserData:
        return read_table(open_blocks(path), labels, label_column)

    def read_like(path: Path, encoding: Encoding, labels: Path | None = None) -> UserData:
        if encoding.layout is None:
            raise DataError(f"the model was fitted on {encoding}, and {path} is a table. Pass the same kind of data.")
        return replace(read_table_like(open_blocks(path), encoding.layout, labels), encoding=encoding)

    return Reader(suffixes, read, read_like, open_blocks)


def require_unique_names(path: Path, header: Sequence[str]) -> None:
    """Raise DataError if two columns of a table have the same name."""
    twice = next((name for name, count in Counter(header).items() if count > 1), None)
    if twice is not None:
        raise DataError(f"{path} has two columns called {shorten(repr(twice))}. Give each column its own name.")


def read_table(blocks: TableBlocks, labels: Path | None = None, label_column: str | None = None) -> UserData:
    """Return the samples of a table. The layout of its columns is determined from their content."""
    label = find_label_column(blocks, label_column)
    name = find_name_column(blocks, label)
    surveys = _survey(blocks, [one for one in blocks.header if one not in (label, name)])
    empty = [one for one in surveys if one.n_values == 0]
    columns = tuple(_feature_column(one, blocks.path) for one in surveys if one.n_values)
    if not columns:
        raise DataError(
            f"{blocks.path} has no feature column (columns: {shorten(', '.join(blocks.header))}). If the table lists "
            "images, pass the folder of the images as data, and this table as labels."
        )
    dropped = [Skipped(f"column {one.name}", "empty in every row") for one in empty if not one.name.startswith("Unnamed: ")]
    return _encode_table(blocks, TableLayout(columns, label, name), dropped, labels, label_column)


def read_table_like(blocks: TableBlocks, layout: TableLayout, labels: Path | None = None) -> UserData:
    """Return the samples of another table, encoded with the layout of the table at fit. Additional columns are ignored."""
    missing = [column.name for column in layout.columns if column.name not in blocks.header]
    if missing:
        raise DataError(
            f"{blocks.path} lacks {len(missing)} of the {len(layout.columns)} columns that the model was fitted on: "
            f"{', '.join(missing[:5])}{', …' if len(missing) > 5 else ''}. It has: {', '.join(blocks.header[:10])}."
        )
    present = TableLayout(
        layout.columns,
        layout.label if layout.label in blocks.header else None,
        layout.name if layout.name in blocks.header else None,
    )
    return _encode_table(blocks, present, [], labels, None)


# ---------------------------------------------------------------- layout of the columns


def find_label_column(blocks: TableBlocks, label_column: str | None) -> str | None:
    """Return the label column of a table: `label_column`, or the column with a usual name such as label; None without one."""
    header = blocks.header
    if label_column is not None:
        same = [one for one in header if one == label_column] or [one for one in header if one.lower() == label_column.lower()]
        if not same:
            raise LabelError(f"{blocks.path} has no column {label_column!r}; {did_you_mean(label_column, header)}")
        return same[0]
    named = [one for one in header if one.lower() in LABEL_NAMES]
    # A column `y` is the label only if there is no other label column: beside x and label, y is a coordinate.
    clear = [one for one in named if one.lower() != "y"] or named
    if len(clear) > 1:
        raise LabelError(
            f"{blocks.path} has several columns that could hold the labels: {shorten(' and '.join(clear))}. Name one "
            "with label_column."
        )
    return clear[0] if clear else None


def find_name_column(blocks: TableBlocks, *others: str | None) -> str | None:
    """Return the column that names the rows, such as id or name; None without one. `others` are columns with another role."""
    return next((one for name in ID_NAMES for one in blocks.header if one.lower() == name and one not in others), None)


@dataclass
class _Survey:
    """Counts of the cells of a column: values, texts, and categories."""

    name: str
    n_values: int = 0
    n_text: int = 0
    first_text: str = ""
    categories: set[str] = field(default_factory=set)

    def add_block(self, cells: Cells, block: TableBlock, comma_decimals: bool) -> None:
        values, text = _as_numbers(cells, comma_decimals)
        self.n_values += len(text) + int((~np.isnan(values)).sum())
        self.n_text += len(text)
        if isinstance(cells, list):
            if text and not self.first_text:
                self.first_text = f"{cells[text[0]]!r} in {block.where(text[0])}"
            if len(self.categories) <= MAX_CATEGORIES:
                self.categories.update(cell.strip() for cell in cells)


def _survey(blocks: TableBlocks, names: Sequence[str]) -> list[_Survey]:
    surveys = [_Survey(name) for name in names]
    for block in blocks:
        for one in surveys:
            one.add_block(block.features(one.name), block, blocks.comma_decimals)
    return surveys


def _feature_column(survey: _Survey, path: Path) -> FeatureColumn:
    if survey.n_text == 0:
        return FeatureColumn(survey.name)
    if len(survey.categories) <= MAX_CATEGORIES:
        return FeatureColumn(survey.name, tuple(sorted(survey.categories)))
    if survey.n_text <= survey.n_values / 10:
        raise DataError(
            f"{path}: column {survey.name!r} holds numbers, but text in {survey.n_text} of {survey.n_values} rows, first "
            f"{survey.first_text}. Correct these cells, or leave them empty."
        )
    raise DataError(
        f"{path}: column {survey.name!r} holds text with more than {MAX_CATEGORIES} categories, first {survey.first_text}. "
        "Expected numbers or few categories. Remove the column, convert it to numbers, or name it id if it identifies the rows."
    )


# ---------------------------------------------------------------- encoding of the rows


def _encode_table(
    blocks: TableBlocks, layout: TableLayout, dropped: list[Skipped], labels: Path | None, label_column: str | None
) -> UserData:
    parts: list[npt.NDArray[np.float32]] = []
    names: list[str] = []
    given: list[Any] = []
    kept: list[int] = []
    skipped = list(dropped)
    for block in blocks:
        x, reasons = _encode_block(block, layout, blocks.comma_decimals)
        start = len(names)
        names += row_names(block, layout.name, start)
        given += clean_labels(block.values(layout.label)) if layout.label else []
        skipped += [Skipped(names[start + i], f"{block.where(i)}: {reason}") for i, reason in sorted(reasons.items())]
        good = [i for i in range(len(x)) if i not in reasons]
        kept += [start + i for i in good]
        parts.append(x[good] if reasons else x)
    if not kept:
        why = f" The first: {skipped[0]}." if skipped else ""
        raise DataError(f"{blocks.path} holds no usable row.{why}")
    if any(isinstance(label, float) for label in given):
        raise LabelError(f"{blocks.path}: column {layout.label!r} holds fractions, like a regression target; expected classes.")
    if labels is not None:
        found = read_label_file(labels, naming_by_row(len(names), names if layout.name else None), label_column)
        given, skipped = label_array(len(names), found.labels).tolist(), [*skipped, *found.missing]
    y = label_array(len(kept), {at: given[i] for at, i in enumerate(kept)} if given else {})
    x = np.concatenate(parts)
    encoding = Encoding("vectors", "table", x.shape[1:], x.dtype.name, layout)
    return UserData(x, y, tuple(names[i] for i in kept), tuple(skipped), encoding)


def row_names(block: TableBlock, column: str | None, start: int) -> list[str]:
    """Return the names of the rows of a block: the cells of `column`, or without one the row numbers from `start`."""
    if column is None:
        return [str(start + i) for i in range(len(block))]
    return [str(value).strip() for value in block.values(column)]


def _encode_block(
    block: TableBlock, layout: TableLayout, comma_decimals: bool
) -> tuple[npt.NDArray[np.float32], dict[int, str]]:
    """Return the features (m, width) of a block of m rows, and {row index: why the row cannot be used}."""
    x = np.zeros((len(block), layout.width), np.float32)
    reasons = dict(block.ragged)
    at = 0
    for column in layout.columns:
        cells = block.features(column.name)
        target = x[:, at : at + column.width]
        problems = (
            _fill_numbers(target, cells, comma_decimals)
            if column.categories is None
            else _put_categories(target, cells, column.categories)
        )
        for i, problem in problems.items():
            reasons.setdefault(i, f"column {column.name!r} {problem}")
        at += column.width
    return x, reasons


def _fill_numbers(target: npt.NDArray[np.float32], cells: Cells, comma_decimals: bool) -> dict[int, str]:
    values, text = _as_numbers(cells, comma_decimals)
    with np.errstate(over="ignore"):
        target[:, 0] = values
    problems = {
        int(i): "is empty" if np.isnan(values[i]) else "is too large" for i in np.flatnonzero(~np.isfinite(target[:, 0]))
    }
    return problems | {i: f"holds {cells[i]!r}; expected a number" for i in text}


def _put_categories(target: npt.NDArray[np.float32], cells: Cells, categories: tuple[str, ...]) -> dict[int, str]:
    position = {category: k for k, category in enumerate(categories)}
    problems = {}
    for i, cell in enumerate(cells):
        category = cell.strip() if isinstance(cell, str) else f"{cell:g}"
        if category in position:
            target[i, position[category]] = 1
        else:
            problems[i] = f"holds {category!r}, a category that did not occur at fit"
    return problems


def _as_numbers(cells: Cells, comma_decimals: bool) -> tuple[Numbers, list[int]]:
    """Return the values of the cells, with nan for missing ones, and the indices of cells that are neither numbers nor
    missing.
    """
    if not isinstance(cells, list):
        return cells, []
    try:
        return np.array(cells, dtype=np.float64), []
    except ValueError:
        pass
    values = np.full(len(cells), np.nan)
    text = []
    for i, cell in enumerate(cells):
        try:
            # in a file whose separator is not the comma, 1,5 is the number 1.5
            values[i] = float(cell.replace(",", ".") if comma_decimals and cell.count(",") == 1 else cell)
        except ValueError:
            if cell.strip().lower() not in MISSING_CELLS:
                text.append(i)
    return values, text
