"""Labels of rows by number or name, and the cells that mean unlabelled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from samekind.data.readers.label_file import LabelFile, clean_labels, label_array, naming_by_row, read_label_file
from samekind.errors import LabelError


def read(tmp_path: Path, text: str, names: list[str] | None = None) -> LabelFile:
    (tmp_path / "l.csv").write_text(text)
    return read_label_file(tmp_path / "l.csv", naming_by_row(4, names))


@pytest.mark.parametrize(
    "text",
    [
        "row,label\n0,cat\n3,dog\n",
        "label;index\ncat;0\ndog;3\n",
        "0,cat\n3,dog\n",
        "cat,0\ndog,3\n",
        "Zeile,Art\n0,cat\n3,dog\n",
    ],
)
def test_rows_are_numbered_from_0(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).labels == {0: "cat", 3: "dog"}


def test_rows_are_found_by_name_if_they_have_names(tmp_path: Path) -> None:
    assert read(tmp_path, "id,label\nb,cat\n d ,dog\n", ["a", "b", "c", "d"]).labels == {1: "cat", 3: "dog"}


@pytest.mark.parametrize("row", ["4", "-2", "1.5", "x"])
def test_a_row_that_does_not_exist_is_skipped(tmp_path: Path, row: str) -> None:
    (missing,) = read(tmp_path, f"row,label\n0,cat\n{row},dog\n").missing
    assert str(missing) == f"{row!r}: listed in line 3 of l.csv, but there is no such row"


def test_a_name_of_two_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabelError, match="'a' in the label file names 2 rows, first 0 and 2"):
        read(tmp_path, "id,label\na,cat\n", ["a", "b", "a", "d"])


def test_a_label_file_that_matches_no_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabelError, match=r"names no row of this data: .* The first line names '7'. Expected names such as '0'"):
        read(tmp_path, "row,label\n7,cat\n")


def test_text_integers_and_bytes_are_labels_and_missing_values_are_none() -> None:
    given = ["cat", " dog ", "", "-1", b"owl", 3, 3.0, 0, -1, -1.0, float("nan"), None, True]
    assert clean_labels(given) == ["cat", "dog", None, None, "owl", 3, 3, 0, None, None, None, None, True]


def test_composed_and_decomposed_letters_are_one_class(tmp_path: Path) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    (tmp_path / "labels.csv").write_text(f"row,label\n0,{composed}\n1,{decomposed}\n", encoding="utf-8")
    labels = read_label_file(tmp_path / "labels.csv", naming_by_row(2)).labels
    assert set(labels.values()) == {composed} == set(clean_labels([composed, decomposed]))


def test_unlabelled_samples_are_none_in_the_label_array() -> None:
    y = label_array(3, {1: "cat"})
    assert y.dtype == object and y.tolist() == [None, "cat", None]
    assert np.array_equal(label_array(0, {}), np.empty(0, dtype=object))


@pytest.mark.parametrize("cell", ["9" * 5000, "0" * 5000 + "9", "²"])
def test_a_row_number_may_have_any_length(cell: str) -> None:
    assert naming_by_row(4).find(cell) is None
    assert naming_by_row(10).find("0" * 5000 + "9") == 9
