"""Logistic regression on kernels, against scikit-learn."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from samekind.stacking.kernel_logistic import class_balance_weights, fit_feature_map, fit_logistic, rbf_kernel, softmax


def test_the_span_of_the_labelled_samples_holds_the_solution_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 40)), np.arange(12) % 3
    feature_map = fit_feature_map(torch.from_numpy(X), rbf=False)
    inputs = feature_map(torch.from_numpy(X)).numpy()
    assert inputs.shape == (12, 12)
    ours = fit_logistic(inputs, y, 3, 1.0, np.ones(12))
    theirs = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(softmax(ours(inputs)), theirs, atol=2e-3)
    coefficients = feature_map.coefficients(torch.from_numpy(ours.weights)).numpy()
    np.testing.assert_allclose(X @ coefficients + ours.bias, ours(inputs), atol=1e-8)


def test_two_classes_have_the_probabilities_of_scikit_learn() -> None:
    X, y = load_iris(return_X_y=True)
    X, y = X[y < 2], y[y < 2]
    ours = fit_logistic(X, y, 2, 1.0, np.ones(len(y)))
    np.testing.assert_allclose(softmax(ours(X)), LogisticRegression(tol=1e-4).fit(X, y).predict_proba(X), atol=1e-6)


def test_rbf_inputs_have_the_kernel_as_their_inner_products() -> None:
    X = torch.randn(9, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    inputs = fit_feature_map(X, rbf=True)(X)
    torch.testing.assert_close(inputs @ inputs.T, rbf_kernel(X, X), atol=1e-4, rtol=0)


def test_a_class_without_a_sample_has_probability_zero() -> None:
    X, y = np.array([[0.0], [1.0]]), np.array([0, 2])
    P = softmax(fit_logistic(X, y, 3, 1.0, np.ones(2))(X))
    np.testing.assert_array_equal(P[:, 1], 0.0)


def test_class_weights_give_each_class_its_fraction_of_the_total_weight() -> None:
    weights = class_balance_weights(np.array([0, 0, 0, 1]), np.array([0.5, 0.5]))
    np.testing.assert_allclose(weights, [2 / 3, 2 / 3, 2 / 3, 2.0])
