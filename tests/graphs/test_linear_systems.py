"""What all solvers of graphs stand on: parts of a graph, what labels reach, and shares of classes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from samekind.errors import DivergedError, SettingError
from samekind.graphs.linear_systems import (
    components,
    conjugate_gradients,
    degrees,
    normalize_class_fractions,
    reachable_from_labels,
    solve_positive_definite,
)

# 0 - 1 - 2   3 - 4   5
GRAPH = csr_array(
    np.array(
        [
            [0.0, 0.5, 0.0, 0.0, 0.0, 0.0],
            [0.5, 0.0, 2.0, 0.0, 0.0, 0.0],
            [0.0, 2.0, 0.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
            [0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
            [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        ]
    )
)


def test_degrees_are_the_sums_of_rows() -> None:
    assert degrees(GRAPH).tolist() == [0.5, 2.5, 2.0, 1.0, 1.0, 0.0]


def test_points_without_a_way_between_them_lie_in_different_parts() -> None:
    part = components(GRAPH)
    assert (part[:, None] == part).sum(axis=1).tolist() == [3, 3, 3, 2, 2, 1]


def test_a_label_reaches_its_own_part_and_no_other() -> None:
    assert reachable_from_labels(GRAPH, np.array([-1, -1, 0, -1, -1, -1])).tolist() == [True, True, True, False, False, False]
    assert reachable_from_labels(GRAPH, np.array([-1, -1, 0, -1, -1, 1])).tolist() == [True, True, True, False, False, True]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), size=st.floats(1e-6, 1e6), dense_up_to=st.sampled_from([0, 100]))
def test_a_positive_system_is_solved_whatever_the_size_of_its_entries(seed: int, size: float, dense_up_to: int) -> None:
    rng = np.random.default_rng(seed)
    A, X = rng.normal(size=(12, 12)), rng.normal(size=(12, 2))
    scale = np.diag(size ** rng.uniform(-0.5, 0.5, 12))
    A = scale @ (A @ A.T + np.eye(12)) @ scale
    np.testing.assert_allclose(
        scale @ solve_positive_definite(csr_array(A), A @ X, dense_up_to), scale @ X, rtol=1e-6, atol=1e-6
    )


def test_a_system_too_hard_for_conjugate_gradients_is_said_to_be_one() -> None:
    hopeless = csr_array(np.diag(np.logspace(0, 15, 40)))
    with pytest.raises(DivergedError, match=r"conjugate gradients did not settle in \d+ steps on a graph of 40 points"):
        conjugate_gradients(hopeless, np.ones((40, 1)))


def test_columns_of_very_different_size_are_each_solved_to_their_own_precision() -> None:
    A = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]])
    X = np.array([[1.0, 1e-9, 0.0], [2.0, 0.0, 0.0], [3.0, -1e-9, 0.0]])
    np.testing.assert_allclose(conjugate_gradients(csr_array(A), A @ X), X, rtol=1e-9, atol=1e-18)


def test_weights_that_are_no_numbers_are_refused_at_once() -> None:
    with pytest.raises(DivergedError, match="did not settle in 1 steps"):
        conjugate_gradients(csr_array(np.diag([1.0, np.inf, 1.0])), np.ones((3, 2)))


def test_shares_are_brought_to_a_sum_of_one() -> None:
    assert normalize_class_fractions([1, 3], 2).tolist() == [0.25, 0.75]


@pytest.mark.parametrize("shares", [[1.0], [0.5, 0.0], [1.0, -1.0], [1.0, float("nan")], [1.0, float("inf")]])
def test_shares_that_are_none_are_refused(shares: list[float]) -> None:
    with pytest.raises(SettingError, match="expected 2 numbers above 0, one for each class"):
        normalize_class_fractions(shares, 2)
