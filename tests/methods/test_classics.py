"""The classic graph methods through the estimator: on real data, saved and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits, load_iris

from samekind import SemiSupervisedClassifier

# errors in percent that must not be exceeded, iris and 500 digits: one draw of labels each, so with room to spare
MOST = {
    "label_propagation": (14.0, 12.0),
    "harmonic": (14.0, 12.0),
    "lgc": (14.0, 12.0),
    "laprls": (14.0, 12.0),
    "mincut": (14.0, 25.0),
    "poisson": (14.0, 16.0),
    "semi_supervised_embedding": (14.0, 25.0),
}


def shown(truth: NDArray[np.int64], per_class: int = 5) -> NDArray[np.int64]:
    """Return the first labels of each class, and -1 for the rest."""
    y = np.full(len(truth), -1)
    for c in np.unique(truth):
        y[np.flatnonzero(truth == c)[:per_class]] = c
    return y


def problem(name: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    if name == "iris":
        iris: Any = load_iris()
        order = np.random.default_rng(0).permutation(150)
        return iris.data[order], iris.target[order]
    digits: Any = load_digits()
    return digits.data[:500], digits.target[:500]


@pytest.mark.parametrize("name", ["iris", "digits"])
@pytest.mark.parametrize("method", MOST)
def test_a_classic_method_sorts_real_samples_and_survives_a_save(method: str, name: str, tmp_path: Path) -> None:
    X, truth = problem(name)
    y = shown(truth)
    model = SemiSupervisedClassifier(method, random_state=0).fit(X, y)
    error = 100 * np.mean(model.transduction_[y < 0] != truth[y < 0])
    assert error <= MOST[method][name == "digits"]
    model.save(tmp_path)
    again = SemiSupervisedClassifier.load(tmp_path)
    new = X[:20] + 0.01
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(new))
    np.testing.assert_allclose(model.predict_proba(new).sum(1), 1.0)
    np.testing.assert_array_equal(again.similarity(new), model.similarity(new))


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("harmonic", {"class_mass": (1, 1, 1)}),
        ("poisson", {"mbo": 20}),
        ("mincut", {"cuts": 5, "noise": 1.0}),
        ("laprls", {"centers": 50}),
    ],
)
def test_settings_are_kept_in_a_save(method: str, settings: dict[str, Any], tmp_path: Path) -> None:
    X, truth = problem("iris")
    model = SemiSupervisedClassifier(method, settings=settings, random_state=0).fit(X, shown(truth))
    assert (model.transduction_ == truth).mean() > 0.85
    model.save(tmp_path)
    again = SemiSupervisedClassifier.load(tmp_path)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    again.fit(X, shown(truth))  # what was read from JSON can be given back
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
