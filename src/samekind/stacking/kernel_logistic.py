"""Logistic regression with a linear or a Gaussian (RBF) kernel. The labelled samples are the centres of the kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from samekind.graphs.linear_systems import Floats, Labels
from samekind.stacking.input_views import ViewName

MAX_CENTERS = 1000  # largest number of RBF centres; if there are more labelled samples, every n-th of them is a centre
MAX_ITERATIONS = 200
COLUMNS = "columns"  # name of the base classifier for encoded tables
RIDGE = 1e-6  # added to the diagonal of a kernel matrix, so that its inverse square root exists


class BaseClassifier(NamedTuple):
    """One base classifier of the ensemble: which view of the input it gets, whether it has an RBF kernel, and the L2
    parameter C.

    C is the inverse of the penalty, as in scikit-learn.
    """

    name: str
    view: ViewName
    rbf: bool
    C: float


def base_classifiers(n_features: int, *, table: bool = False) -> tuple[BaseClassifier, ...]:
    """Return the base classifiers for samples with `n_features` columns.

    The values of C are chosen for views whose rows have length 1. The "standardized" view has columns of variance 1/n_features;
    there C = 0.5 n_features is the same penalty as C = 0.5 on columns of variance 1. `table` adds a classifier for encoded
    tables: scikit-learn's default C = 1 on numbers of variance 1 and on categories as 0 or 1.
    """
    columns = (BaseClassifier(COLUMNS, "unscaled", rbf=False, C=1.0),) if table else ()
    return (
        BaseClassifier("unit_standardized", "unit_standardized", rbf=False, C=20.0),
        BaseClassifier("unit", "unit", rbf=False, C=20.0),
        BaseClassifier("standardized", "standardized", rbf=False, C=0.5 * n_features),
        BaseClassifier("rbf", "standardized", rbf=True, C=5.0),
        *columns,
    )


class FeatureMap(NamedTuple):
    """Map from the view v(x) of a sample (its scaled columns) to the inputs of the logistic regression.

    The inputs are v(x) @ basis; for an RBF kernel K, they are K(v(x), centers) @ basis.
    """

    centers: Tensor | None  # (r, d); None: the kernel is linear
    basis: Tensor | None  # None: no change of basis

    def __call__(self, view: Tensor) -> Tensor:
        inputs = view if self.centers is None else rbf_kernel(view, self.centers)
        return inputs if self.basis is None else inputs @ self.basis

    def coefficients(self, weights: Tensor) -> Tensor:
        """Return the coefficients on the view, or on the kernel values, that are equivalent to `weights` (r, C) on the
        mapped inputs.
        """
        return weights if self.basis is None else self.basis @ weights


def rbf_kernel(A: Tensor, B: Tensor) -> Tensor:
    """Return exp(-||a - b||^2) (n_a, n_b). On the standardized view that equals scikit-learn's gamma = 1 / n_features."""
    return torch.exp(-torch.cdist(A, B).square())


def fit_feature_map(labelled: Tensor, *, rbf: bool) -> FeatureMap:
    """Return the map onto the span of the labelled samples (m, d).

    With an L2 penalty, the solution lies in this span, so nothing is lost.
    """
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
    """Fitted logistic regression: weights (r, C) and bias (C,). Calling it with inputs (n, r) returns logits (n, C)."""

    weights: Floats
    bias: Floats

    def __call__(self, inputs: Floats) -> Floats:
        return np.asarray(inputs @ self.weights + self.bias)


def fit_logistic(
    inputs: Floats, y: Labels, n_classes: int, C: float, sample_weight: Floats, start: Logits | None = None
) -> Logits:
    """Return the multinomial logistic regression of y (m,) on inputs (m, r).

    A class without a sample gets a bias of minus infinity, and so probability 0. The optimization begins at `start`, which must
    have a finite bias for each class; by default at zeros.
    """
    from sklearn.linear_model import LogisticRegression  # imported here: it loads packages that other methods do not need

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
    if len(present) == 2:  # for two classes, scikit-learn returns one column of coefficients
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
    """Return a weight (m,) for each labelled sample, such that each class has the given fraction of the total weight."""
    counts = np.bincount(y, minlength=len(fractions))
    return np.asarray((fractions * len(y) / np.maximum(counts, 1))[y])
