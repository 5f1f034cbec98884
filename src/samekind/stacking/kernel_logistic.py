"""Logistic regression on a linear or a Gaussian (RBF) kernel, with the labelled samples as the centres of the kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from samekind.graphs.linear_systems import Floats, Labels
from samekind.stacking.input_views import ViewName

MAX_CENTERS = 1000  # most centres of the RBF kernel; if there are more labelled samples, every n-th is a centre
MAX_ITERATIONS = 200
RIDGE = 1e-6  # added to the diagonal of a kernel matrix, so that its inverse square root exists


class BaseClassifier(NamedTuple):
    """One base classifier of the ensemble: its view of the input, its kernel and the inverse of its L2 penalty."""

    name: str
    view: ViewName
    rbf: bool
    C: float


def base_classifiers(n_features: int) -> tuple[BaseClassifier, ...]:
    """Return the base classifiers for samples of `n_features` columns.

    The penalties are chosen for views whose rows have length 1. On the "standardized" view, whose columns have variance
    1/n_features, C = 0.5 n_features is the same penalty as C = 0.5 on columns of variance 1.
    """
    return (
        BaseClassifier("unit_standardized", "unit_standardized", rbf=False, C=20.0),
        BaseClassifier("unit", "unit", rbf=False, C=20.0),
        BaseClassifier("standardized", "standardized", rbf=False, C=0.5 * n_features),
        BaseClassifier("rbf", "standardized", rbf=True, C=5.0),
    )


class FeatureMap(NamedTuple):
    """Map of a view v(x) to the inputs of the logistic regression: v(x) @ basis, or K(x, centers) @ basis for RBF."""

    centers: Tensor | None  # (r, d): None for the linear kernel
    basis: Tensor | None  # None: the identity

    def __call__(self, view: Tensor) -> Tensor:
        inputs = view if self.centers is None else rbf_kernel(view, self.centers)
        return inputs if self.basis is None else inputs @ self.basis

    def coefficients(self, weights: Tensor) -> Tensor:
        """Return `weights` (r, C) of the mapped inputs as the equivalent coefficients of the view, or of the kernel values."""
        return weights if self.basis is None else self.basis @ weights


def rbf_kernel(A: Tensor, B: Tensor) -> Tensor:
    """Return exp(-||a - b||^2) (n_a, n_b). On the standardized view this is scikit-learn's gamma = 1 / n_features."""
    return torch.exp(-torch.cdist(A, B).square())


def fit_feature_map(labelled: Tensor, *, rbf: bool) -> FeatureMap:
    """Return the map onto the span of the labelled samples (m, d), in which every L2-regularized solution lies."""
    if rbf:
        centers = labelled[:: -(-len(labelled) // MAX_CENTERS)]
        return FeatureMap(centers, _inverse_root(rbf_kernel(centers, centers)))
    if labelled.shape[1] <= len(labelled):
        return FeatureMap(None, None)
    return FeatureMap(None, torch.linalg.qr(labelled.T).Q)


def _inverse_root(K: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(K + RIDGE * torch.eye(len(K), dtype=K.dtype))
    root: Tensor = vectors / values.clamp_min(RIDGE).sqrt()
    return root


class Logits(NamedTuple):
    """Weights (r, C) and bias (C,) of a logistic regression."""

    weights: Floats
    bias: Floats

    def __call__(self, inputs: Floats) -> Floats:
        return np.asarray(inputs @ self.weights + self.bias)


def fit_logistic(
    inputs: Floats, y: Labels, n_classes: int, C: float, sample_weight: Floats, start: Logits | None = None
) -> Logits:
    """Return multinomial logistic regression on inputs (m, r); a class without a sample has a bias of minus infinity.

    The optimization begins at `start`, which must have a finite bias for each class, or at zeros.
    """
    from sklearn.linear_model import LogisticRegression  # here: it loads rich, which other methods do not need

    present = np.unique(y)
    weights, bias = np.zeros((inputs.shape[1], n_classes)), np.full(n_classes, -np.inf)
    if len(present) == 1:
        bias[present] = 0.0
        return Logits(weights, bias)
    model = LogisticRegression(C=C, max_iter=MAX_ITERATIONS, tol=1e-4, warm_start=start is not None)
    if start is not None:
        _start_at(model, start, present)
    model.fit(inputs, y, sample_weight=sample_weight)
    coefficients, intercept = model.coef_, model.intercept_
    if len(present) == 2:  # scikit-learn has one column for two classes
        coefficients, intercept = np.stack([-coefficients[0], coefficients[0]]) / 2, np.array([-0.5, 0.5]) * intercept[0]
    weights[:, present], bias[present] = coefficients.T, intercept
    return Logits(weights, bias)


def _start_at(model: Any, start: Logits, present: Labels) -> None:
    coefficients, intercept = start.weights[:, present].T, start.bias[present]
    if len(present) == 2:
        coefficients, intercept = coefficients[1:] - coefficients[:1], intercept[1:] - intercept[:1]
    model.coef_, model.intercept_ = np.ascontiguousarray(coefficients), intercept


def softmax(logits: Floats) -> Floats:
    """Return the probabilities (n, C) of logits (n, C)."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def class_balance_weights(y: Labels, fractions: NDArray[np.float64]) -> Floats:
    """Return a weight for each labelled sample, so that each class has the given fraction of the total weight."""
    counts = np.bincount(y, minlength=len(fractions))
    return np.asarray((fractions * len(y) / np.maximum(counts, 1))[y])
