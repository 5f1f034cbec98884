"""Tables with a column of texts: .csv, .tsv, .parquet or .jsonl. Other columns may contain labels and names.

data = read_text_table(open_csv_table(Path("reviews.csv")), "body", label_column="topic")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from samekind.data.readers.label_file import clean_labels, label_array, naming_by_row, read_label_file
from samekind.data.readers.reader import Encoding, Skipped, TextLayout, UserData
from samekind.data.readers.table import TableBlocks, find_label_column, find_name_column, row_names
from samekind.data.texts import text_array
from samekind.errors import DataError, LabelError, did_you_mean


def read_text_table(blocks: TableBlocks, text: str, labels: Path | None = None, label_column: str | None = None) -> UserData:
    """Return the texts in the column `text`, with labels from another column or from the file `labels`."""
    column = find_text_column(blocks, text)
    label = find_label_column(blocks, label_column) if labels is None or label_column in blocks.header else None
    if label == column:
        raise LabelError(
            f"{blocks.path}: column {column!r} is named both as the text and as the label. Name another label column."
        )
    layout = TextLayout(column, label, find_name_column(blocks, column, label))
    return read_text_rows(blocks, layout, labels, label_column)


def read_text_table_like(blocks: TableBlocks, layout: TextLayout, labels: Path | None = None) -> UserData:
    """Return the texts of another table, from the column with the same name as at the fit.

    If the model was fitted to a folder of texts, that is the column "text".
    """
    column = find_text_column(blocks, layout.text or "text")
    label = layout.label if layout.label in blocks.header and layout.label != column else None
    name = layout.name if layout.name in blocks.header else find_name_column(blocks, column, label)
    return read_text_rows(blocks, TextLayout(column, label, name), labels, None)


def find_text_column(blocks: TableBlocks, text: str) -> str:
    """Return the name of the column `text`, compared without case; raise DataError if there is no such column."""
    same = [one for one in blocks.header if one == text] or [one for one in blocks.header if one.lower() == text.lower()]
    if not same:
        raise DataError(f"{blocks.path} has no text column {text!r}; {did_you_mean(text, blocks.header)}")
    return same[0]


def read_text_rows(blocks: TableBlocks, layout: TextLayout, labels: Path | None, label_column: str | None) -> UserData:
    """Return the texts, labels and names of a table. Rows with more or fewer cells than the header are skipped."""
    assert layout.text is not None
    texts: list[str] = []
    names: list[str] = []
    given: list[Any] = []
    kept: list[int] = []
    skipped: list[Skipped] = []
    for block in blocks:
        start = len(names)
        names += row_names(block, layout.name, start)
        given += clean_labels(block.values(layout.label)) if layout.label else []
        for i, cell in enumerate(block.values(layout.text)):
            if i in block.ragged:
                skipped.append(Skipped(names[start + i], f"{block.where(i)}: {block.ragged[i]}"))
            else:
                kept.append(start + i)
                texts.append(as_text(cell))
    if not texts:
        why = f" The first: {skipped[0]}." if skipped else ""
        raise DataError(f"{blocks.path} holds no usable row.{why}")
    if not any(text.strip() for text in texts):
        raise DataError(
            f"{blocks.path}: column {layout.text!r} is empty in every row. Name the column of the texts with --text."
        )
    if any(isinstance(label, float) for label in given):
        raise LabelError(f"{blocks.path}: column {layout.label!r} holds fractions, like a regression target; expected classes.")
    if labels is not None:
        found = read_label_file(labels, naming_by_row(len(names), names if layout.name else None), label_column)
        given, skipped = label_array(len(names), found.labels).tolist(), [*skipped, *found.missing]
    y = label_array(len(kept), {at: given[i] for at, i in enumerate(kept)} if given else {})
    encoding = Encoding("texts", "text_table", (1,), "str", text=layout)
    return UserData(text_array(texts), y, tuple(names[i] for i in kept), tuple(skipped), encoding)


def as_text(cell: Any) -> str:
    """Return a cell as text. A missing cell becomes an empty text, and bytes are decoded as UTF-8."""
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    return "" if cell is None or cell != cell else str(cell)
