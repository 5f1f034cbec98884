"""Tables block by block: headers, ragged rows, the types of Parquet, and a sentence where pyarrow is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow  # type: ignore[import-untyped]
import pytest
from pyarrow import parquet

from samekind.data.readers import table_blocks
from samekind.data.readers.table_blocks import open_table
from samekind.errors import DataError


def text(tmp_path: Path, content: str) -> table_blocks.TableBlocks:
    (tmp_path / "a.csv").write_text(content)
    return open_table(tmp_path / "a.csv")


def table(tmp_path: Path, **columns: Any) -> table_blocks.TableBlocks:
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    return open_table(tmp_path / "a.parquet")


def test_blocks_follow_each_other_and_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_blocks, "SIZE", 3)
    read = text(tmp_path, "a,b\n" + "".join(f"{i},{i * i}\n" for i in range(8)))
    for _ in range(2):
        assert [len(block) for block in read] == [3, 3, 2]
        assert [cell for block in read for cell in block.features("b")] == [str(i * i) for i in range(8)]
    assert [block.where(1) for block in read] == ["line 3", "line 6", "line 9"]


def test_rows_with_too_few_or_too_many_cells_are_told(tmp_path: Path) -> None:
    (block,) = text(tmp_path, "a,b\n1,2\n1\n1,2,3\n")
    assert block.ragged == {1: "1 cells, and 2 are expected", 2: "3 cells, and 2 are expected"}
    assert block.features("b") == ["2", "", "2"]


@pytest.mark.parametrize("header", ["a,b,label", "0,1,2", "1,2,3", ",0,1,label", "x,y,0"])
def test_a_header_is_known(tmp_path: Path, header: str) -> None:
    assert text(tmp_path, header + "\n1,2,3,4\n").header == [cell or "Unnamed: 0" for cell in header.split(",")]


@pytest.mark.parametrize("first", ["5.1,3.5,setosa", "0,2,1", "3"])
def test_a_table_without_header_is_refused_with_the_way_out(tmp_path: Path, first: str) -> None:
    with pytest.raises(DataError, match=r"begins with numbers .* Add a line such as: a,b,label"):
        text(tmp_path, first + "\n")


@pytest.mark.parametrize(("content", "words"), [("", "is empty"), ("a,b,a\n1,2,3\n", "two columns called 'a'")])
def test_a_header_that_cannot_be_used_is_refused(tmp_path: Path, content: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        text(tmp_path, content)


def test_every_kind_of_number_in_parquet_is_a_number(tmp_path: Path) -> None:
    columns = {
        "int": arrow.array([1, None, 3], arrow.int16()),
        "float": arrow.array([1.5, None, 3.0], arrow.float32()),
        "bool": arrow.array([True, None, False]),
        "decimal": arrow.array([1, None, 3], arrow.decimal128(5, 2)),
        "codes": arrow.array([7, None, 9]).dictionary_encode(),
    }
    (block,) = table(tmp_path, **columns)
    expected = {"int": [1, 3], "float": [1.5, 3], "bool": [1, 0], "decimal": [1, 3], "codes": [7, 9]}
    for name, ends in expected.items():
        cells = block.features(name)
        assert isinstance(cells, np.ndarray) and cells.dtype == np.float64
        assert cells[[0, 2]].tolist() == ends and np.isnan(cells[1])


def test_text_in_parquet_is_text_and_gaps_are_empty(tmp_path: Path) -> None:
    words = arrow.array(["cat", None, "dog"])
    (block,) = table(tmp_path, a=words, b=words.dictionary_encode(), c=words.cast(arrow.large_string()), d=arrow.nulls(3))
    for name in "abc":
        assert block.features(name) == ["cat", "", "dog"]
    assert block.features("d") == ["", "", ""]
    assert block.values("a") == ["cat", None, "dog"]


def test_other_types_are_refused_by_name(tmp_path: Path) -> None:
    (block,) = table(tmp_path, vector=[[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(DataError, match=r"column 'vector' is of type list<.*expected numbers or text.*\.npy file"):
        block.features("vector")


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("a,b\n")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        open_table(tmp_path / "a.parquet")


def test_parquet_damaged_in_its_middle_is_refused(tmp_path: Path) -> None:
    read = table(tmp_path, a=np.arange(1000.0))
    blob = bytearray((tmp_path / "a.parquet").read_bytes())
    blob[4:200] = b"\xff" * 196
    (tmp_path / "a.parquet").write_bytes(blob)
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        list(read)


def test_without_pyarrow_a_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(tmp_path, a=[1])
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(DataError, match=r"needs pyarrow, which is not installed. Install samekind\[parquet\]"):
        open_table(tmp_path / "a.parquet")
