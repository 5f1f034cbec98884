"""Decision trees as arrays, against the models of scikit-learn that grew them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_wine
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier, RandomForestClassifier

from samekind.stacking.decision_trees import (
    BOOSTED_DEPTH,
    MAX_SAMPLES,
    N_ROUNDS,
    N_TREES,
    TREE_MODELS,
    TreeModel,
    fit_trees,
    tree_probabilities,
)

Array = NDArray[Any]
X, Y = load_wine(return_X_y=True)
X = X.astype(np.float32).astype(np.float64)
SHOWN = np.arange(0, len(X), 7)


def grow(name: TreeModel, y: Array, n_classes: int) -> Array:
    trees = fit_trees(name, X[SHOWN], y[SHOWN], np.ones(len(SHOWN)), n_classes, seed=0)
    return tree_probabilities(name, trees, torch.from_numpy(X)).numpy()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_arrays_predict_what_scikit_learn_predicts(n_classes: int) -> None:
    y, same = np.minimum(Y, n_classes - 1), {"max_features": None, "bootstrap": True, "random_state": 0}
    models = {
        "extra_trees": ExtraTreesClassifier(N_TREES, **same),
        "bagged_trees": RandomForestClassifier(N_TREES, **same),
        "boosted_trees": GradientBoostingClassifier(
            n_estimators=N_ROUNDS, max_depth=BOOSTED_DEPTH, min_samples_leaf=2, random_state=0
        ),
    }
    for name in TREE_MODELS:
        expected = models[name].fit(X[SHOWN], y[SHOWN], sample_weight=np.ones(len(SHOWN))).predict_proba(X)
        np.testing.assert_allclose(grow(name, y, n_classes), expected, atol=1e-12)


@pytest.mark.parametrize("name", TREE_MODELS)
def test_a_class_without_a_sample_gets_probability_0(name: TreeModel) -> None:
    P = grow(name, np.where(Y == 2, 3, Y), 4)
    assert (P[:, 2] == 0).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    assert (P.argmax(axis=1) == np.where(Y == 2, 3, Y)).mean() > 0.8


@pytest.mark.parametrize("name", TREE_MODELS)
def test_labels_of_one_class_give_this_class(name: TreeModel) -> None:
    P = grow(name, np.ones(len(Y), dtype=np.int64), 3)
    np.testing.assert_array_equal(P, np.tile([0.0, 1.0, 0.0], (len(Y), 1)))


def test_a_threshold_that_linear_models_miss_is_found() -> None:
    rng = np.random.default_rng(0)
    rows = rng.exponential(size=(400, 3))
    y = ((rows[:, 1] > 0.4) & (rows[:, 1] < 1.2)).astype(np.int64)
    trees = fit_trees("boosted_trees", rows[:60], y[:60], np.ones(60), 2, seed=0)
    assert (tree_probabilities("boosted_trees", trees, torch.from_numpy(rows)).argmax(1).numpy() == y)[60:].mean() > 0.9


def test_with_many_labels_trees_stay_small() -> None:
    rng = np.random.default_rng(0)
    n = 2 * MAX_SAMPLES
    rows, y = rng.standard_normal((n, 2)), rng.integers(0, 2, n)
    trees = fit_trees("bagged_trees", rows, y, np.ones(n), 2, seed=0, n_trees=3)
    assert trees.feature.shape[1] < 1500  # without a limit, noise takes about MAX_SAMPLES leaves
