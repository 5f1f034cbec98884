"""Delimited text: separators, byte order marks, quotes and encodings, and the error for other files."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samekind.data.readers.delimited_text import open_delimited_text
from samekind.errors import DataError, LabelError

# a cell that survives a spreadsheet: no space before or after it
CELL = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n\t"), min_size=1, max_size=12).filter(
    lambda text: text == text.strip() and not text.lower().startswith("sep=")
)


def rows_of(path: Path, blob: bytes) -> list[list[str]]:
    path.write_bytes(blob)
    return [cells for _, cells in open_delimited_text(path).rows()]


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(2, 4).flatmap(lambda n: st.lists(st.lists(CELL, min_size=n, max_size=n), min_size=1, max_size=8)))
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], separator: str, encoding: str
) -> None:
    path = tmp_path_factory.mktemp("sheet") / "a.csv"
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=separator, quoting=csv.QUOTE_ALL).writerows(
            [["path", *["label"] * (len(rows[0]) - 1)], *rows]
        )
    assert [cells for _, cells in open_delimited_text(path).rows()][1:] == rows


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_line_ending_is_accepted_and_blank_lines_are_ignored(tmp_path: Path, end: str) -> None:
    text = end.join(["a,b", "", "1,2", " , ", "3,4", ""])
    assert rows_of(tmp_path / "a.csv", text.encode()) == [["a", "b"], ["1", "2"], ["3", "4"]]


def test_line_numbers_are_those_of_an_editor(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,b\n\n1,2\n"x\ny",3\n')
    assert [line for line, _ in open_delimited_text(tmp_path / "a.csv").rows()] == [1, 3, 5]


def test_a_comma_inside_a_cell_is_not_taken_for_the_separator(tmp_path: Path) -> None:
    assert rows_of(tmp_path / "a.csv", b"path;label\na.png;cat, black\nb.png;dog, small, old\n")[1] == ["a.png", "cat, black"]


def test_a_first_line_that_names_the_separator_is_used(tmp_path: Path) -> None:
    assert rows_of(tmp_path / "a.csv", b"sep=;\na,1;b\nc,2;d\n") == [["a,1", "b"], ["c,2", "d"]]


def test_a_quote_after_a_space_is_a_quote(tmp_path: Path) -> None:
    assert rows_of(tmp_path / "a.csv", b'path, label\na.png, "cat, black"\n')[1] == ["a.png", "cat, black"]


def test_the_separator_of_a_long_file_is_detected_from_its_beginning(tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "a.csv", b"a;b\n" + b"1,5;2,5\n" * 20_000)
    assert len(rows) == 20_001 and rows[-1] == ["1,5", "2,5"]


def test_other_encodings_are_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not UTF-8 text: line 2 holds the byte 0xe4. Save it as 'CSV UTF-8'"):
        rows_of(tmp_path / "a.csv", "a,b\nKäfer,2\n".encode("latin-1"))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not delimited text"):
        rows_of(tmp_path / "a.csv", b"a,b\n" + b'"' + b"x" * 200_000)


def test_a_missing_file_raises_the_given_error(tmp_path: Path) -> None:
    with pytest.raises(LabelError, match=r"cannot be opened \(No such file"):
        open_delimited_text(tmp_path / "a.csv", LabelError)


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    assert rows_of(tmp_path / "a.csv", b"") == []


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_utf16_without_a_byte_order_mark_is_refused(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.csv").write_bytes("a,b\n1,2\n".encode(encoding))
    with pytest.raises(DataError, match="holds NUL bytes, like UTF-16 without a byte order mark"):
        open_delimited_text(tmp_path / "a.csv")
