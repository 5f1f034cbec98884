"""Labels completed as missing entries of a low-rank matrix."""

from __future__ import annotations

import numpy as np
import pytest

from samekind.graphs.matrix_completion import complete_labels, shrink_singular_values


def test_each_singular_value_is_reduced_and_stops_at_zero() -> None:
    np.testing.assert_allclose(shrink_singular_values(np.diag([5.0, 3.0, 1.0]), 2.0), np.diag([3.0, 1.0, 0.0]), atol=1e-12)
    ones = np.ones((2, 3))  # one singular value, sqrt(6)
    np.testing.assert_allclose(shrink_singular_values(ones, 1.0), ones * (1 - 1 / np.sqrt(6)), atol=1e-12)


def test_samples_take_the_class_of_similar_features() -> None:
    truth = np.arange(60) % 3
    g = np.random.default_rng(0)
    X = g.normal(size=(3, 8))[truth] + 0.1 * g.normal(size=(60, 8))
    y = np.where(np.arange(60) < 6, truth, -1)
    assert (complete_labels(X, y, 3) == truth).all()


def test_a_given_label_is_kept_against_the_features() -> None:
    X = np.array([[1.0], [1.0], [1.0], [1.0], [-1.0], [-1.0]])
    y = np.array([0, 0, 0, 1, 1, -1])
    assert complete_labels(X, y, 2).tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("X", [np.zeros((5, 3)), np.full((5, 2), 7.0)])
def test_constant_features_give_the_most_frequent_class(X: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> None:
    found = complete_labels(X, np.array([0, 1, 1, -1, -1]), 2)
    assert found.tolist() == [0, 1, 1, 1, 1]  # the more frequent class


def test_the_scale_and_offset_of_a_feature_do_not_matter() -> None:
    g = np.random.default_rng(1)
    X, y = g.normal(size=(30, 4)), np.where(np.arange(30) < 8, np.arange(30) % 2, -1)
    other = X * np.array([1.0, 10.0, 0.1, 5.0]) + np.array([3.0, 0.0, -9.0, 1.0])
    assert complete_labels(X, y, 2).tolist() == complete_labels(other, y, 2).tolist()
