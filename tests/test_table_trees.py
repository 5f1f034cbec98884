"""Tables with gaps and categories: the decision trees of the ensemble from fit to load, and where there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from samekind import SemiSupervisedClassifier

N = 120
rng = np.random.default_rng(0)
RAIN = np.where(rng.random(N) < 0.5, 0.0, rng.exponential(0.3, N))  # the class is whether it rains at all
FRAME = pd.DataFrame(
    {
        "rain": RAIN,
        "wind": np.where(rng.random(N) < 0.2, np.nan, rng.standard_normal(N)),
        "station": rng.choice(["hill", "lake", "town"], N),
    }
)
TRUTH: NDArray[Any] = np.where(RAIN > 0, "wet", "dry").astype(object)


def shown(per_class: int) -> NDArray[Any]:
    y = np.full(N, None, dtype=object)
    for name in ("wet", "dry"):
        at = np.flatnonzero(name == TRUTH)[:per_class]
        y[at] = name
    return y


@pytest.fixture(scope="module")
def model() -> SemiSupervisedClassifier:
    return SemiSupervisedClassifier(random_state=0).fit(FRAME, shown(10))


def test_a_threshold_in_one_column_is_found(model: SemiSupervisedClassifier) -> None:
    assert (model.transduction_ == TRUTH).mean() > 0.95


def test_a_loaded_model_predicts_the_same_and_holds_trees_as_arrays(model: SemiSupervisedClassifier, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = SemiSupervisedClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(FRAME), model.predict_proba(FRAME))
    (weights,) = (tmp_path / "model").glob("*.safetensors")
    assert any(name.endswith("bagged_trees_threshold") for name in load_file(weights))


def test_new_labels_change_the_trees_and_a_refit_is_a_fit_with_all_labels() -> None:
    model, y = SemiSupervisedClassifier(random_state=0).fit(FRAME, shown(5)), shown(5)
    late = np.flatnonzero(TRUTH == "wet")[20:25]
    before = model.predict_proba(FRAME)
    model.update(late, ["wet"] * 5)
    y[late] = "wet"
    updated = model.predict_proba(FRAME)
    assert (model.transduction_[late] == "wet").all() and np.abs(updated - before).max() > 0.01
    model.refit()
    fitted = SemiSupervisedClassifier(random_state=0).fit(FRAME, y)
    np.testing.assert_allclose(model.predict_proba(FRAME), fitted.predict_proba(FRAME), atol=1e-6)


def test_one_label_of_each_class_is_enough() -> None:
    predicted = SemiSupervisedClassifier(random_state=0).fit(FRAME, shown(1)).transduction_
    assert set(predicted) == {"wet", "dry"}


def test_labels_at_random_give_the_class_fractions() -> None:
    y = np.full(N, None, dtype=object)
    y[:20] = np.where(np.arange(20) < 17, "often", "rare")
    noise = FRAME.drop(columns="rain")  # says nothing about the class
    predicted = SemiSupervisedClassifier(random_state=0).fit(noise, y).predict_proba(noise)
    assert predicted[20:, 0].mean() > 0.7


def test_a_frame_of_complete_numbers_is_an_array() -> None:
    numbers = FRAME[["rain"]].assign(more=rng.standard_normal(N))
    frame, array = (SemiSupervisedClassifier(random_state=0).fit(X, shown(5)) for X in (numbers, numbers.to_numpy()))
    np.testing.assert_allclose(frame.fitted_proba(), array.fitted_proba(), atol=1e-6)
