"""Label propagation: the closed forms of the papers, and uniform results where these are not defined."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import block_diag, csr_array
from tests.graphs.random_graphs import random_graph, some_labels

from samekind.errors import LabelError, SettingError
from samekind.graphs.propagation import (
    harmonic,
    label_propagation,
    leave_one_out_consistency,
    local_global_consistency,
    normalize_class_mass,
)

Solver = Callable[..., NDArray[np.float64]]
SOLVERS: list[Solver] = [label_propagation, local_global_consistency, harmonic]
seeds = st.integers(0, 999)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, n_labelled=st.integers(1, 19), dense_up_to=st.sampled_from([0, 3000]))
def test_label_propagation_equals_its_closed_form(seed: int, n_labelled: int, dense_up_to: int) -> None:
    # F_U = (I - T_UU)^-1 T_UL Y_L, notation from Zhu & Ghahramani.
    W, y = random_graph(20, seed), some_labels(20, n_labelled, 3, seed)
    L, U = y >= 0, y < 0
    T = W.toarray() / W.toarray().sum(1, keepdims=True)
    expected = np.linalg.inv(np.eye(U.sum()) - T[np.ix_(U, U)]) @ T[np.ix_(U, L)] @ np.eye(3)[y[L]]
    F = label_propagation(W, y, 3, teleport=0.0, dense_up_to=dense_up_to)
    np.testing.assert_allclose(F[U], expected, atol=1e-6)
    np.testing.assert_array_equal(F[L], np.eye(3)[y[L]])


@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_teleport_is_a_step_to_the_uniform_distribution(seed: int) -> None:
    # The same walk, except that a step ends in 1/C with probability p = teleport / (1 + teleport).
    W, y, p = random_graph(20, seed), some_labels(20, 4, 3, seed), 1e-5 / (1 + 1e-5)
    L, U = y >= 0, y < 0
    T = (1 - p) * W.toarray() / W.toarray().sum(1, keepdims=True)
    right_side = T[np.ix_(U, L)] @ np.eye(3)[y[L]] + p / 3
    expected = np.linalg.inv(np.eye(U.sum()) - T[np.ix_(U, U)]) @ right_side
    np.testing.assert_allclose(label_propagation(W, y, 3)[U], expected, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, alpha=st.floats(0.01, 0.99), dense_up_to=st.sampled_from([0, 3000]))
def test_consistency_equals_its_closed_form(seed: int, alpha: float, dense_up_to: int) -> None:
    # F = (1 - alpha) (I - alpha S)^-1 Y, notation from Zhou et al.; rows are then divided by their sum.
    W, y = random_graph(20, seed), some_labels(20, 4, 3, seed)
    root = np.diag(W.sum(axis=1) ** -0.5)
    Y = np.eye(3)[y] * (y >= 0)[:, None]
    expected = (1 - alpha) * np.linalg.inv(np.eye(20) - alpha * root @ W.toarray() @ root) @ Y
    F = local_global_consistency(W, y, 3, alpha, dense_up_to=dense_up_to)
    np.testing.assert_allclose(F, expected / expected.sum(1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
@settings(max_examples=25, deadline=None)
@given(seed=seeds, n=st.integers(2, 40), density=st.floats(0.0, 1.0))
def test_rows_are_probabilities(solver: Solver, seed: int, n: int, density: float) -> None:
    F = solver(random_graph(n, seed, density), some_labels(n, 2, 4, seed), 4)
    assert F.min() >= 0.0 and F.max() <= 1.0 + 1e-12
    np.testing.assert_allclose(F.sum(1), 1.0, atol=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_direct_and_the_iterative_solver_agree(solver: Solver) -> None:
    W, y = random_graph(400, seed=1, density=0.01), some_labels(400, 6, 3, seed=1)
    np.testing.assert_allclose(solver(W, y, 3, dense_up_to=0), solver(W, y, 3, dense_up_to=400), atol=1e-8)


@pytest.mark.parametrize("dense_up_to", [0, 3000])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_component_without_a_label_and_a_sample_without_an_edge_are_uniform(solver: Solver, dense_up_to: int) -> None:
    W = csr_array(block_diag([random_graph(8, 0).toarray(), random_graph(6, 1).toarray(), np.zeros((1, 1))]))
    y = np.full(15, -1)
    y[0] = 1
    F = solver(W, y, 4, dense_up_to=dense_up_to)
    np.testing.assert_allclose(F[8:], 0.25, atol=1e-9)
    assert (F[:8].argmax(1) == 1).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_label_of_a_sample_without_an_edge_is_kept(solver: Solver) -> None:
    W = csr_array(block_diag([random_graph(8, 0).toarray(), np.zeros((1, 1))]))
    F = solver(W, np.array([0] + 7 * [-1] + [1]), 2)
    np.testing.assert_allclose(F[8], [0.0, 1.0])


@pytest.mark.parametrize("alpha", [0.0, 1e-9])
def test_consistency_with_alpha_near_zero_returns_the_labels(alpha: float) -> None:
    W, y = random_graph(20, 0), some_labels(20, 5, 3, 0)
    F = local_global_consistency(W, y, 3, alpha)
    np.testing.assert_allclose(F[y >= 0], np.eye(3)[y[y >= 0]], atol=1e-6)


def test_a_chain_between_two_labels_is_a_straight_line() -> None:
    chain = csr_array(np.diag(np.ones(4), 1) + np.diag(np.ones(4), -1))
    F = label_propagation(chain, np.array([0, -1, -1, -1, 1]), 2)
    np.testing.assert_allclose(F[:, 1], [0.0, 0.25, 0.5, 0.75, 1.0], atol=1e-4)


def test_if_every_sample_is_labelled_the_labels_are_returned() -> None:
    y = np.array([0, 1, 1, 0])
    np.testing.assert_array_equal(label_propagation(random_graph(4, 0), y, 2), np.eye(2)[y])


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("y", "message"), [([-1, -1, -1], "all 3 are -1"), ([0, -1], "2 entries, but the graph has 3"), ([0, 2, -1], "class 2")]
)
def test_invalid_labels_are_refused(solver: Solver, y: list[int], message: str) -> None:
    with pytest.raises(LabelError, match=message):
        solver(random_graph(3, 0), np.array(y), 2)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, n_labelled=st.integers(2, 19), dense_up_to=st.sampled_from([0, 3000]))
def test_the_harmonic_function_is_the_fixed_point_of_label_propagation(seed: int, n_labelled: int, dense_up_to: int) -> None:
    # F <- D^-1 W F with labels fixed, until nothing changes; and (D_UU - W_UU)^-1 W_UL Y_L.
    W, y = random_graph(20, seed), some_labels(20, n_labelled, 3, seed)
    L, U, dense = y >= 0, y < 0, W.toarray()
    F, iterated = harmonic(W, y, 3, dense_up_to=dense_up_to), np.eye(3)[y] * L[:, None]
    for _ in range(3000):
        iterated[U] = (dense / dense.sum(1, keepdims=True) @ iterated)[U]
    closed = np.linalg.inv(np.diag(dense.sum(1))[np.ix_(U, U)] - dense[np.ix_(U, U)]) @ dense[np.ix_(U, L)] @ np.eye(3)[y[L]]
    np.testing.assert_allclose(F, iterated, atol=1e-6)
    np.testing.assert_allclose(F[U], closed, atol=1e-6)
    np.testing.assert_allclose(F, label_propagation(W, y, 3, teleport=0.0), atol=1e-6)


def test_class_mass_normalization_by_hand() -> None:
    # the two unlabelled samples have masses 1.5 and 0.5; with equal class fractions the columns are divided by these
    F = np.array([[1.0, 0.0], [0.9, 0.1], [0.6, 0.4]])
    normalized = normalize_class_mass(F, np.array([False, True, True]), [1, 1])
    np.testing.assert_allclose(normalized, [[1.0, 0.0], [0.75, 0.25], [1 / 3, 2 / 3]])
    np.testing.assert_allclose(normalize_class_mass(F, np.array([False, True, True]), [3, 1]), F)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, fractions=st.lists(st.floats(0.05, 1.0), min_size=3, max_size=3))
def test_class_mass_normalization_keeps_labels_and_rows_that_sum_to_one(seed: int, fractions: list[float]) -> None:
    W, y = random_graph(20, seed), some_labels(20, 5, 3, seed)
    F = normalize_class_mass(harmonic(W, y, 3), y < 0, fractions)
    np.testing.assert_allclose(F.sum(1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(F[y >= 0], np.eye(3)[y[y >= 0]])


@pytest.mark.parametrize("alpha", [-0.1, 1.0])
def test_alpha_out_of_range_is_refused(alpha: float) -> None:
    with pytest.raises(SettingError, match="0 <= alpha < 1"):
        local_global_consistency(random_graph(3, 0), np.array([0, 1, -1]), 2, alpha)


def test_with_balanced_each_class_has_the_same_total_label_mass() -> None:
    # Class 0 has two labels and class 1 one, all equally far from the last sample, which gets both classes equally.
    W = csr_array(np.array([[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1], [1, 1, 1, 0.0]]))
    y = np.array([0, 0, 1, -1])
    plain, balanced = (local_global_consistency(W, y, 2, 0.5, balanced=b)[3] for b in (False, True))
    np.testing.assert_allclose(plain, [2 / 3, 1 / 3])
    np.testing.assert_allclose(balanced, [1 / 2, 1 / 2])


@settings(max_examples=25, deadline=None)
@given(seed=seeds, n_labelled=st.integers(3, 12), dense_up_to=st.sampled_from([0, 3000]))
def test_a_label_left_out_equals_a_propagation_without_it(seed: int, n_labelled: int, dense_up_to: int) -> None:
    W, y = random_graph(20, seed), some_labels(20, n_labelled, 3, seed)
    held_out = np.flatnonzero(y >= 0)[::2]
    rows = leave_one_out_consistency(W, y, 3, held_out, 0.9, dense_up_to=dense_up_to)
    for row, k in zip(rows, held_out, strict=True):
        without = np.where(np.arange(20) == k, -1, y)
        np.testing.assert_allclose(row, local_global_consistency(W, without, 3, 0.9)[k], atol=1e-6)
