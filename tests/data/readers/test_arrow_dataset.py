"""Arrow files and folders of Hugging Face datasets: order of the files, names of the classes, and damaged folders."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as arrow  # type: ignore[import-untyped]
import pytest

from samekind.data.readers.arrow_dataset import is_arrow_dataset, open_arrow_dataset
from samekind.errors import DataError


def write_stream(path: Path, table: arrow.Table) -> None:
    with arrow.OSFile(str(path), "wb") as sink, arrow.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_stream(tmp_path / "b.arrow", arrow.table({"a": [1.0, 2.0], "label": [1, -1]}))
    write_stream(tmp_path / "a.arrow", arrow.table({"a": [3.0], "label": [0]}))
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "b.arrow"}, {"filename": "a.arrow"}]}))
    features = {"label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}
    (tmp_path / "dataset_info.json").write_text(json.dumps({"features": features}))
    return tmp_path


def test_files_are_read_in_the_listed_order_and_class_numbers_become_names(folder: Path) -> None:
    assert is_arrow_dataset(folder)
    blocks = list(open_arrow_dataset(folder))
    assert [value for block in blocks for value in block.values("a")] == [1.0, 2.0, 3.0]
    assert [value for block in blocks for value in block.values("label")] == ["dog", -1, "cat"]
    assert [block.where(0) for block in blocks] == ["row 0", "row 2"]


def test_a_file_in_the_file_format_is_read_too(tmp_path: Path) -> None:
    table = arrow.table({"a": [1, 2]})
    with arrow.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, arrow.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)
    (block,) = open_arrow_dataset(tmp_path / "a.arrow")
    assert block.values("a") == [1, 2]


def test_several_splits_without_one_called_train_are_named(folder: Path) -> None:
    (folder / "dataset_dict.json").write_text('{"splits": ["test", "validation"]}')
    with pytest.raises(DataError, match="test, validation"):
        open_arrow_dataset(folder)


def test_a_cut_file_is_refused(folder: Path) -> None:
    blob = (folder / "b.arrow").read_bytes()
    (folder / "b.arrow").write_bytes(blob[: len(blob) // 2])
    with pytest.raises(DataError, match=r"b\.arrow cannot be read as Arrow"):
        list(open_arrow_dataset(folder))


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "a.arrow").unlink()
    with pytest.raises(DataError, match=r"a\.arrow"):
        list(open_arrow_dataset(folder))
