"""New columns with the kind of the fit: conversions that keep the meaning, and columns that have changed their type."""

from __future__ import annotations

import numpy as np
import pytest

from samekind.data.columns.column_reader import as_kind
from samekind.data.columns.typed_table import Column, ColumnKind
from samekind.errors import DataError


def texts(*values: str | None) -> Column:
    return Column("text", np.array(values, dtype=object))


NUMBERS = Column("number", np.array([1.0, 2.5, np.nan]))
DATES = Column("date", np.array(["2020-01-01", "NaT"], dtype="datetime64[us]"))


def test_text_of_numbers_becomes_numbers() -> None:
    np.testing.assert_array_equal(as_kind(texts("1", None, "2.5"), "a", "number").values, [1, np.nan, 2.5])


def test_numbers_become_text_without_needless_digits() -> None:
    assert as_kind(NUMBERS, "a", "text").values.tolist() == ["1", "2.5", None]


def test_an_empty_column_has_any_type() -> None:
    assert np.isnan(as_kind(texts(None, None), "a", "number").values).all()
    assert np.isnat(as_kind(Column("number", np.array([np.nan])), "a", "date").values).all()


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        (
            texts("x", "y", "1"),
            "number",
            "held numbers at the fit, and now 2 of its 3 cells .* first 'x' in row 0",
        ),
        (DATES, "number", "held numbers at the fit, and now 1 of its 1 cells hold something else, first dates in row 0"),
        (NUMBERS, "date", "held dates at the fit, and now 2 of its 2 cells hold something else, first numbers in row 0"),
        (texts("soon"), "date", "held dates at the fit"),
        (NUMBERS, "image", "held images at the fit"),
    ],
)
def test_a_column_that_has_changed_its_type_is_one_sentence(column: Column, kind: ColumnKind, message: str) -> None:
    with pytest.raises(DataError, match=f"column 'a' {message}") as raised:
        as_kind(column, "a", kind)
    assert "\n" not in str(raised.value)
