"""Tables of typed columns from files: which column is the label and which names the rows, and the kinds of the others.

A file is read twice, in blocks of rows: once to find the kind of each column, and once for its values. The kinds are kept in
a TableLayout, so that new tables are read in the same way. samekind.tabular turns the columns into features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from samekind.data.columns.cells import CellSurvey
from samekind.data.columns.column_reader import ColumnReader
from samekind.data.columns.image_cells import names_images, with_folder
from samekind.data.columns.typed_table import Column, ColumnKind, TypedTable, require_columns
from samekind.data.readers.label_file import LABEL_NAMES, clean_labels, label_array, naming_by_row, read_label_file
from samekind.data.readers.reader import Encoding, FeatureColumn, Reader, Skipped, TableLayout, UserData, shorten
from samekind.errors import DataError, LabelError, did_you_mean

BLOCK_ROWS = 4096
ID_NAMES = ("id", "name", "path", "file", "filename", "key", "row", "index", "unnamed: 0", "__index_level_0__")
Cells = Column | list[str]  # a typed column if the file declares its type, else cells of text


# ---------------------------------------------------------------- interfaces of tables and their blocks


class TableBlock(Protocol):
    """Some rows of a table.

    `ragged` is {row index: error message} for the rows that have more cells than the header.
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


def read_table(blocks: TableBlocks, labels: Path | None = None, label_column: str | None = None) -> UserData:
    """Return the samples of a table, after finding its label column, its name column, and the kinds of the other columns."""
    label = find_label_column(blocks, label_column)
    name = find_name_column(blocks, label)
    others = [one for one in blocks.header if one not in (label, name)]
    # if the name column holds the paths of images, these images are features too
    images = [] if name is None else _naming_images(blocks, [name])
    columns = _survey(blocks, [*others, *images])
    if not columns:
        raise DataError(
            f"{blocks.path} has no feature column (columns: {shorten(', '.join(blocks.header))}). If the table lists "
            "images, pass the folder of the images as data, and this table as labels."
        )
    return _read_rows(blocks, TableLayout(columns, label, name), labels, label_column)


def read_table_like(blocks: TableBlocks, layout: TableLayout, labels: Path | None = None) -> UserData:
    """Return the samples of another table with the layout of the first; ignore additional columns."""
    require_columns([column.name for column in layout.columns], blocks.header, str(blocks.path))
    label = layout.label if layout.label in blocks.header else None
    name = layout.name if layout.name in blocks.header else None
    return _read_rows(blocks, TableLayout(layout.columns, label, name), labels, None, is_new=True)


# ---------------------------------------------------------------- columns of a table


def find_label_column(blocks: TableBlocks, label_column: str | None) -> str | None:
    """Return the name of the label column: `label_column`, or a column with a usual name such as label; None if there is
    none.
    """
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
    """Return the name of the column that names the rows, for example id; None if there is none.

    `others` are columns that have another role.
    """
    return next((one for name in ID_NAMES for one in blocks.header if one.lower() == name and one not in others), None)


def _survey(blocks: TableBlocks, names: Sequence[str]) -> tuple[FeatureColumn, ...]:
    """Return the name and the kind of each column, decided from all of its cells."""
    surveys = {name: CellSurvey(name) for name in names}
    declared: dict[str, ColumnKind] = {}
    for block in blocks:
        for name in names:
            cells = block.features(name)
            if isinstance(cells, list):
                surveys[name].add(cells, block.where, comma_decimals=blocks.comma_decimals)
            else:
                declared[name] = cells.kind
    declared |= dict.fromkeys(_naming_images(blocks, [name for name in names if surveys[name].kind() == "text"]), "image")
    return tuple(
        FeatureColumn(name, declared.get(name, surveys[name].kind()), "" if name in declared else surveys[name].date_format)
        for name in names
    )


def _naming_images(blocks: TableBlocks, names: Sequence[str]) -> list[str]:
    """Return those of the text columns `names` whose first cells are paths of image files, relative to the table's folder."""
    block = next(iter(blocks), None)
    if block is None:
        return []
    found = []
    for name in names:
        cells = block.features(name)
        if isinstance(cells, list) and names_images(cells, blocks.path.parent):
            found.append(name)
    return found


# ---------------------------------------------------------------- rows of a table


def _read_rows(
    blocks: TableBlocks, layout: TableLayout, labels: Path | None, label_column: str | None, *, is_new: bool = False
) -> UserData:
    readers = {column.name: ColumnReader(column.name, column.kind, column.date_format) for column in layout.columns}
    names: list[str] = []
    given: list[Any] = []
    kept: list[int] = []
    skipped: list[Skipped] = []
    for block in blocks:
        _add_block(readers, block, comma_decimals=blocks.comma_decimals)
        start = len(names)
        names += row_names(block, layout.name, start)
        given += clean_labels(block.values(layout.label)) if layout.label else []
        skipped += [Skipped(names[start + i], f"{block.where(i)}: {reason}") for i, reason in sorted(block.ragged.items())]
        kept += [start + i for i in range(len(block)) if i not in block.ragged]
    if not kept:
        why = f" The first: {skipped[0]}." if skipped else ""
        raise DataError(f"{blocks.path} holds no usable row.{why}")
    columns = {name: reader.finish(str(blocks.path), is_new=is_new) for name, reader in readers.items()}
    columns = {name: with_folder(column, blocks.path.parent) for name, column in columns.items()}
    table = TypedTable(columns, len(names))
    if any(isinstance(label, float) for label in given):
        raise LabelError(f"{blocks.path}: column {layout.label!r} holds fractions, like a regression target; expected classes.")
    if labels is not None:
        found = read_label_file(labels, naming_by_row(len(names), names if layout.name else None), label_column)
        given, skipped = label_array(len(names), found.labels).tolist(), [*skipped, *found.missing]
    y = label_array(len(kept), {at: given[i] for at, i in enumerate(kept)} if given else {})
    encoding = Encoding("vectors", "table", (len(columns),), "float32", layout)
    x = table if len(kept) == len(names) else table[kept]
    return UserData(x, y, tuple(names[i] for i in kept), tuple(skipped), encoding)


def _add_block(readers: dict[str, ColumnReader], block: TableBlock, *, comma_decimals: bool) -> None:
    for name, reader in readers.items():
        cells = block.features(name)
        if isinstance(cells, list):
            reader.add_cells(cells, block.where, comma_decimals=comma_decimals)
        else:
            reader.add_column(cells, block.where)


def row_names(block: TableBlock, column: str | None, start: int) -> list[str]:
    """Return the names of the rows in a block: the cells of `column`; without it, row numbers that begin at `start`."""
    if column is None:
        return [str(start + i) for i in range(len(block))]
    return [str(value).strip() for value in block.values(column)]
