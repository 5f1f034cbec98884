"""Tables as X of the estimator: pandas, Polars and Arrow give the same, every row is predicted, and frames come back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow  # type: ignore[import-untyped]
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from samekind import PartialLabelKFold, SemiSupervisedClassifier
from samekind.errors import DataError

N = 90


def made_frame() -> pd.DataFrame:
    rng, group = np.random.default_rng(0), np.arange(N) % 2
    frame = pd.DataFrame(
        {
            "age": rng.normal(40 + 9 * group, 5),
            "city": np.where(group == 1, "Bern", "Basel"),
            "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, N), unit="D"),
            "member": rng.random(N) < 0.5,
            "note": [f"the {'old' if g else 'new'} house at the end of street {i}" for i, g in enumerate(group)],
        },
        index=[f"row {i}" for i in range(N)],
    )
    frame.loc[frame.index[::7], "age"] = np.nan
    frame.loc[frame.index[::5], "city"] = None
    frame.loc[frame.index[::11], "seen"] = pd.NaT
    return frame


FRAME = made_frame()
Y = np.where(np.arange(N) < 20, np.where(np.arange(N) % 2 == 1, "ill", "well"), "").astype(object)


@pytest.fixture(scope="module")
def fitted() -> SemiSupervisedClassifier:
    return SemiSupervisedClassifier(random_state=0).fit(FRAME, Y)


def as_polars(frame: pd.DataFrame) -> Any:
    return pytest.importorskip("polars").from_arrow(arrow.Table.from_pandas(frame, preserve_index=False))


CONVERSIONS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "arrow": lambda frame: arrow.Table.from_pandas(frame, preserve_index=False),
    "arrow batch": lambda frame: arrow.RecordBatch.from_pandas(frame, preserve_index=False),
    "polars": as_polars,
    "polars lazy": lambda frame: as_polars(frame).lazy(),
    "pandas with pyarrow types": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "pandas nullable": lambda frame: frame.convert_dtypes(),
}


@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_each_library_gives_the_same_predictions_and_names(conversion: str, fitted: SemiSupervisedClassifier) -> None:
    X = CONVERSIONS[conversion](FRAME)
    other = SemiSupervisedClassifier(random_state=0).fit(X, Y)
    np.testing.assert_array_equal(other.transduction_, fitted.transduction_)
    np.testing.assert_allclose(fitted.predict_proba(X), fitted.predict_proba(FRAME), atol=1e-12)
    assert other.feature_names_in_.tolist() == list(FRAME.columns) and other.n_features_in_ == 5
    assert other.score(FRAME, Y) == 1.0


def test_every_row_is_predicted_also_new_ones_with_gaps_and_unseen_categories(fitted: SemiSupervisedClassifier) -> None:
    assert np.mean(fitted.transduction_ == np.where(np.arange(N) % 2 == 1, "ill", "well")) > 0.95
    new = FRAME.iloc[:3].assign(age=np.nan, city="Chur", note=None)
    assert fitted.predict(new).shape == (3,) and np.isfinite(fitted.predict_proba(new)).all()


def test_the_report_has_a_sentence_for_each_column(fitted: SemiSupervisedClassifier) -> None:
    report = {plan.name: str(plan) for plan in fitted.columns_}
    assert list(report) == list(FRAME.columns)
    assert report["city"] == "city: 2 categories (Basel, Bern); 18 of 90 missing, which is a category too"


def test_arrays_have_no_report() -> None:
    assert not hasattr(SemiSupervisedClassifier().fit(np.arange(8.0).reshape(4, 2), [0, 1, -1, 0]), "columns_")


def test_a_loaded_model_predicts_the_same_bit_for_bit(fitted: SemiSupervisedClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    loaded = SemiSupervisedClassifier.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(FRAME), fitted.predict_proba(FRAME))
    assert loaded.columns_ == fitted.columns_
    assert not [path for path in tmp_path.iterdir() if path.suffix not in (".json", ".safetensors")]


def test_columns_in_another_order_are_refused_as_in_scikit_learn(fitted: SemiSupervisedClassifier) -> None:
    with pytest.raises(DataError, match="Feature names must be in the same order"):
        fitted.predict(FRAME[FRAME.columns[::-1]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": "forty"}, "column 'age' held numbers at the fit"),
        ({"age": pd.Timestamp("2020-01-01")}, "column 'age' held numbers at the fit, .* first dates in row 0"),
        ({"city": 7.5}, "column 'city' held categories such as 'Basel' at the fit, and now holds numbers such as"),
        ({"seen": 3}, "column 'seen' held dates at the fit"),
    ],
)
def test_a_column_that_changed_its_type_is_one_sentence(
    change: dict[str, Any], message: str, fitted: SemiSupervisedClassifier
) -> None:
    with pytest.raises(DataError, match=message) as raised:
        fitted.predict(FRAME.assign(**change))
    assert "\n" not in str(raised.value)


# ---------------------------------------------------------------- frames as results


def test_set_output_gives_predictions_with_the_index_of_x(fitted: SemiSupervisedClassifier) -> None:
    model = clone(fitted).set_output(transform="pandas").fit(FRAME, Y)
    predicted, probabilities, features = model.predict(FRAME), model.predict_proba(FRAME), model.transform(FRAME)
    assert isinstance(predicted, pd.Series) and predicted.index.equals(FRAME.index)
    assert list(probabilities.columns) == ["ill", "well"] and probabilities.index.equals(FRAME.index)
    assert features.index.equals(FRAME.index) and list(features.columns) == model.get_feature_names_out().tolist()
    np.testing.assert_array_equal(predicted.to_numpy(), fitted.predict(FRAME))
    assert model.score(FRAME, Y) == 1.0
    assert isinstance(model.set_output(transform="default").predict(FRAME), np.ndarray)


def test_set_output_gives_frames_of_polars(fitted: SemiSupervisedClassifier) -> None:
    polars = pytest.importorskip("polars")
    model = clone(fitted).set_output(transform="polars").fit(FRAME, Y)
    assert isinstance(model.predict(FRAME), polars.Series) and model.predict_proba(FRAME).columns == ["ill", "well"]
    assert model.predict(FRAME).to_list() == fitted.predict(FRAME).tolist()


@pytest.mark.parametrize("conversion", ["polars", "pandas nullable"])
def test_cross_validation_takes_tables(conversion: str) -> None:
    X = CONVERSIONS[conversion](FRAME)
    assert cross_val_score(SemiSupervisedClassifier(random_state=0), X, Y, cv=PartialLabelKFold(2)).mean() > 0.8


# ---------------------------------------------------------------- input that cannot be used


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (FRAME.iloc[:0], "X is empty"),
        (FRAME[[]], "0 feature"),
        (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), "two columns called 'a'"),
        (pd.DataFrame({"a": [[1], [2]]}), "column 'a' holds list objects"),
        (pd.DataFrame({"a": [1, 1], "b": ["x", "x"]}), "no column of the table can be a feature"),
    ],
    ids=["no row", "no column", "two of one name", "lists", "constant"],
)
def test_a_table_that_cannot_be_used_is_one_sentence(frame: pd.DataFrame, message: str) -> None:
    with pytest.raises(DataError, match=message) as raised:
        SemiSupervisedClassifier().fit(frame, Y[: len(frame)])
    assert "\n" not in str(raised.value)
