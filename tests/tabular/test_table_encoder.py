"""Features of tables: every row has them, they do not depend on labels, and a saved encoder gives the same."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from samekind.data.columns.frames import table_from_frame
from samekind.data.columns.typed_table import TypedTable
from samekind.errors import DataError, ModelFileError
from samekind.tabular.table_encoder import EncodedTexts, TableEncoder

N = 60


@pytest.fixture(scope="module")
def table() -> TypedTable:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "row": np.arange(N),
            "age": np.where(np.arange(N) % 7 == 0, np.nan, rng.normal(40, 9, N)),
            "income": rng.exponential(1e5, N),
            "city": np.array(["Bern", "Basel", None])[rng.integers(0, 3, N)],
            "street": [f"s{i % 35}" for i in range(N)],
            "code": [f"x{i}" for i in range(N)],
            "country": "CH",
            "empty": None,
            "member": rng.random(N) > 0.5,
            "since": pd.date_range("2020-01-30", periods=N, freq="36h"),
            "note": [f"a long note on item {i} in the {i % 5} group" for i in range(N)],
        }
    )
    return table_from_frame(frame)


@pytest.fixture(scope="module")
def encoder(table: TypedTable) -> TableEncoder:
    return TableEncoder.fit(table)


def frame_of(**columns: Any) -> TypedTable:
    return table_from_frame(pd.DataFrame(columns))


def test_each_column_gets_its_role_and_a_sentence(encoder: TableEncoder) -> None:
    roles = {plan.name: plan.role for plan in encoder.plans}
    assert roles == {
        "row": "dropped",
        "age": "number",
        "income": "number",
        "city": "one_hot",
        "street": "frequent",
        "code": "dropped",
        "country": "dropped",
        "empty": "dropped",
        "member": "number",
        "since": "date",
        "note": "text",
    }
    report = [str(plan) for plan in encoder.plans]
    assert report[0] == "row: left out, because it numbers the rows"
    assert (
        "9 of 60 missing, replaced by the median" in report[1] and report[6] == "country: left out, because it is always 'CH'"
    )
    assert report[5] == "code: left out, because 60 of its 60 values differ, like those of an id"


def test_every_row_has_finite_features(encoder: TableEncoder, table: TypedTable) -> None:
    X = encoder.transform(table)
    assert X.shape == (N, encoder.width) and X.dtype == np.float32 and np.isfinite(X).all()


def test_rows_do_not_depend_on_the_rows_beside_them(encoder: TableEncoder, table: TypedTable) -> None:
    np.testing.assert_array_equal(encoder.transform(table[5:8]), encoder.transform(table)[5:8])


def test_missing_values_are_imputed_by_the_median_and_marked() -> None:
    X = TableEncoder.fit(frame_of(a=[1.0, 2.0, np.nan, 9.0], b=["x", "y", "x", "y"])).transform(
        frame_of(a=[np.nan, 2.0], b=["x", "x"])
    )
    np.testing.assert_array_equal(X[0, 0], X[1, 0])
    assert X[0, 1] == 1 and X[1, 1] == 0


def test_an_unseen_category_has_no_feature_and_a_missing_one_is_a_category() -> None:
    encoder = TableEncoder.fit(frame_of(a=["x", "y", None, "x"]))
    assert encoder.transform(frame_of(a=["y", "new", None])).tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


def test_each_column_has_a_mean_square_of_one_also_a_date_with_many_parts() -> None:
    rng = np.random.default_rng(1)
    days = pd.to_datetime(rng.integers(0, 10**9, 500), unit="s")
    X = TableEncoder.fit(frame_of(a=rng.normal(5, 3, 500), d=days)).transform(frame_of(a=rng.normal(5, 3, 500), d=days))
    assert np.square(X[:, 1:]).sum(axis=1).mean() == pytest.approx(1.0, abs=0.01)


def test_text_and_columns_have_the_same_mean_squared_length(encoder: TableEncoder, table: TypedTable) -> None:
    X = encoder.transform(table).astype(np.float64)
    width = encoder.texts[0].width
    lengths = [np.square(part - part.mean(axis=0)).sum(axis=1).mean() for part in (X[:, :-width], X[:, -width:])]
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-5)


def test_complete_numbers_stay_as_they_are() -> None:
    a = np.random.default_rng(2).normal(size=(30, 2))
    X = TableEncoder.fit(frame_of(a=a[:, 0], b=a[:, 1])).transform(frame_of(b=a[:, 1], more=a[:, 0], a=a[:, 0]))
    np.testing.assert_array_equal(X, a.astype(np.float32))


def test_a_restored_encoder_gives_the_same_features_bit_for_bit(encoder: TableEncoder, table: TypedTable) -> None:
    restored = TableEncoder.restored(json.loads(json.dumps(encoder.to_json())), encoder.state())
    np.testing.assert_array_equal(restored.transform(table), encoder.transform(table))


@pytest.mark.parametrize("key", ["numbers", "categories", "texts", "columns"])
def test_a_description_whose_parts_do_not_fit_is_refused(key: str, encoder: TableEncoder) -> None:
    content = json.loads(json.dumps(encoder.to_json()))
    content[key] = {**content[key], "medians": [1.0]} if key == "numbers" else content[key][:-1]
    with pytest.raises(ModelFileError, match="the columns of this model were changed"):
        TableEncoder.restored(content, encoder.state())


def test_categories_that_became_numbers_are_refused() -> None:
    encoder = TableEncoder.fit(frame_of(a=["x", "y", "x", "y"]))
    with pytest.raises(DataError, match=r"column 'a' held categories such as 'x' at the fit, and now holds numbers"):
        encoder.transform(frame_of(a=[3.5, 4.5]))


def test_a_table_without_a_useful_column_is_refused_with_the_reason() -> None:
    with pytest.raises(DataError, match=r"no column of the table can be a feature \(a: left out, because it is always 1\)"):
        TableEncoder.fit(frame_of(a=[1, 1, 1]))


def test_texts_that_the_fit_has_encoded_are_not_encoded_again(table: TypedTable) -> None:
    encoded: EncodedTexts = {}
    encoder = TableEncoder.fit(table, "tfidf", encoded)
    (name,) = encoded
    np.testing.assert_array_equal(encoder.transform(table, encoded=encoded), encoder.transform(table))
    encoded[name] = np.zeros_like(encoded[name])
    assert not encoder.transform(table, encoded=encoded)[:, -encoder.texts[0].width :].any()
