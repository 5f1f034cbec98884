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

from samekind.data.columns.typed_table import TypedTable
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


def numbers(data: UserData) -> list[list[float]]:
    """Return the rows of a table of numbers."""
    assert isinstance(data.x, TypedTable)
    return list(np.column_stack([column.values for column in data.x.columns.values()]).tolist())


def values(data: UserData, name: str) -> list[object]:
    return list(data.x.columns[name].values)


# ---------------------------------------------------------------- columns


def test_features_label_and_id_are_distinguished(tmp_path: Path) -> None:
    read = table(tmp_path, "id,a,Label,b\nx1,1,cat,2.5\nx2,-3e2,,4\n")
    assert numbers(read) == [[1, 2.5], [-300, 4]]
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
    assert numbers(read) == [[1, 2], [3, 4]] and read.y.tolist() == ["cat", "dog"]


def test_two_possible_label_columns_are_refused_and_one_can_be_chosen(tmp_path: Path) -> None:
    text = "a,class,target\n1,cat,0\n2,dog,1\n"
    with pytest.raises(
        LabelError, match=r"several columns that could hold the labels: class and target\. Name one with label_column"
    ):
        table(tmp_path, text)
    assert table(tmp_path, text, label_column="CLASS").y.tolist() == ["cat", "dog"]
    with pytest.raises(LabelError, match="no column 'clas'; did you mean 'class'"):
        table(tmp_path, text, label_column="clas")


def test_text_true_or_false_and_dates_are_recognized(tmp_path: Path) -> None:
    read = table(tmp_path, "a,colour,new,seen\n1,red,yes,2.1.2020\n2, blue ,no,31.12.2020\n3,,,\n")
    kinds = [(column.kind, column.date_format) for column in layout(read).columns]
    assert kinds == [("number", ""), ("text", ""), ("boolean", ""), ("date", "%d.%m.%Y")]
    assert values(read, "colour") == ["red", "blue", None]
    assert values(read, "new")[:2] == [1.0, 0.0] and np.isnat(read.x.columns["seen"].values[2])
    assert read.x.columns["seen"].values[1] == np.datetime64("2020-12-31")


def test_text_among_many_numbers_counts_as_missing_and_is_reported_with_its_line(tmp_path: Path) -> None:
    read = table(tmp_path, "a\n" + "".join(f"{i}\n" for i in range(30)) + "oops\n")
    assert np.isnan(read.x.columns["a"].values[30])
    assert read.x.columns["a"].unread == "unreadable cells, which count as missing: 1, first 'oops' in line 32"


def test_decimal_commas_are_read_unless_the_comma_separates(tmp_path: Path) -> None:
    assert numbers(table(tmp_path, "a;b\n1,5;-2,25\n3;4\n")) == [[1.5, -2.25], [3, 4]]


def test_the_first_column_of_a_saved_dataframe_is_its_index(tmp_path: Path) -> None:
    read = table(tmp_path, ",0,1,label\n10,1,2,cat\n11,3,4,dog\n")
    assert read.names == ("10", "11") and numbers(read) == [[1, 2], [3, 4]]


def test_a_table_that_lists_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no feature column .*If the table lists images, pass the folder of the images"):
        table(tmp_path, "path,label\na.png,cat\n")


# ---------------------------------------------------------------- rows


def test_rows_with_missing_or_too_large_values_stay_and_long_rows_are_skipped(tmp_path: Path) -> None:
    read = table(tmp_path, "id,a,b,label\nu,1,2,cat\nv,,2,dog\nw,1,1e99,dog\nx,1\ny,5,6,,,8\nz,7,8,,\n")
    assert read.names == ("u", "v", "w", "x", "z") and read.y.tolist() == ["cat", "dog", "dog", None, None]
    np.testing.assert_array_equal(numbers(read), [[1, 2], [np.nan, 2], [1, np.nan], [1, np.nan], [7, 8]])
    assert [str(one) for one in read.skipped] == ["'y': line 6: 6 cells; expected 4"]


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no usable row"):
        table(tmp_path, "a,b\n")
    with pytest.raises(DataError, match=r"no usable row\. The first: '0': line 2: 3 cells; expected 2"):
        table(tmp_path, "a,b\n1,2,3\n")


def test_labels_from_another_file_by_row_or_by_name(tmp_path: Path) -> None:
    by_row = table(tmp_path, "a,label\n1,x\n,x\n3,x\n", labels="row,label\n2,cat\n9,dog\n")
    assert by_row.y.tolist() == [None, None, "cat"]
    assert [one.path for one in by_row.skipped] == ["9"]
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
    assert numbers(read) == rows


def test_blocks_are_concatenated_in_order(tmp_path: Path) -> None:
    read = table(tmp_path, "a,label\n" + "".join(f"{i},{i % 3}\n" for i in range(10_000)))
    assert np.array_equal(read.x.columns["a"].values, np.arange(10_000)) and read.y[9_999] == "0"


# ---------------------------------------------------------------- Parquet


def test_parquet_gives_the_same_as_text(tmp_path: Path) -> None:
    columns = {"id": ["u", "v", "w"], "a": [1, 2, 3], "colour": ["red", "blue", "red"], "label": ["cat", None, "dog"]}
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    read = read_table(open_parquet_table(tmp_path / "a.parquet"))
    text = table(tmp_path, "id,a,colour,label\nu,1,red,cat\nv,2,blue,\nw,3,red,dog\n")
    assert all(values(read, name) == values(text, name) for name in ("a", "colour")) and layout(read) == layout(text)
    assert read.y.tolist() == text.y.tolist() and read.names == text.names


def test_integer_labels_are_accepted_and_fractions_are_refused(tmp_path: Path) -> None:
    parquet.write_table(arrow.table({"a": [1.0, 2.0, 3.0], "y": [0, None, -1]}), tmp_path / "a.parquet")
    assert read_table(open_parquet_table(tmp_path / "a.parquet")).y.tolist() == [0, None, None]
    parquet.write_table(arrow.table({"a": [1.0, 2.0], "y": [0.5, 1.5]}), tmp_path / "a.parquet")
    with pytest.raises(LabelError, match="column 'y' holds fractions, like a regression target"):
        read_table(open_parquet_table(tmp_path / "a.parquet"))


def test_missing_values_in_parquet_are_nan(tmp_path: Path) -> None:
    parquet.write_table(arrow.table({"a": [1.0, None, float("inf")]}), tmp_path / "a.parquet")
    read = read_table(open_parquet_table(tmp_path / "a.parquet"))
    np.testing.assert_array_equal(numbers(read), [[1], [np.nan], [np.nan]])
    assert read.x.columns["a"].unread == (
        "unreadable cells, which count as missing: 1, first a number too large for 32 bits in row 2"
    )


# ---------------------------------------------------------------- new rows


LAYOUT = TableLayout((FeatureColumn("a"), FeatureColumn("colour", "text")), "label", "id")


def test_new_rows_are_read_by_the_names_of_columns_in_any_order(tmp_path: Path) -> None:
    read = like(tmp_path, LAYOUT, "more,colour,a\n7,red,1\n7,blue,2\n")
    assert read.x.names == ("a", "colour") and values(read, "a") == [1, 2] and values(read, "colour") == ["red", "blue"]
    assert read.y.tolist() == [None, None] and read.names == ("0", "1")


def test_labels_and_names_of_new_rows_are_optional(tmp_path: Path) -> None:
    read = like(tmp_path, LAYOUT, "id,label,colour,a\nu,cat,red,1\n")
    assert read.y.tolist() == ["cat"] and read.names == ("u",)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lacks 1 of the 2 columns that the model was fitted on: colour. It has: a, b"):
        like(tmp_path, LAYOUT, "a,b\n1,2\n")


def test_a_column_that_has_changed_its_type_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"column 'a' held numbers at the fit, and now 2 of its 2 cells .* first 'x' in line 2"):
        like(tmp_path, LAYOUT, "a,colour\nx,red\ny,red\n,blue\n")


def test_one_wrong_cell_among_many_counts_as_missing(tmp_path: Path) -> None:
    read = like(tmp_path, LAYOUT, "a,colour\n" + "1,red\n" * 19 + "x,red\n")
    assert np.isnan(read.x.columns["a"].values).sum() == 1


def test_categories_from_text_match_numbers_in_parquet(tmp_path: Path) -> None:
    fitted = TableLayout((FeatureColumn("grade", "text"),), None, None)
    parquet.write_table(arrow.table({"grade": [2, 1]}), tmp_path / "a.parquet")
    assert values(read_table_like(open_parquet_table(tmp_path / "a.parquet"), fitted), "grade") == ["2", "1"]
