"""Data frames as X, and pandas labels as y: columns are compared by name, and pandas.NA means unlabelled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from samekind import SemiSupervisedClassifier
from samekind.data.feature_names import feature_names
from samekind.errors import DataError

COLUMNS = ["height", "width", "weight"]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)), columns=COLUMNS)


@pytest.fixture(scope="module")
def fitted(frame: pd.DataFrame) -> SemiSupervisedClassifier:
    return SemiSupervisedClassifier().fit(frame, [0, 1, -1, -1] * 10)


CALLS: dict[str, Callable[[SemiSupervisedClassifier, Any], Any]] = {
    "predict": lambda model, X: model.predict(X),
    "predict_proba": lambda model, X: model.predict_proba(X),
    "transform": lambda model, X: model.transform(X),
    "score": lambda model, X: model.score(X, [0, 1, -1, -1] * 10),
    "similarity": lambda model, X: model.similarity(X),
    "similarity of two": lambda model, X: model.similarity(X[COLUMNS], X),
    "log_odds": lambda model, X: model.log_odds(X),
    "kneighbors": lambda model, X: model.kneighbors(X, 3),
    "kernel": lambda model, X: model.kernel()(X, X),
    "index": lambda model, X: model.index(X),
}


@pytest.mark.parametrize("call", CALLS)
def test_columns_in_another_order_are_refused(call: str, fitted: SemiSupervisedClassifier, frame: pd.DataFrame) -> None:
    with pytest.raises(DataError, match="Feature names must be in the same order as they were in fit"):
        CALLS[call](fitted, frame[COLUMNS[::-1]])


def test_missing_and_new_columns_are_named(fitted: SemiSupervisedClassifier, frame: pd.DataFrame) -> None:
    renamed = frame.rename(columns={"width": "depth"})
    with pytest.raises(DataError, match=r"unseen at fit time:\n- depth\n.*yet now missing:\n- width"):
        fitted.predict(renamed)


def test_the_names_are_kept_by_save_and_load(fitted: SemiSupervisedClassifier, frame: pd.DataFrame, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    loaded = SemiSupervisedClassifier.load(tmp_path)
    assert loaded.feature_names_in_.tolist() == COLUMNS == fitted.feature_names_in_.tolist()
    np.testing.assert_array_equal(loaded.predict_proba(frame), fitted.predict_proba(frame))
    with pytest.raises(DataError, match="same order"):
        loaded.predict(frame[COLUMNS[::-1]])


def test_a_column_of_texts_is_read_by_its_meaning() -> None:
    sport = ["the striker scored twice", "a late goal won the match", "the keeper saved a penalty", "der Torwart hält den Ball"]
    money = ["shares fell on monday", "the bank raised its rates", "profits of the firm rose", "die Aktie der Bank steigt"]
    frame = pd.DataFrame({"text": [*sport, *money] * 5, "size": [1.5, None] * 20})
    frame["text"] = [f"{text} {'abcdefghijklmnopqrstuvwxyzäöüßABCDEFGHIJ'[i]}" for i, text in enumerate(frame["text"])]
    y = ["sport", *[None] * 3, "money", *[None] * 35]
    model = SemiSupervisedClassifier(random_state=0).fit(frame, y)
    assert "by the encoder use" in str(model.columns_[0])
    assert (model.transduction_ == np.array((["sport"] * 4 + ["money"] * 4) * 5, dtype=object)).mean() > 0.9


def test_names_on_one_side_only_are_a_warning(fitted: SemiSupervisedClassifier, frame: pd.DataFrame) -> None:
    with pytest.warns(UserWarning, match="X does not have valid feature names, but SemiSupervisedClassifier was fitted with"):
        fitted.predict(frame.to_numpy())
    unnamed = SemiSupervisedClassifier().fit(frame.to_numpy(), [0, 1, -1, -1] * 10)
    assert not hasattr(unnamed, "feature_names_in_")
    with pytest.warns(UserWarning, match="X has feature names, but SemiSupervisedClassifier was fitted without"):
        unnamed.predict(frame)


def test_a_second_fit_without_names_forgets_them(frame: pd.DataFrame) -> None:
    y = [0, 1, -1, -1] * 10
    model = SemiSupervisedClassifier().fit(frame, y)
    assert not hasattr(model.fit(frame.to_numpy(), y), "feature_names_in_")


def test_names_of_numbers_are_no_names_and_mixed_ones_are_refused(frame: pd.DataFrame) -> None:
    assert feature_names(frame.set_axis([0, 1, 2], axis=1)) is None
    assert feature_names(frame.to_numpy()) is None
    with pytest.raises(DataError, match=r"X has \['int', 'str'\] as column names"):
        feature_names(frame.set_axis([0, "a", 2], axis=1))


@pytest.mark.parametrize(
    "y",
    [
        pd.Series(["a", "b", pd.NA, None] * 10, dtype="string"),
        pd.Series(["a", "b", np.nan, None] * 10, dtype="category"),
        pd.Series(["a", "b", pd.NA, None] * 10, dtype=object),
        pd.Series([3, 5, pd.NA, pd.NA] * 10, dtype="Int64"),
        pd.Series([3.0, 5.0, np.nan, np.nan] * 10),
        ["a", "b", pd.NA, float("nan")] * 10,
    ],
    ids=["string", "category", "object", "Int64", "float", "list"],
)
def test_missing_values_of_pandas_mean_unlabelled(y: Any, frame: pd.DataFrame) -> None:
    model = SemiSupervisedClassifier().fit(frame, y)
    expected = SemiSupervisedClassifier().fit(frame, [0, 1, -1, -1] * 10)
    assert model.classes_.tolist() in (["a", "b"], [3, 5])
    np.testing.assert_array_equal(model.predict_proba(frame), expected.predict_proba(frame))
    assert model.score(frame, y) == expected.score(frame, [0, 1, -1, -1] * 10)
