"""Data frames of pandas and Arrow tables as typed columns: declared types are respected."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow  # type: ignore[import-untyped]
import pytest

from samekind.data.columns.frames import is_frame, table_from_frame
from samekind.data.columns.typed_table import Column
from samekind.errors import DataError


def column(values: Any) -> Column:
    return table_from_frame(pd.DataFrame({"a": values})).columns["a"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, 3], "number"),
        (pd.array([1, None, 3], dtype="Int64"), "number"),
        ([Decimal("1.5"), None, Decimal(2)], "number"),
        (pd.to_timedelta([1, 2, 3], unit="h"), "number"),
        ([True, False, True], "boolean"),
        (pd.array([True, None, False], dtype="boolean"), "boolean"),
        ([True, None, False], "boolean"),
        (["x", None, "y"], "text"),
        (pd.Series(["x", None, "y"], dtype="string"), "text"),
        (pd.Categorical(["x", None, "y"]), "category"),
        (pd.Categorical([1, 2, 1]), "category"),
        (pd.to_datetime(["2020-01-01", None, "2020-03-01"]), "date"),
        (pd.to_datetime(["2020-01-01", None, "2020-03-01"]).tz_localize("Europe/Zurich"), "date"),
        (pd.period_range("2020-01", periods=3, freq="M"), "date"),
        ([date(2020, 1, 1), None, datetime(2020, 1, 2, tzinfo=timezone.utc)], "date"),
        (["1.5", "?", "2"], "number"),
        ([b"GIF", None, b"GIF"], "image"),
        ([{"bytes": None, "path": "a.png"}, None, {"bytes": b"x", "path": None}], "image"),
    ],
)
def test_each_dtype_of_pandas_has_its_kind_and_missing_values_stay_missing(values: Any, kind: str) -> None:
    found = column(values)
    assert found.kind == kind
    series = pd.Series(values)
    np.testing.assert_array_equal(found.missing(), series.isna().to_numpy() | (series == "?").to_numpy())


def test_moments_with_a_time_zone_become_utc() -> None:
    found = column(pd.to_datetime(["2020-01-01 00:30"]).tz_localize("Europe/Zurich"))
    assert found.values[0] == np.datetime64("2019-12-31T23:30")


@pytest.mark.parametrize("values", [[[1, 2], [3]], [{"x": 1}], [{1}]], ids=["list", "record", "set"])
def test_other_objects_are_refused_by_the_name_of_their_column(values: Any) -> None:
    with pytest.raises(DataError, match="column 'a' holds"):
        column(values)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(DataError, match="two columns called 'a'"):
        table_from_frame(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_an_arrow_table_gives_the_same_columns_as_pandas() -> None:
    frame = pd.DataFrame(
        {"a": [1.5, None], "b": ["x", None], "c": pd.Categorical(["u", "v"]), "d": pd.to_datetime(["2020-01-01", None])}
    )
    ours, theirs = table_from_frame(frame), table_from_frame(arrow.Table.from_pandas(frame))
    for name, one in ours.columns.items():
        assert theirs.columns[name].kind == one.kind
        np.testing.assert_array_equal(theirs.columns[name].values, one.values)


def test_arrays_and_lists_are_no_frames() -> None:
    assert not any(map(is_frame, (np.eye(2), [[1, 2]], ["a"], pd.Series([1]))))
