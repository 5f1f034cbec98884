"""Label files: tables with the name and the class of each sample, written by hand or by a spreadsheet."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from samekind.data.readers.delimited_text import open_delimited_text
from samekind.data.readers.reader import Objects, Skipped, shorten
from samekind.errors import LabelError, did_you_mean

Find = Callable[[str], int | None]  # from a name in a label file to the index of the sample, or None

LABEL_NAMES = ("label", "class", "target", "y")
LABEL_HEADERS = (*LABEL_NAMES, "labels", "category", "tag")
UNLABELLED_CELLS = ("", "-1")


@dataclass(frozen=True)
class LabelFile:
    """Labels by sample index, and the lines of the label file whose name matches no sample.

    A sample that is listed without a label has the label None.
    """

    labels: dict[int, str | None]
    missing: tuple[Skipped, ...]


@dataclass(frozen=True)
class Naming:
    """How a label file names samples: the possible headers of its name column, and a function that finds a sample by its
    name.
    """

    headers: Sequence[str]
    find: Find
    noun: str  # "image" or "row": the word for a sample in error messages
    example: str
    is_data: Callable[[str], bool]  # whether a cell looks like the name of a sample; a first line with such a cell is no header


def read_label_file(path: Path, naming: Naming, label_column: str | None = None) -> LabelFile:
    """Return the labels of the samples that `naming` finds; raise LabelError if two lines give one sample different labels."""
    rows = list(open_delimited_text(path, LabelError).rows())
    if not rows:
        raise LabelError(f"{path} is empty. Expected two columns, for example: {naming.headers[0]},label")
    columns = _columns(path, rows, naming, label_column)
    labels: dict[int, str | None] = {}
    lines: dict[int, int] = {}
    missing = []
    for line, cells in rows[1 if columns.has_header else 0 :]:
        name = cells[columns.name] if columns.name < len(cells) else ""
        label = compose(cells[columns.label]).strip() if columns.label < len(cells) else ""
        i = naming.find(name)
        if i is None:
            missing.append(Skipped(shorten(name), f"listed in line {line} of {path.name}, but there is no such {naming.noun}"))
        elif label not in UNLABELLED_CELLS and labels.get(i) not in (None, label):
            raise LabelError(
                f"{path} contradicts itself: {shorten(repr(name))} is {shorten(repr(labels[i]))} in line {lines[i]} "
                f"and {shorten(repr(label))} in line {line}. "
                "Remove the wrong line."
            )
        elif label not in UNLABELLED_CELLS or i not in labels:
            labels[i], lines[i] = (None if label in UNLABELLED_CELLS else label), line
    if missing and not labels:
        raise LabelError(
            f"{path} names no {naming.noun} of this data: none of its {len(missing)} lines matches. The first line "
            f"names {missing[0].path!r}. Expected names such as {naming.example!r}."
        )
    return LabelFile(labels, tuple(missing))


def compose(text: str) -> str:
    """Return a text in Unicode form NFC.

    Some systems store ä as one character, and others as a followed by a combining mark; in this form, both are equal.
    """
    return unicodedata.normalize("NFC", text)


# ---------------------------------------------------------------- columns of a label file


@dataclass(frozen=True)
class _Columns:
    name: int
    label: int
    has_header: bool


def _columns(path: Path, rows: list[tuple[int, list[str]]], naming: Naming, label_column: str | None) -> _Columns:
    """Return which columns contain the names and the labels.

    They are found by known headers, else the name column is the one whose cells match the most samples.
    """
    first = [cell.strip().lower() for cell in rows[0][1]]
    if len(first) < 2:
        raise LabelError(f"{path} has one column ({rows[0][1][0]!r}). Expected two, for example: {naming.headers[0]},label")
    label = _find_column(path, first, label_column) if label_column else _position(first, LABEL_HEADERS)
    name = _position(first, naming.headers)
    both_known = label is not None and name not in (None, label)
    if name is None or name == label:
        name = _find_name_column(rows, naming, label if label_column else None)
    cell = rows[0][1][name]
    # a line with both known headers is the header, even if a sample is called "path"
    has_header = label_column is not None or both_known or not (naming.is_data(cell) or naming.find(cell) is not None)
    if (label is None or not has_header) and len(first) == 2:
        label = 1 - name
    if label is None or (not has_header and len(first) > 2):
        raise LabelError(
            f"{path} begins with {shorten(', '.join(rows[0][1]))}, and no column is called {', '.join(LABEL_NAMES)}. "
            "Name the label column in the first line, or pass label_column."
        )
    return _Columns(name, label, has_header)


def _position(header: list[str], names: Sequence[str]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


def _find_column(path: Path, header: list[str], label_column: str) -> int:
    if label_column.strip().lower() not in header:
        raise LabelError(f"{path} has no column {label_column!r}; {did_you_mean(label_column, header)}")
    return header.index(label_column.strip().lower())


def _find_name_column(rows: list[tuple[int, list[str]]], naming: Naming, label: int | None) -> int:
    """Return the column in which the most cells match a sample; the first column if no cell does."""
    others = [c for c in range(len(rows[0][1])) if c != label]

    def n_matches(column: int) -> int:
        return sum(len(cells) > column and naming.find(cells[column]) is not None for _, cells in rows[:200])

    return max(others, key=n_matches)


# ---------------------------------------------------------------- labels as an array


def label_array(n_samples: int, labels: dict[int, Any]) -> Objects:
    """Return y (n_samples,): the label of each sample, or None without a label."""
    y = np.full(n_samples, None, dtype=object)
    for i, label in labels.items():
        y[i] = label
    return y


def clean_labels(values: Any) -> list[Any]:
    """Return the labels of an array or a table as texts or integers, with None for -1, '', nan and None."""
    return [_clean_label(value) for value in values]


def _clean_label(value: Any) -> Any:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return None if value.strip() in UNLABELLED_CELLS else compose(value).strip()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if value is None or value != value or (value == -1 and not isinstance(value, bool)) else value


def naming_by_row(n_samples: int, names: Sequence[str] | None = None) -> Naming:
    """Return a Naming that finds samples by their names; if they have none, by row number, counted from 0."""
    by_name: dict[str, list[int]] = {}
    for i, name in enumerate(names or ()):
        by_name.setdefault(name, []).append(i)

    def find(cell: str) -> int | None:
        cell = cell.strip()
        if by_name:
            found = by_name.get(cell, [])
            if len(found) > 1:
                raise LabelError(
                    f"{cell!r} in the label file names {len(found)} rows, first {found[0]} and {found[1]}. Use unique names."
                )
            return found[0] if found else None
        is_number = cell.isdecimal() and len(cell.lstrip("0")) <= len(str(n_samples))
        row = int(cell.lstrip("0") or "0") if is_number else n_samples
        return row if row < n_samples else None

    example = names[0] if names else "0"
    headers = ("row", "index", "id", "name", "path", "file", "filename")
    return Naming(headers, find, "row", example, lambda cell: not by_name and cell.strip().lstrip("-").isdecimal())
