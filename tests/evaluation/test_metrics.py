"""Metrics of similarities, in cases that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel

from samekind.evaluation.metrics import matrix_errors, most_similar, pixel_similarity, ranking_metrics

Y = np.array([0, 0, 0, 1])


def test_the_ideal_matrix_has_no_error() -> None:
    assert matrix_errors((Y[:, None] == Y).astype(float), Y) == (0.0, 0.0, 0.0)


def test_a_matrix_of_zeros_is_wrong_only_for_pairs_of_the_same_class() -> None:
    found = matrix_errors(np.zeros((4, 4)), Y)
    assert found.mse == pytest.approx(10 / 16)
    assert found.rmse == pytest.approx((10 / 16) ** 0.5)
    assert found.balanced == pytest.approx(0.5)


def test_a_small_class_counts_as_much_as_a_large_one_in_the_balanced_error() -> None:
    W = (Y[:, None] == Y).astype(float)
    W[3, 3] = 0.0
    assert matrix_errors(W, Y).balanced == pytest.approx((0 + 1) / 2 / 2)


def test_precision_is_over_the_first_k_without_the_query() -> None:
    y = np.array([0, 0, 1, 0])
    found = ranking_metrics(np.array([[9.0, 3.0, 2.0, 1.0]]), np.array([0]), y, k=2)
    assert found.precision == pytest.approx(50.0)
    assert found.mean_average_precision == pytest.approx(100 * (1 + 2 / 3) / 2)
    assert found.auc == pytest.approx(0.5)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_average_precision_and_auc_equal_those_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, queries = rng.permutation(np.arange(30) % 3), rng.choice(30, 8, replace=False)
    scores = rng.normal(size=(8, 30))
    apart = np.arange(30) != queries[:, None]
    right = y[queries][:, None] == y
    average = [average_precision_score(right[q][apart[q]], scores[q][apart[q]]) for q in range(8)]
    found = ranking_metrics(scores, queries, y, k=5)
    assert found.mean_average_precision == pytest.approx(100 * np.mean(average))
    assert found.auc == pytest.approx(roc_auc_score(right[apart], scores[apart]))


def test_pixel_similarity_sorts_pairs_as_a_gaussian_kernel_does() -> None:
    x = np.random.default_rng(0).normal(3.0, 1.0, (30, 4, 4))
    x[3:] *= np.linspace(0.5, 2.0, 27)[:, None, None]  # samples of different norms
    queries = np.array([2, 11, 29])
    kernel = rbf_kernel(x.reshape(30, -1), gamma=0.01)[queries]
    order = np.argsort(pixel_similarity(x, queries).ravel(), kind="stable")
    assert (np.diff(kernel.ravel()[order]) >= -1e-12).all()


def test_most_similar_excludes_the_query_and_sorts_ties_by_index() -> None:
    scores = np.array([[9.0, 1.0, 5.0, 5.0], [0.0, 0.0, 0.0, 7.0]])
    assert most_similar(scores, np.array([0, 3]), 2).tolist() == [[2, 3], [0, 1]]
