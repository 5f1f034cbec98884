"""Cells of text: missing values, numbers, booleans and dates; and the kind of a column."""

from __future__ import annotations

import numpy as np
import pytest

from samekind.data.columns.cells import CellSurvey, parse_cells, to_dates, to_numbers


def survey(cells: list[str]) -> CellSurvey:
    found = CellSurvey("a")
    found.add(cells, lambda i: f"row {i}")
    return found


def test_numbers_may_have_thousands_a_currency_or_a_percent_sign() -> None:
    values, unread = to_numbers(["1,234.5", "$7", "12 %", "-3e2", "NA", "one"])
    np.testing.assert_array_equal(values, [1234.5, 7, 12, -300, np.nan, np.nan])
    assert unread == [5]


def test_with_comma_decimals_one_comma_is_a_decimal_point() -> None:
    assert to_numbers(["1,5", "x"], comma_decimals=True)[0][0] == 1.5


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2.5", "", "?"], "number"),
        (["yes", "no", "n/a"], "boolean"),
        (["red", "blue", "1"], "text"),
        (["0", "1", "2", "3+"], "text"),
        (["01234", "98765"], "text"),
        (["2020-01-31", "2020-02-01 10:30"], "date"),
        (["31/12/2020", ""], "date"),
        (["Jan 5, 2020", "Dec 31, 1999"], "date"),
        (["", "NA"], "text"),
    ],
)
def test_the_kind_follows_from_all_cells(cells: list[str], kind: str) -> None:
    assert survey(cells).kind() == kind


def test_a_few_texts_among_many_different_numbers_are_wrong_cells_of_a_number_column() -> None:
    found = survey([str(i) for i in range(60)] + ["oops"])
    assert found.kind() == "number" and found.first_text == "'oops' in row 60"


def test_one_date_with_a_day_above_12_decides_the_order_of_all() -> None:
    assert survey(["03/04/2020", "25/04/2020"]).date_format == "%d/%m/%Y"
    assert survey(["03/04/2020", "04/25/2020"]).date_format == "%m/%d/%Y"


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("2020-1-5", "2020-01-05T00:00"),
        ("2020-01-05T06:07:08Z", "2020-01-05T06:07:08"),
        ("2020-01-05 06:07:08.5", "2020-01-05T06:07:08.5"),
        ("2020-01-05 06:07+0200", "2020-01-05T04:07"),
    ],
)
def test_iso_dates_are_read_and_moved_to_utc(cell: str, expected: str) -> None:
    values, unread = to_dates([cell], "ISO 8601")
    assert values[0] == np.datetime64(expected) and unread == []


def test_cells_that_are_no_dates_are_listed() -> None:
    values, unread = to_dates(["2020-02-30", "", "soon"], "ISO 8601")
    assert np.isnat(values).all() and unread == [0, 2]


def test_true_and_false_may_be_written_in_many_ways() -> None:
    values, unread = parse_cells(["TRUE", "n", "1", "", "maybe"], "boolean")
    np.testing.assert_array_equal(values, [1, 0, 1, np.nan, np.nan])
    assert unread == [4]
