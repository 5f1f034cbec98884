"""Tables of features: numbers, categories, missing values, labels and names; and new tables."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pyarrow as arrow  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from samekind.data.readers.csv_file import open_csv_table
from samekind.data.readers.parquet_file import open_parquet_table
from samekind.data.readers.reader import FeatureColumn, TableLayout, UserData
from samekind.data.readers.table import read_table, read_table_like
from samekind.errors import DataError, LabelError


def table(tmp_path: Path, text: str, *, label_column: str | None = None, labels: str | None = None) -> UserData:
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    if labels is not None:
        (tmp_path / "l.csv").write_text(labels)
    return read_table(open_csv_table(tmp_path / "a.csv"), tmp_path / "l.csv" if labels is not None else None, label_column)


def layout(data: UserData) -> TableLayout:
    assert data.encoding.layout is not None
    return data.encoding.layout


def like(tmp_path: Path, fitted: TableLayout, text: str) -> UserData:
    (tmp_path / "b.csv").write_text(text)
    return read_table_like(open_csv_table(tmp_path / "b.csv"), fitted)


# ---------------------------------------------------------------- columns


def test_features_label_and_id_are_distinguished(tmp_path: Path) -> None:
    read = table(tmp_path, "id,a,Label,b\nx1,1,cat,2.5\nx2,-3e2,,4\n")
    assert read.x.dtype == np.float32 and read.x.tolist() == [[1, 2.5], [-300, 4]]
    assert read.y.tolist() == ["cat", None]
    assert read.names == ("x1", "x2")
    assert layout(read) == TableLayout((FeatureColumn("a"), FeatureColumn("b")), "Label", "id")


def test_without_an_id_rows_are_numbered_from_0(tmp_path: Path) -> None:
    assert table(tmp_path, "a,b\n1,2\n3,4\n").names == ("0", "1")


@pytest.mark.parametrize("name", ["label", "y", "class", "Target"])
def test_the_usual_label_columns_are_recognized(tmp_path: Path, name: str) -> None:
    assert table(tmp_path, f"a,{name}\n1,cat\n2,-1\n").y.tolist() == ["cat", None]


def test_a_table_of_points_keeps_its_y(tmp_path: Path) -> None:
    read = table(tmp_path, "x,y,label\n1,2,cat\n3,4,dog\n")
    assert read.x.tolist() == [[1, 2], [3, 4]] and read.y.tolist() == ["cat", "dog"]


def test_two_possible_label_columns_are_refused_and_one_can_be_chosen(tmp_path: Path) -> None:
    text = "a,class,target\n1,cat,0\n2,dog,1\n"
    with pytest.raises(
        LabelError, match=r"several columns that could hold the labels: class and target\. Name one with label_column"
    ):
        table(tmp_path, text)
    assert table(tmp_path, text, label_column="CLASS").y.tolist() == ["cat", "dog"]
    with pytest.raises(LabelError, match="no column 'clas'; did you mean 'class'"):
        table(tmp_path, text, label_column="clas")


def test_text_columns_are_one_hot_encoded_in_alphabetical_order(tmp_path: Path) -> None:
    read = table(tmp_path, "a,colour,b\n1,red,9\n2,blue,9\n3, red ,9\n4,,9\n")
    assert layout(read).columns == (FeatureColumn("a"), FeatureColumn("colour", ("", "blue", "red")), FeatureColumn("b"))
    assert read.x.tolist() == [[1, 0, 0, 1, 9], [2, 0, 1, 0, 9], [3, 0, 0, 1, 9], [4, 1, 0, 0, 9]]


def test_twenty_categories_are_accepted_and_twenty_one_are_refused(tmp_path: Path) -> None:
    twenty = "a,word\n" + "".join(f"1,w{i:02d}\n" for i in range(20))
    assert table(tmp_path, twenty).x.shape == (20, 21)
    with pytest.raises(DataError, match=r"column 'word' holds text with more than 20 categories, first 'w00' in line 2"):
        table(tmp_path, twenty + "1,w20\n")


def test_text_in_a_numeric_column_is_refused_with_its_line(tmp_path: Path) -> None:
    text = "a\n" + "".join(f"{i}\n" for i in range(30)) + "oops\n"
    with pytest.raises(DataError, match=r"column 'a' holds numbers, but text in 1 of 31 rows, first 'oops' in line 32"):
        table(tmp_path, text)


def test_decimal_commas_are_read_unless_the_comma_separates(tmp_path: Path) -> None:
    assert table(tmp_path, "a;b\n1,5;-2,25\n3;4\n").x.tolist() == [[1.5, -2.25], [3, 4]]


def test_an_empty_column_is_skipped_and_listed_unless_it_has_no_name(tmp_path: Path) -> None:
    read = table(tmp_path, "a,b,\n1,,\n2,NA,\n")
    assert layout(read).columns == (FeatureColumn("a"),)
    assert [str(one) for one in read.skipped] == ["'column b': empty in every row"]


def test_the_first_column_of_a_saved_dataframe_is_its_index(tmp_path: Path) -> None:
    read = table(tmp_path, ",0,1,label\n10,1,2,cat\n11,3,4,dog\n")
    assert read.names == ("10", "11") and read.x.tolist() == [[1, 2], [3, 4]]


def test_a_table_that_lists_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no feature column .*If the table lists images, pass the folder of the images"):
        table(tmp_path, "path,label\na.png,cat\n")


# ---------------------------------------------------------------- rows


def test_rows_with_missing_values_are_skipped_with_line_and_column(tmp_path: Path) -> None:
    read = table(tmp_path, "id,a,b,label\nu,1,2,cat\nv,,2,dog\nw,1,1e99,dog\nx,1\ny,5,6,\n")
    assert read.x.tolist() == [[1, 2], [5, 6]]
    assert read.names == ("u", "y") and read.y.tolist() == ["cat", None]
    assert [str(one) for one in read.skipped] == [
        "'v': line 3: column 'a' is empty",
        "'w': line 4: column 'b' is too large",
        "'x': line 5: 2 cells; expected 4",
    ]


def test_a_table_without_usable_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no usable row. The first: '0': line 2: column 'b' is empty"):
        table(tmp_path, "a,b\n1,\n,2\n")
    with pytest.raises(DataError, match="no feature column"):
        table(tmp_path, "a,b\n")


def test_labels_from_another_file_by_row_or_by_name(tmp_path: Path) -> None:
    by_row = table(tmp_path, "a,label\n1,x\n,x\n3,x\n", labels="row,label\n2,cat\n9,dog\n")
    assert by_row.y.tolist() == [None, "cat"]
    assert [one.path for one in by_row.skipped] == ["1", "9"]
    assert table(tmp_path, "id,a\nu,1\nv,2\n", labels="id,label\nv,cat\n").y.tolist() == [None, "cat"]


NUMBER = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 5).flatmap(lambda n: st.lists(st.lists(NUMBER, min_size=n, max_size=n), min_size=1, max_size=9)),
    separator=st.sampled_from(",;\t"),
)
def test_any_numbers_survive_a_round_trip(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[float]], separator: str
) -> None:
    file = io.StringIO()
    csv.writer(file, delimiter=separator).writerows(
        [[f"c{i}" for i in range(len(rows[0]))] + ["label"], *([*r, "cat"] for r in rows)]
    )
    read = table(tmp_path_factory.mktemp("table"), file.getvalue())
    assert np.array_equal(read.x, np.array(rows, dtype=np.float32))


def test_blocks_are_concatenated_in_order(tmp_path: Path) -> None:
    read = table(tmp_path, "a,label\n" + "".join(f"{i},{i % 3}\n" for i in range(10_000)))
    assert np.array_equal(read.x[:, 0], np.arange(10_000)) and read.y[9_999] == "0"


# ---------------------------------------------------------------- Parquet


def test_parquet_gives_the_same_as_text(tmp_path: Path) -> None:
    columns = {"id": ["u", "v", "w"], "a": [1, 2, 3], "colour": ["red", "blue", "red"], "label": ["cat", None, "dog"]}
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    read = read_table(open_parquet_table(tmp_path / "a.parquet"))
    text = table(tmp_path, "id,a,colour,label\nu,1,red,cat\nv,2,blue,\nw,3,red,dog\n")
    assert np.array_equal(read.x, text.x) and layout(read) == layout(text)
    assert read.y.tolist() == text.y.tolist() and read.names == text.names


def test_integer_labels_are_accepted_and_fractions_are_refused(tmp_path: Path) -> None:
    parquet.write_table(arrow.table({"a": [1.0, 2.0, 3.0], "y": [0, None, -1]}), tmp_path / "a.parquet")
    assert read_table(open_parquet_table(tmp_path / "a.parquet")).y.tolist() == [0, None, None]
    parquet.write_table(arrow.table({"a": [1.0, 2.0], "y": [0.5, 1.5]}), tmp_path / "a.parquet")
    with pytest.raises(LabelError, match="column 'y' holds fractions, like a regression target"):
        read_table(open_parquet_table(tmp_path / "a.parquet"))


def test_missing_values_in_parquet_are_listed_by_row(tmp_path: Path) -> None:
    parquet.write_table(arrow.table({"a": [1.0, None, float("inf")]}), tmp_path / "a.parquet")
    assert [str(one) for one in read_table(open_parquet_table(tmp_path / "a.parquet")).skipped] == [
        "'1': row 1: column 'a' is empty",
        "'2': row 2: column 'a' is too large",
    ]


# ---------------------------------------------------------------- new rows


LAYOUT = TableLayout((FeatureColumn("a"), FeatureColumn("colour", ("blue", "red"))), "label", "id")


def test_new_rows_are_read_by_the_names_of_columns_in_any_order(tmp_path: Path) -> None:
    read = like(tmp_path, LAYOUT, "more,colour,a\n7,red,1\n7,blue,2\n")
    assert read.x.tolist() == [[1, 0, 1], [2, 1, 0]]
    assert read.y.tolist() == [None, None] and read.names == ("0", "1")


def test_labels_and_names_of_new_rows_are_optional(tmp_path: Path) -> None:
    read = like(tmp_path, LAYOUT, "id,label,colour,a\nu,cat,red,1\n")
    assert read.y.tolist() == ["cat"] and read.names == ("u",)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lacks 1 of the 2 columns that the model was fitted on: colour. It has: a, b"):
        like(tmp_path, LAYOUT, "a,b\n1,2\n")


def test_new_categories_and_text_for_numbers_are_skipped_with_the_reason(tmp_path: Path) -> None:
    read = like(tmp_path, LAYOUT, "a,colour\n1,red\n2,teal\nx,red\n")
    assert len(read.x) == 1
    assert [one.reason for one in read.skipped] == [
        "line 3: column 'colour' holds 'teal', a category that did not occur at fit",
        "line 4: column 'a' holds 'x'; expected a number",
    ]


def test_categories_from_text_match_numbers_in_parquet(tmp_path: Path) -> None:
    fitted = TableLayout((FeatureColumn("grade", ("1", "2", "A")),), None, None)
    parquet.write_table(arrow.table({"grade": [2, 1]}), tmp_path / "a.parquet")
    assert read_table_like(open_parquet_table(tmp_path / "a.parquet"), fitted).x.tolist() == [[0, 1, 0], [1, 0, 0]]
