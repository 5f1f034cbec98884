"""Text tables in blocks of rows: the header, and rows with too many or too few cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from samekind.data.readers import csv_file
from samekind.data.readers.csv_file import open_csv_table
from samekind.data.readers.table import TableBlocks
from samekind.errors import DataError


def text(tmp_path: Path, content: str) -> TableBlocks:
    (tmp_path / "a.csv").write_text(content)
    return open_csv_table(tmp_path / "a.csv")


def test_blocks_follow_each_other_and_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "BLOCK_ROWS", 3)
    read = text(tmp_path, "a,b\n" + "".join(f"{i},{i * i}\n" for i in range(8)))
    for _ in range(2):
        assert [len(block) for block in read] == [3, 3, 2]
        assert [cell for block in read for cell in block.values("b")] == [str(i * i) for i in range(8)]
    assert [block.where(1) for block in read] == ["line 3", "line 6", "line 9"]


def test_missing_cells_at_the_end_of_a_row_are_empty_and_too_many_cells_are_reported(tmp_path: Path) -> None:
    (block,) = text(tmp_path, "a,b\n1,2\n1\n1,2,3\n")
    assert block.ragged == {2: "3 cells; expected 2"}
    assert block.features("b") == ["2", "", "2"]


@pytest.mark.parametrize("header", ["a,b,label", "0,1,2", "1,2,3", ",0,1,label", "x,y,0"])
def test_a_header_is_recognized(tmp_path: Path, header: str) -> None:
    assert text(tmp_path, header + "\n1,2,3,4\n").header == [cell or "Unnamed: 0" for cell in header.split(",")]


@pytest.mark.parametrize("first", ["5.1,3.5,setosa", "0,2,1", "3"])
def test_a_table_without_header_is_refused_with_advice(tmp_path: Path, first: str) -> None:
    with pytest.raises(DataError, match=r"begins with numbers .* Add a line such as: a,b,label"):
        text(tmp_path, first + "\n")


@pytest.mark.parametrize(("content", "message"), [("", "is empty"), ("a,b,a\n1,2,3\n", "two columns called 'a'")])
def test_a_header_that_cannot_be_used_is_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        text(tmp_path, content)


def test_a_header_of_many_columns_is_checked_in_one_pass(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",".join(f"c{i}" for i in range(100_000)) + ",c99999\n")
    with pytest.raises(DataError, match="two columns called 'c99999'"):
        open_csv_table(tmp_path / "a.csv")


def test_a_row_whose_cells_are_all_empty_is_a_row_and_a_blank_line_is_none(tmp_path: Path) -> None:
    (block,) = text(tmp_path, ",,\na,b\n1,2\n,\n\n3,4\n")
    assert block.values("a") == ["1", "", "3"] and block.where(1) == "line 4"
