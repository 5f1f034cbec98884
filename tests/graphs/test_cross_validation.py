"""Labels that tell one another: who is left out when, straight cuts by their closed form, and what counts as clearly more."""

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


def test_a_turn_takes_one_row_of_each_class() -> None:
    assert leave_one_out_folds(np.array([0, 1, 0, 1, 1])).tolist() == [0, 0, 1, 1, 2]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), n=st.integers(4, 20), columns=st.integers(1, 30))
def test_answers_are_those_of_a_regression_that_never_saw_the_rows_of_the_turn(seed: int, n: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    x, Y, turn = rng.standard_normal((n, columns)), np.eye(3)[np.arange(n) % 3], np.arange(n) // 3
    K = x @ x.T / np.mean(np.square(x).sum(axis=1)) + 1.0
    answers = cross_validated_ridge(x, Y, turn)
    for t in np.unique(turn):
        out, rest = np.flatnonzero(turn == t), np.flatnonzero(turn != t)
        weights = np.linalg.solve(K[np.ix_(rest, rest)] + RIDGE * np.eye(len(rest)), Y[rest] - 1 / 3)
        np.testing.assert_allclose(answers[out], K[np.ix_(out, rest)] @ weights, atol=1e-8)


def test_kinds_on_two_sides_tell_one_another_and_a_stray_is_not_told() -> None:
    x = np.array([[-1.0], [-1.1], [-0.9], [1.0], [1.1], [0.9]])
    assert linear_baseline_correct(x, np.array([0, 0, 0, 1, 1, 1])).all()
    assert linear_baseline_correct(x, np.array([0, 0, 1, 1, 1, 1])).tolist() == [True, True, False, True, True, True]


def test_no_straight_cut_tells_the_corners_of_a_square_from_those_across() -> None:
    corners = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    assert not linear_baseline_correct(np.tile(corners, (3, 1)), np.tile([0, 0, 1, 1], 3)).any()


def test_a_row_that_is_alone_in_its_class_is_not_told() -> None:
    assert not linear_baseline_correct(np.array([[-1.0], [-1.2], [1.0]]), np.array([0, 0, 1]))[2]


def test_rows_that_are_all_zero_lean_to_no_class() -> None:
    Y = np.eye(2)[[0, 1, 0, 1]]
    np.testing.assert_allclose(cross_validated_ridge(np.zeros((4, 2)), Y, np.array([0, 0, 1, 1])), 0.0, atol=1e-12)


def test_a_tie_is_not_the_highest() -> None:
    scores = np.array([[0.2, 0.1], [0.0, 0.0], [0.3, 0.4]])
    assert true_class_ranks_first(scores, np.array([0, 1, 0])).tolist() == [True, False, False]


@pytest.mark.parametrize(("gained", "lost", "clear"), [(2, 0, False), (3, 0, True), (9, 4, True), (8, 4, False), (0, 3, False)])
def test_three_rows_to_none_are_clearly_more_and_two_are_not(gained: float, lost: float, clear: bool) -> None:
    assert significantly_more(gained, lost) is clear
