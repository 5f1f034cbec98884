"""Arrow and Feather tables: found by suffix, read in the same way again, and damaged files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as arrow  # type: ignore[import-untyped]
import pytest
from pyarrow import feather

from samekind.data.readers.reader import Reader, find_reader
from samekind.errors import DataError

TABLE = {"name": ["a", "b", "c"], "size": [1.5, 2.5, 3.5], "color": ["red", "blue", "red"], "label": ["cat", None, "dog"]}


def reader_of(path: Path) -> Reader:
    reader = find_reader(path)
    assert reader is not None
    return reader


@pytest.mark.parametrize("name", ["a.feather", "a.arrow"])
def test_an_arrow_file_is_read_by_its_suffix(tmp_path: Path, name: str) -> None:
    feather.write_feather(arrow.table(TABLE), tmp_path / name, chunksize=2)
    data = reader_of(tmp_path / name).read(tmp_path / name, None, None)
    assert data.x.tolist() == [[1.5, 0, 1], [2.5, 1, 0], [3.5, 0, 1]]
    assert data.y.tolist() == ["cat", None, "dog"] and data.names == ("a", "b", "c")


def test_another_arrow_file_is_encoded_like_the_first(tmp_path: Path) -> None:
    feather.write_feather(arrow.table(TABLE), tmp_path / "a.feather")
    feather.write_feather(arrow.table({"size": [4.0], "color": ["blue"]}), tmp_path / "b.feather")
    reader = reader_of(tmp_path / "a.feather")
    encoding = reader.read(tmp_path / "a.feather", None, None).encoding
    assert reader.read_like(tmp_path / "b.feather", encoding, None).x.tolist() == [[4, 1, 0]]


def test_a_file_that_is_not_arrow_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.feather").write_text("a,b\n")
    with pytest.raises(DataError, match="cannot be read as an Arrow file"):
        reader_of(tmp_path / "a.feather").read(tmp_path / "a.feather", None, None)
