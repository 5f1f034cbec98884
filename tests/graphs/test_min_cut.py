"""Minimum cuts against an exhaustive search over all labellings: optimal for two classes, nearly so for more."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.sparse import csr_array

from samekind.errors import LabelError
from samekind.graphs.min_cut import average_min_cuts, cut_weight, min_cut

seeds = st.integers(0, 999)


def random_graph(n: int, seed: int, density: float = 0.5) -> csr_array:
    g = np.random.default_rng(seed)
    W = np.triu(g.uniform(0.1, 1.0, (n, n)) * (g.uniform(size=(n, n)) < density), 1)
    return csr_array(W + W.T)


def some_labels(n: int, n_classes: int, seed: int) -> NDArray[np.int64]:
    """Return labels with one labelled sample of each class."""
    y = np.full(n, -1)
    y[np.random.default_rng(seed).choice(n, n_classes, replace=False)] = np.arange(n_classes)
    return y


def smallest_cut(W: csr_array, y: NDArray[np.int64], n_classes: int) -> float:
    """Return the smallest cut of all labellings that keep y."""
    dense, U = W.toarray(), np.flatnonzero(y < 0)
    all_labels = np.tile(y, (n_classes ** len(U), 1))
    all_labels[:, U] = list(product(range(n_classes), repeat=len(U)))
    apart = all_labels[:, :, None] != all_labels[:, None, :]
    return float((apart * dense).sum(axis=(1, 2)).min() / 2)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, n=st.integers(3, 10), density=st.floats(0.1, 1.0))
def test_with_two_classes_no_labelling_cuts_less(seed: int, n: int, density: float) -> None:
    W, y = random_graph(n, seed, density), some_labels(n, 2, seed)
    labels = min_cut(W, y, 2)
    assert cut_weight(W, labels) == pytest.approx(smallest_cut(W, y, 2), abs=1e-6)
    np.testing.assert_array_equal(labels[y >= 0], y[y >= 0])


@settings(max_examples=25, deadline=None)
@given(seed=seeds, density=st.floats(0.2, 1.0))
def test_with_three_classes_the_cut_is_at_most_twice_the_optimum_and_no_expansion_improves_it(
    seed: int, density: float
) -> None:
    W, y = random_graph(9, seed, density), some_labels(9, 3, seed)
    labels = min_cut(W, y, 3)
    cut, smallest = cut_weight(W, labels), smallest_cut(W, y, 3)
    assert smallest - 1e-6 <= cut <= 2 * smallest + 1e-6
    free = np.flatnonzero(y < 0)
    for c, changing in product(range(3), product([False, True], repeat=len(free))):
        other = labels.copy()
        other[free[list(changing)]] = c
        assert cut_weight(W, other) >= cut - 1e-6


def test_two_clusters_are_cut_at_the_weak_edge_between_them() -> None:
    cluster = np.ones((4, 4)) - np.eye(4)
    W = block_diag(cluster, cluster)
    W[3, 4] = W[4, 3] = 0.5
    y = np.array([0] + 6 * [-1] + [1])
    labels = min_cut(csr_array(W), y, 2)
    assert labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert cut_weight(csr_array(W), labels) == 0.5


def test_very_large_and_very_small_weights_keep_their_order() -> None:
    W = np.zeros((4, 4))
    for i, weight in enumerate([1e6, 1.0, 2.0]):
        W[i, i + 1] = W[i + 1, i] = weight
    assert min_cut(csr_array(W), np.array([0, -1, -1, 1]), 2).tolist() == [0, 0, 1, 1]
    assert min_cut(csr_array(1e-12 * W), np.array([0, -1, -1, 1]), 2).tolist() == [0, 0, 1, 1]


def test_if_every_sample_is_labelled_the_labels_are_returned() -> None:
    y = np.array([0, 1, 1, 0])
    assert min_cut(random_graph(4, 0), y, 2).tolist() == y.tolist()


@settings(max_examples=15, deadline=None)
@given(seed=seeds, cuts=st.sampled_from([1, 4]))
def test_rows_of_the_average_sum_to_one_and_count_cuts(seed: int, cuts: int) -> None:
    W, y = random_graph(12, seed), some_labels(12, 3, seed)
    F = average_min_cuts(W, y, 3, cuts=cuts, noise=0.0 if cuts == 1 else 2.0, seed=seed)
    np.testing.assert_allclose(F.sum(1), 1.0)
    if (F == 1 / 3).sum() == 0:
        np.testing.assert_allclose(F * cuts, np.rint(F * cuts), atol=1e-9)


def test_a_sample_between_two_equal_edges_gets_both_classes_on_noisy_graphs() -> None:
    W = csr_array(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    y = np.array([0, -1, 1])
    assert set(average_min_cuts(W, y, 2)[1]) == {0.0, 1.0}
    noisy = average_min_cuts(W, y, 2, cuts=60, noise=0.5, seed=0)
    assert 0.2 < noisy[1, 0] < 0.8
    np.testing.assert_array_equal(noisy, average_min_cuts(W, y, 2, cuts=60, noise=0.5, seed=0))
    assert not np.array_equal(noisy, average_min_cuts(W, y, 2, cuts=60, noise=0.5, seed=1))


def test_a_component_without_a_label_is_uniform() -> None:
    W = csr_array(block_diag(np.ones((3, 3)) - np.eye(3), np.ones((2, 2)) - np.eye(2), np.zeros((1, 1))))
    F = average_min_cuts(W, np.array([0, 1, -1, -1, -1, -1]), 2)
    np.testing.assert_array_equal(F[3:], np.full((3, 2), 0.5))


def test_a_cut_without_labels_is_refused() -> None:
    with pytest.raises(LabelError, match="all 3 are -1"):
        min_cut(random_graph(3, 0), np.full(3, -1), 2)
