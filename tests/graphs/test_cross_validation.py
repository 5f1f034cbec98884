"""Cross-validation among labelled samples: folds, ridge regression in closed form, and McNemar's test."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samekind.graphs.cross_validation import (
    RIDGE,
    cross_validated_ridge,
    leave_one_out_folds,
    linear_baseline_correct,
    significantly_more,
    true_class_ranks_first,
)


def test_a_fold_takes_one_sample_of_each_class() -> None:
    assert leave_one_out_folds(np.array([0, 1, 0, 1, 1])).tolist() == [0, 0, 1, 1, 2]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), n=st.integers(4, 20), columns=st.integers(1, 30))
def test_predictions_equal_those_of_a_fit_without_the_fold(seed: int, n: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    x, Y, fold = rng.standard_normal((n, columns)), np.eye(3)[np.arange(n) % 3], np.arange(n) // 3
    K = x @ x.T / np.mean(np.square(x).sum(axis=1)) + 1.0
    predicted = cross_validated_ridge(x, Y, fold)
    for f in np.unique(fold):
        out, rest = np.flatnonzero(fold == f), np.flatnonzero(fold != f)
        weights = np.linalg.solve(K[np.ix_(rest, rest)] + RIDGE * np.eye(len(rest)), Y[rest] - 1 / 3)
        np.testing.assert_allclose(predicted[out], K[np.ix_(out, rest)] @ weights, atol=1e-8)


def test_separable_classes_are_predicted_and_a_mislabelled_sample_is_not() -> None:
    x = np.array([[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]])
    assert linear_baseline_correct(x, np.array([0, 0, 0, 1, 1, 1])).all()
    assert linear_baseline_correct(x, np.array([0, 0, 1, 1, 1, 1])).tolist() == [True, True, False, True, True, True]


def test_the_xor_problem_is_not_linearly_separable() -> None:
    corners = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    assert not linear_baseline_correct(np.tile(corners, (3, 1)), np.tile([0, 0, 1, 1], 3)).any()


def test_the_only_sample_of_its_class_counts_as_wrong() -> None:
    assert not linear_baseline_correct(np.array([[-1.0], [-1.2], [1.0]]), np.array([0, 0, 1]))[2]


def test_samples_that_are_all_zero_prefer_no_class() -> None:
    Y = np.eye(2)[[0, 1, 0, 1]]
    np.testing.assert_allclose(cross_validated_ridge(np.zeros((4, 2)), Y, np.array([0, 0, 1, 1])), 0.0, atol=1e-12)


def test_a_tie_does_not_rank_first() -> None:
    scores = np.array([[0.2, 0.1], [0.0, 0.0], [0.3, 0.4]])
    assert true_class_ranks_first(scores, np.array([0, 1, 0])).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("gained", "lost", "significant"), [(2, 0, False), (3, 0, True), (9, 4, True), (8, 4, False), (0, 3, False)]
)
def test_three_gained_and_none_lost_is_significant_and_two_is_not(gained: float, lost: float, significant: bool) -> None:
    assert significantly_more(gained, lost) is significant
