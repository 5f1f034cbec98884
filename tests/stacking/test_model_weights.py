"""Folds, temperatures and weights of candidates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samekind.stacking.model_weights import (
    candidate_weights,
    fit_temperature,
    scale_temperature,
    stratified_folds,
    temperature_of_confidence,
)


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=60), st.integers(0, 3))
def test_every_fold_trains_on_every_class_and_tests_each_label_equally_often(labels: list[int], seed: int) -> None:
    y = np.unique(labels, return_inverse=True)[1]
    folds = stratified_folds(y, np.random.default_rng(seed))
    single = np.bincount(y)[y] < 2
    for fold in folds:
        assert set(y[fold.train]) == set(y)
        assert not set(fold.train) & set(fold.test)
        assert not single[fold.test].any()
    if folds:
        times = np.bincount(np.concatenate([fold.test for fold in folds]), minlength=len(y))
        assert len(set(times[~single])) == 1
    else:
        assert single.all()


def test_a_temperature_of_two_squares_the_odds() -> None:
    np.testing.assert_allclose(scale_temperature(np.array([[0.75, 0.25]]), 2.0), [[0.9, 0.1]])


def test_the_temperature_of_an_overconfident_classifier_is_below_one() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    right = rng.random(400) < 0.7  # 70 % right at a confidence of 0.99
    P = np.where((y == 1) == right, 0.99, 0.01)
    temperature, _ = fit_temperature(np.stack([1 - P, P], axis=1), y)
    assert temperature < 0.5


def test_weights_are_posterior_probabilities_of_the_candidates() -> None:
    weights = candidate_weights(np.log([0.5, 0.25]), 2, np.log([0.2, 0.8]))
    assert weights == pytest.approx([0.5, 0.5])


def test_the_temperature_of_a_confidence_gives_that_mean_largest_probability() -> None:
    P = np.random.default_rng(0).dirichlet(np.ones(4), 200)
    scaled = scale_temperature(P, temperature_of_confidence(P, 0.8))
    assert scaled.max(axis=1).mean() == pytest.approx(0.8, abs=0.03)
