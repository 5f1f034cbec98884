"""Delimited text: cells separated by comma, semicolon, tab or bar, in UTF-8 or UTF-16, with or without a byte order mark."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TextIO

from samekind.data.readers.reader import require_regular_file
from samekind.errors import DataError, SamekindError

SEPARATORS = ",;\t|"
# largest number of characters in a cell; the default of the csv module, 131,072, is too small for the text of a book
MAX_CELL = 1 << 26
# largest number of characters in a line, so that a file without line breaks is not read into memory as one line
MAX_LINE = 1 << 26
END = "\U0010ffffend"  # appended as a last line; if it is inside a cell, a quotation mark was not closed
SAMPLE = 1 << 16  # number of bytes at the beginning of a file from which the separator is detected
csv.field_size_limit(MAX_CELL)
BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


@dataclass(frozen=True)
class DelimitedText:
    """A text file with separated cells, which can be read several times. A problem raises an exception of the class `error`."""

    path: Path
    separator: str
    encoding: str
    error: type[SamekindError] = DataError

    def rows(self, *, empty: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Yield (line number, cells) for each row that is not blank. Line numbers begin at 1, as in an editor.

        With `empty`, rows of several cells that are all empty are yielded too, except before the first row with content.
        """
        line = 0
        try:
            with self.path.open(newline="", encoding=self.encoding) as file:
                reader = csv.reader(
                    chain(limited_lines(file, self.path, self.error), [END]), delimiter=self.separator, skipinitialspace=True
                )
                width = 0
                for cells in reader:
                    if cells and cells[-1].endswith(END):
                        self._require_end(cells, line)
                        return
                    line = reader.line_num
                    # a quoted empty cell counts as a row, because in a table of one column it may be an empty text
                    is_blank = not any(cell.strip() for cell in cells) and not (cells and width == 1)
                    is_blank = is_blank and not (empty and width > 1 and len(cells) > 1)
                    if not is_blank and not _is_separator_line(line, cells):
                        width = width or len(cells)
                        yield line, cells
        except UnicodeDecodeError as reason:
            raise self.error(f"{not_utf8(self.path, reason, line)}. Save it as 'CSV UTF-8'.") from reason
        except csv.Error as reason:
            raise self.error(
                f"{self.path} is not delimited text after line {line} ({reason}). Save it as 'CSV UTF-8'."
            ) from reason
        except OSError as reason:
            raise self.error(_cannot_open(self.path, reason)) from reason

    def _require_end(self, cells: list[str], line: int) -> None:
        """Raise the error if the row that contains END contains anything else.

        Then a quotation mark after `line` was not closed, and END is inside a quoted cell.
        """
        if cells != [END]:
            raise self.error(
                f"{self.path} is not delimited text after line {line}: a quotation mark there is never closed, and the rest of "
                "the file is one cell. Close it."
            )


def limited_lines(file: TextIO, path: Path, error: type[SamekindError] = DataError) -> Iterator[str]:
    """Yield the lines of an open file; raise `error` for a line of more than MAX_LINE characters."""
    number = 1
    while line := file.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise error(
                f"{path}: line {number} has more than {MAX_LINE:,} characters. Expected text with one sample in a line."
            )
        yield line
        number += 1


def not_utf8(path: Path, reason: UnicodeDecodeError, line: int) -> str:
    """Return a clause that names the first line of a file that is not UTF-8; `line` is the last line that was read.

    Files are decoded in large blocks, so the wrong line may be far behind the last one that was read.
    """
    if reason.encoding.startswith("utf-8"):
        with path.open("rb") as file:
            for number, content in enumerate(file, 1):
                try:
                    content.decode()
                except UnicodeDecodeError as wrong:
                    return f"{path} is not UTF-8 text: line {number} holds the byte {content[wrong.start]:#04x}"
    return f"{path} is not UTF-8 text (byte {reason.object[reason.start]:#04x} after line {line})"


def open_delimited_text(path: Path, error: type[SamekindError] = DataError) -> DelimitedText:
    """Detect the encoding and the separator at the beginning of the file, and return the opened file."""
    require_regular_file(path, error)
    try:
        with path.open("rb") as file:
            sample = file.read(SAMPLE)
            is_complete = not file.read(1)
    except OSError as reason:
        raise error(_cannot_open(path, reason)) from reason
    encoding = next((name for bom, name in BYTE_ORDER_MARKS.items() if sample.startswith(bom)), "utf-8")
    if b"\0" in sample and encoding != "utf-16":
        raise error(
            f"{path} is not UTF-8 text: it holds NUL bytes, like UTF-16 without a byte order mark. Save it as 'CSV UTF-8'."
        )
    lines = sample.decode(encoding, errors="replace").splitlines(keepends=True)
    return DelimitedText(path, _separator(lines if is_complete else lines[:-1]), encoding, error)


def _separator(lines: list[str]) -> str:
    """Return the separator that splits the first row, and the most other rows into the same number of cells."""
    if lines and (named := lines[0].strip().lower()).startswith("sep=") and len(named) == 5:
        return lines[0].strip()[4]
    best, best_score = SEPARATORS[0], (0.0, 0)
    for separator in SEPARATORS:
        try:
            widths = [len(cells) for cells in csv.reader(lines, delimiter=separator, skipinitialspace=True) if cells]
        except csv.Error:
            continue
        if widths and widths[0] > 1:
            score = (widths.count(widths[0]) / len(widths), widths[0])
            best, best_score = (separator, score) if score > best_score else (best, best_score)
    return best


def _is_separator_line(line: int, cells: list[str]) -> bool:
    # a first line such as "sep=;", which spreadsheets write, declares the separator and is no data
    return line == 1 and cells[0].strip().lower().startswith("sep=")


def _cannot_open(path: Path, reason: OSError) -> str:
    return f"{path} cannot be opened ({reason.strerror or reason}). Check the path and its permissions."
