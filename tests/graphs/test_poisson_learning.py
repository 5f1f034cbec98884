"""Poisson learning: the potential equals the pseudo-inverse solution, and the results are probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import block_diag
from scipy.sparse import csr_array
from tests.graphs.random_graphs import random_graph, some_labels

from samekind.errors import LabelError, SettingError
from samekind.graphs.poisson_learning import poisson_learning, poisson_potential

seeds = st.integers(0, 999)
CHAIN = csr_array(np.diag(np.ones(4), 1) + np.diag(np.ones(4), -1))


@settings(max_examples=25, deadline=None)
@given(seed=seeds, n_labelled=st.integers(1, 19), dense_up_to=st.sampled_from([0, 3000]))
def test_the_potential_equals_the_pseudo_inverse_solution(seed: int, n_labelled: int, dense_up_to: int) -> None:
    # U = (D - W)^+ (Y - mean), shifted so that SUM_i d_i U_i = 0; notation from Calder et al.
    W, y = random_graph(20, seed), some_labels(20, n_labelled, 3, seed)
    degree = W.toarray().sum(1)
    Y = np.eye(3)[y] * (y >= 0)[:, None]
    B = np.where((y >= 0)[:, None], Y - Y.sum(0) / n_labelled, 0.0)
    expected = np.linalg.pinv(np.diag(degree) - W.toarray()) @ B
    expected -= degree @ expected / degree.sum()
    U = poisson_potential(W, y, 3, dense_up_to=dense_up_to)
    np.testing.assert_allclose(U, expected, atol=1e-6)
    np.testing.assert_allclose(degree @ U, 0.0, atol=1e-9)


def test_on_a_chain_the_potential_falls_in_a_straight_line_from_source_to_sink() -> None:
    # half a unit flows from the first point to the last, over four edges of weight 1
    U = poisson_potential(CHAIN, np.array([0, -1, -1, -1, 1]), 2)
    np.testing.assert_allclose(U[:, 0], [1.0, 0.5, 0.0, -0.5, -1.0], atol=1e-12)
    np.testing.assert_allclose(U[:, 1], -U[:, 0], atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, n=st.integers(2, 40), density=st.floats(0.0, 1.0), rounds=st.sampled_from([0, 3]))
def test_rows_are_probabilities_in_the_order_of_the_potential(seed: int, n: int, density: float, rounds: int) -> None:
    W, y = random_graph(n, seed, density), some_labels(n, 2, 4, seed)
    F = poisson_learning(W, y, 4, rounds=rounds)
    assert F.min() >= 0.0
    np.testing.assert_allclose(F.sum(1), 1.0, atol=1e-12)
    seen = np.unique(y[y >= 0])
    if rounds == 0 and len(seen) > 1:
        U = poisson_potential(W, y, 4)[:, seen]
        top = U[np.arange(n), F[:, seen].argmax(1)]
        np.testing.assert_allclose(top, U.max(1), atol=1e-9)


def test_each_component_is_solved_by_itself() -> None:
    W = csr_array(block_diag(random_graph(8, 0).toarray(), CHAIN.toarray(), CHAIN.toarray(), np.zeros((2, 2))))
    y = np.full(20, -1)
    y[[0, 5]] = 0, 1
    y[[8, 12]] = 0, 2
    y[15] = 1  # the only label of its component
    y[19] = 2  # a sample without an edge
    F = poisson_learning(W, y, 3)
    alone = poisson_learning(random_graph(8, 0), y[:8], 3)
    np.testing.assert_array_equal(F[:8].argmax(1), alone.argmax(1))
    assert (F[:8, 2] == 0).all() and (F[8:13, 1] == 0).all()  # classes that have no label there
    np.testing.assert_array_equal(F[13:18], np.tile([0.0, 1.0, 0.0], (5, 1)))
    np.testing.assert_allclose(F[18], 1 / 3)
    np.testing.assert_array_equal(F[19], [0.0, 0.0, 1.0])


def test_a_class_with_a_larger_fraction_gets_more_samples() -> None:
    W, y = random_graph(60, 3, 0.1), np.array([0, 1, 2] + 57 * [-1])
    few, even, many = (
        int((poisson_learning(W, y, 3, class_fractions=fractions).argmax(1) == 0).sum())
        for fractions in ([1, 4, 4], [1, 1, 1], [4, 1, 1])
    )
    assert few < even < many
    np.testing.assert_array_equal(poisson_learning(W, y, 3), poisson_learning(W, y, 3, class_fractions=[2, 2, 2]))


def test_threshold_dynamics_approach_the_class_fractions_and_keep_labels() -> None:
    g = np.random.default_rng(0)
    x = np.concatenate([g.normal(0, 1, 30), g.normal(3, 1, 70)])
    W = np.exp(-4 * np.square(x[:, None] - x)) * (1 - np.eye(100))
    y = np.full(100, -1)
    y[[0, 1, 30, 31]] = 0, 0, 1, 1
    F = poisson_learning(csr_array(W), y, 2, class_fractions=[0.3, 0.7], rounds=20)
    assert set(np.unique(F)) == {0.0, 1.0}
    assert F[:, 0].mean() == pytest.approx(0.3, abs=0.05)
    np.testing.assert_array_equal(F[y >= 0].argmax(1), y[y >= 0])


@pytest.mark.parametrize("fractions", [[1.0], [1.0, 0.0], [1.0, 1.0, 1.0]])
def test_class_fractions_that_do_not_fit_the_classes_are_refused(fractions: list[float]) -> None:
    with pytest.raises(SettingError, match="expected 2 numbers above 0"):
        poisson_learning(CHAIN, np.array([0, -1, -1, -1, 1]), 2, class_fractions=fractions)


def test_a_potential_without_labels_is_refused() -> None:
    with pytest.raises(LabelError, match="all 5 are -1"):
        poisson_potential(CHAIN, np.full(5, -1), 2)
