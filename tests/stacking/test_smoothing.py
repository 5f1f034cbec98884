"""Smoothing over a graph, against the dense solution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from samekind.stacking.smoothing import Smoother, balanced_labels, mass_factors, with_labels


def random_graph(n: int, seed: int) -> csr_array:
    rng = np.random.default_rng(seed)
    A = rng.random((n, n)) * (rng.random((n, n)) < 0.4)
    A = np.triu(A, 1)
    return csr_array(A + A.T)


@settings(deadline=None)
@given(st.integers(2, 25), st.sampled_from([0.0, 0.5, 0.9, 0.99]), st.integers(0, 10))
def test_smoothing_is_the_dense_solution(n: int, alpha: float, seed: int) -> None:
    smoother, Q = Smoother(random_graph(n, seed)), np.random.default_rng(seed).random((n, 3))
    dense = (1 - alpha) * np.linalg.solve(np.eye(n) - alpha * smoother.S.toarray(), Q)
    np.testing.assert_allclose(smoother.solve(Q, alpha, tolerance=1e-12), dense, atol=1e-8)


def test_responses_smooth_any_predictions_of_the_chosen_samples() -> None:
    smoother, Q = Smoother(random_graph(20, 3)), np.random.default_rng(0).random((20, 4))
    chosen = np.array([2, 7, 19])
    np.testing.assert_allclose(smoother.responses(chosen, 0.9) @ Q, smoother.solve(Q, 0.9)[chosen], atol=1e-3)


def test_a_sample_without_edges_keeps_its_prediction() -> None:
    W = csr_array(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    Q = np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]])
    np.testing.assert_allclose(Smoother(W).smooth(Q, 0.9)[2], Q[2])


def test_labels_replace_predictions_and_classes_have_equal_mass() -> None:
    fixed = with_labels(np.full((3, 2), 0.5), np.array([1]), np.array([0]))
    np.testing.assert_array_equal(fixed, [[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]])
    Y = balanced_labels(4, np.array([0, 1, 2]), np.array([0, 0, 1]), 2)
    np.testing.assert_allclose(Y.sum(axis=0), [1.0, 1.0], atol=1e-6)


def test_mass_factors_give_the_requested_class_fractions() -> None:
    F = np.random.default_rng(0).random((50, 3))
    P = F * mass_factors(F, np.array([0.6, 0.3, 0.1]), steps=100)
    np.testing.assert_allclose((P / P.sum(axis=1, keepdims=True)).mean(axis=0), [0.6, 0.3, 0.1], atol=1e-6)
    assert mass_factors(np.zeros((2, 2)), np.array([0.5, 0.5])) == pytest.approx([1.0, 1.0])
