"""Parts that all graph solvers share: components, linear systems and class fractions."""

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


def test_samples_without_a_path_between_them_are_in_different_components() -> None:
    component = components(GRAPH)
    assert (component[:, None] == component).sum(axis=1).tolist() == [3, 3, 3, 2, 2, 1]


def test_a_label_reaches_its_own_component_and_no_other() -> None:
    assert reachable_from_labels(GRAPH, np.array([-1, -1, 0, -1, -1, -1])).tolist() == [True, True, True, False, False, False]
    assert reachable_from_labels(GRAPH, np.array([-1, -1, 0, -1, -1, 1])).tolist() == [True, True, True, False, False, True]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), size=st.floats(1e-6, 1e6), dense_up_to=st.sampled_from([0, 100]))
def test_a_positive_definite_system_of_any_scale_is_solved(seed: int, size: float, dense_up_to: int) -> None:
    rng = np.random.default_rng(seed)
    A, X = rng.normal(size=(12, 12)), rng.normal(size=(12, 2))
    scale = np.diag(size ** rng.uniform(-0.5, 0.5, 12))
    A = scale @ (A @ A.T + np.eye(12)) @ scale
    np.testing.assert_allclose(
        scale @ solve_positive_definite(csr_array(A), A @ X, dense_up_to), scale @ X, rtol=1e-6, atol=1e-6
    )


def test_conjugate_gradients_that_do_not_converge_raise_an_error() -> None:
    ill_conditioned = csr_array(np.diag(np.logspace(0, 15, 40)))
    with pytest.raises(DivergedError, match=r"conjugate gradients did not converge in \d+ steps on a graph of 40 samples"):
        conjugate_gradients(ill_conditioned, np.ones((40, 1)))


def test_columns_of_very_different_size_are_each_solved_to_their_own_precision() -> None:
    A = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]])
    X = np.array([[1.0, 1e-9, 0.0], [2.0, 0.0, 0.0], [3.0, -1e-9, 0.0]])
    np.testing.assert_allclose(conjugate_gradients(csr_array(A), A @ X), X, rtol=1e-9, atol=1e-18)


def test_infinite_weights_are_refused_in_the_first_step() -> None:
    with pytest.raises(DivergedError, match="did not converge in 1 steps"):
        conjugate_gradients(csr_array(np.diag([1.0, np.inf, 1.0])), np.ones((3, 2)))


def test_class_fractions_are_divided_by_their_sum() -> None:
    assert normalize_class_fractions([1, 3], 2).tolist() == [0.25, 0.75]


@pytest.mark.parametrize("fractions", [[1.0], [0.5, 0.0], [1.0, -1.0], [1.0, float("nan")], [1.0, float("inf")]])
def test_invalid_class_fractions_are_refused(fractions: list[float]) -> None:
    with pytest.raises(SettingError, match="expected 2 numbers above 0, one for each class"):
        normalize_class_fractions(fractions, 2)
