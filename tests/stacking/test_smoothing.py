"""Smoothing over a graph, against the dense solution."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.datasets import make_blobs

from samekind.graphs.affinity import self_tuning_graph
from samekind.graphs.poisson_learning import poisson_learning
from samekind.stacking.smoothing import Smoother, label_sources, root_mean_square, with_labels


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


def test_labels_replace_predictions() -> None:
    fixed = with_labels(np.full((3, 2), 0.5), np.array([1]), np.array([0]))
    np.testing.assert_array_equal(fixed, [[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]])


def test_label_sources_cancel_and_share_the_mass_of_their_class() -> None:
    B = label_sources(4, np.array([0, 1, 2]), np.array([0, 0, 1]), np.array([0.6, 0.4]))
    np.testing.assert_allclose(B.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(B[:, 0], [0.3 - 0.2, 0.3 - 0.2, 0.0 - 0.2, 0.0], atol=1e-12)


@settings(deadline=None)
@given(st.integers(3, 25), st.integers(0, 10))
def test_the_potential_is_the_dense_solution_and_follows_from_responses(n: int, seed: int) -> None:
    smoother, rng = Smoother(random_graph(n, seed)), np.random.default_rng(seed)
    B = label_sources(n, np.arange(3), np.array([0, 1, 1]), np.array([0.5, 0.5]))
    root = np.diag(smoother.inverse_root)
    dense = 0.01 * root @ np.linalg.solve(np.eye(n) - 0.99 * smoother.S.toarray(), root @ B)
    np.testing.assert_allclose(smoother.potential(B, 0.99), dense, atol=1e-4)
    chosen = rng.choice(n, 2, replace=False)
    found = smoother.potential_of(chosen, smoother.responses(chosen, 0.99), B)
    np.testing.assert_allclose(found, dense[chosen], atol=1e-3)


def test_the_potential_has_the_order_of_poisson_learning() -> None:
    X, y = make_blobs([20, 20, 20], centers=[[0, 0], [6, 0], [0, 6]], random_state=0)
    W, _ = self_tuning_graph(torch.from_numpy(X), 10)
    index = np.array([0, 25, 50])
    potential = Smoother(W).potential(label_sources(60, index, y[index], np.full(3, 1 / 3)), 0.999)
    shown = np.full(60, -1)
    shown[index] = y[index]
    np.testing.assert_array_equal(potential.argmax(axis=1), poisson_learning(W, shown, 3).argmax(axis=1))


def test_the_root_mean_square_of_zeros_is_positive() -> None:
    assert root_mean_square(np.array([[3.0, -4.0]])) == pytest.approx(np.sqrt(12.5))
    assert root_mean_square(np.zeros((2, 2))) > 0


def test_the_potential_of_any_samples_follows_from_the_responses_of_the_sources() -> None:
    smoother = Smoother(random_graph(25, 3))
    samples, y = np.array([2, 9, 17]), np.array([0, 1, 1])
    sources = label_sources(25, samples, y, np.array([0.5, 0.5]))
    responses = smoother.responses(samples, 0.9)
    expected = smoother.potential(sources, 0.9)
    found = smoother.potential_from(samples, responses, sources[samples], np.array([0, 5, 24]))
    np.testing.assert_allclose(found, expected[[0, 5, 24]], atol=1e-3 * np.abs(expected).max())


def test_the_cut_is_the_mean_weight_of_the_edges_that_leave_a_class() -> None:
    smoother = Smoother(random_graph(20, 4))
    classes = np.random.default_rng(0).integers(0, 3, 20)
    S = smoother.S.toarray()
    expected = [1.0 - S[np.ix_(classes == c, classes == c)].sum() / S[classes == c].sum() for c in range(3)]
    assert smoother.cut(classes, 3) == pytest.approx(np.mean(expected))
    assert smoother.cut(np.zeros(20, dtype=np.int64), 1) == pytest.approx(0.0)
    assert smoother.cut(np.zeros(20, dtype=np.int64), 2) == pytest.approx(0.5)  # the class without samples counts as 1
