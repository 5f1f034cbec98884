"""Parquet tables in blocks of rows: column types, damaged files, and the error without pyarrow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow  # type: ignore[import-untyped]
import pytest
from pyarrow import parquet

from samekind.data.columns.typed_table import Column
from samekind.data.readers.parquet_file import open_parquet_table
from samekind.data.readers.table import TableBlocks
from samekind.errors import DataError


def table(tmp_path: Path, **columns: Any) -> TableBlocks:
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    return open_parquet_table(tmp_path / "a.parquet")


def test_all_numeric_types_of_parquet_become_floats(tmp_path: Path) -> None:
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
        assert isinstance(cells, Column) and cells.kind == ("boolean" if name == "bool" else "number")
        assert cells.values[[0, 2]].tolist() == ends and np.isnan(cells.values[1])


def test_text_in_parquet_stays_text_and_missing_values_are_empty(tmp_path: Path) -> None:
    texts = arrow.array(["cat", None, "dog"])
    (block,) = table(tmp_path, a=texts, b=texts.dictionary_encode(), c=texts.cast(arrow.large_string()), d=arrow.nulls(3))
    for name in "ac":
        assert block.features(name) == ["cat", "", "dog"]
    coded = block.features("b")
    assert isinstance(coded, Column) and coded.kind == "category" and coded.values.tolist() == ["cat", None, "dog"]
    assert block.features("d") == ["", "", ""]
    assert block.values("a") == ["cat", None, "dog"]


def test_other_types_are_refused_by_name(tmp_path: Path) -> None:
    (block,) = table(tmp_path, vector=[[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(DataError, match=r"column 'vector' is of type list<.*expected numbers, text.*\.npy file"):
        block.features("vector")


def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("a,b\n")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        open_parquet_table(tmp_path / "a.parquet")


def test_parquet_damaged_in_its_middle_is_refused(tmp_path: Path) -> None:
    read = table(tmp_path, a=np.arange(1000.0))
    blob = bytearray((tmp_path / "a.parquet").read_bytes())
    blob[4:200] = b"\xff" * 196
    (tmp_path / "a.parquet").write_bytes(blob)
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        list(read)


def test_without_pyarrow_the_error_names_the_extra_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(tmp_path, a=[1])
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(DataError, match=r"needs pyarrow, which is not installed. Install samekind\[parquet\]"):
        open_parquet_table(tmp_path / "a.parquet")


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    columns = [arrow.array([1.0, 2.0]), arrow.array([3.0, 4.0])]
    parquet.write_table(arrow.Table.from_arrays(columns, names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="two columns called 'a'"):
        open_parquet_table(tmp_path / "a.parquet")
