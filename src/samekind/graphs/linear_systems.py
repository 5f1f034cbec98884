"""Parts that all graph solvers share: one-hot labels, degrees, connected components, and linear systems.

W (n, n) are the edge weights: sparse, symmetric, not negative, with zero diagonal. D is the diagonal matrix of the row sums of
W. y (n,) holds class numbers, or a negative number for an unlabelled sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator

from samekind.errors import DivergedError, LabelError, SettingError
from samekind.flops import add_flops

Floats = NDArray[np.float64]
Labels = NDArray[np.integer[Any]]

DENSE_UP_TO = 3000  # number of unknowns up to which a direct solver needs less than a second and 100 MB
TOLERANCE = 1e-12  # relative residual at which conjugate gradients stop; the systems have condition numbers up to 2e5


def one_hot(W: csr_array, y: Labels, n_classes: int) -> Floats:
    """Return Y (n, C): a one-hot row for each labelled sample, and a row of zeros for each unlabelled one."""
    if W.shape != (len(y), len(y)):
        raise LabelError(
            f"y has {len(y)} entries, but the graph has {W.shape[0]} samples. Pass one entry per sample, -1 if it is "
            "unlabelled."
        )
    if not (y >= 0).any():
        raise LabelError(f"y holds no labelled sample (all {len(y)} are -1). Label at least one per class.")
    if y.max() >= n_classes:
        raise LabelError(f"y holds class {y.max()}, but n_classes is {n_classes}. Number the classes 0 to n_classes - 1.")
    Y: Floats = np.zeros((len(y), n_classes))
    labelled = np.flatnonzero(y >= 0)
    Y[labelled, y[labelled]] = 1.0
    return Y


def normalize_class_fractions(fractions: Sequence[float] | NDArray[np.floating[Any]], n_classes: int) -> Floats:
    """Return class fractions (C,) divided by their sum; raise SettingError unless there are `n_classes` numbers above 0."""
    q: Floats = np.asarray(fractions, dtype=np.float64)
    if q.shape != (n_classes,) or not (q > 0).all() or not np.isfinite(q).all():
        raise SettingError(f"class fractions are {q.tolist()}; expected {n_classes} numbers above 0, one for each class")
    return np.asarray(q / q.sum())


def degrees(W: csr_array) -> Floats:
    """Return the degrees (n,): the sum of the weights of each sample's edges."""
    return np.asarray(W.sum(axis=1), dtype=np.float64)


def components(W: csr_array) -> NDArray[np.int64]:
    """Return for each sample the number (n,) of its connected component."""
    return np.asarray(connected_components(W, directed=False)[1], dtype=np.int64)


def reachable_from_labels(W: csr_array, y: Labels) -> NDArray[np.bool_]:
    """Return for each sample (n,) whether a path in the graph connects it to a labelled sample."""
    component = components(W)
    return np.isin(component, component[y >= 0])


def solve_positive_definite(A: csr_array, B: Floats, dense_up_to: int, tolerance: float = TOLERANCE) -> Floats:
    """Return the solution X of A X = B for a symmetric and positive definite A.

    Up to `dense_up_to` unknowns a direct solver is used, above that conjugate gradients with a relative `tolerance`. A is
    scaled so that its diagonal is 1; then samples with tiny weights are solved as precisely as others.
    """
    scale: Floats = 1.0 / np.sqrt(A.diagonal())
    E = diags_array(scale)
    A, B = csr_array(E @ A @ E), scale[:, None] * B
    if len(B) > dense_up_to:
        X = conjugate_gradients(A, B, tolerance)
    else:
        n, columns = B.shape
        add_flops(n**3 / 3 + 2 * n**2 * columns)  # operations of the Cholesky factor, and of two triangular systems
        X = solve(A.toarray(), B, assume_a="pos")
    return scale[:, None] * X


def conjugate_gradients(
    A: csr_array | LinearOperator, B: Floats, tolerance: float = TOLERANCE, start: Floats | None = None
) -> Floats:
    """Return the solution X of A X = B for all columns at once, by conjugate gradients.

    Each column stops when ||B - A X|| <= tolerance ||B||. `start` is the initial X, by default zeros. From zeros, X stays
    exactly 0 in a diagonal block of A where B is 0. scipy.sparse.linalg.cg is not used, because it solves one column at a time:
    here A is read once per step for all columns.
    """
    X: Floats = np.zeros_like(B) if start is None else start.copy()
    R = B.copy() if start is None else B - A @ X
    P = R.copy()
    squared = np.einsum("ij,ij->j", R, R)
    target = tolerance**2 * np.einsum("ij,ij->j", B, B)
    steps = 0
    # operations for each step and each entry of B: a product with A, and five sums over vectors
    entries = A.nnz if isinstance(A, csr_array) else A.shape[0]
    while (active := squared > target).any():
        steps += 1
        add_flops(2 * entries * B.shape[1] + 10 * B.size)
        AP = A @ P
        curvature = np.einsum("ij,ij->j", P, AP)
        if steps > 10 * len(B) or not np.isfinite(curvature).all():
            raise DivergedError(
                f"conjugate gradients did not converge in {steps} steps on a graph of {len(B)} samples. "
                "Check W for infinite weights, or raise n_neighbors."
            )
        alpha = np.divide(squared, curvature, out=np.zeros_like(squared), where=active)
        X += alpha * P
        R -= alpha * AP
        new_squared = np.einsum("ij,ij->j", R, R)
        P *= np.divide(new_squared, squared, out=np.zeros_like(squared), where=active)
        P += R
        squared = new_squared
    return X


def normalize_rows(F: Floats) -> Floats:
    """Return F (n, C) with each row divided by its sum. A row of zeros becomes uniform, and negative values become 0.

    Negative values can only be rounding errors.
    """
    F = np.maximum(F, 0.0)
    mass = F.sum(axis=1, keepdims=True)
    uniform = np.full_like(F, 1.0 / F.shape[1])
    normalized: Floats = np.divide(F, mass, out=uniform, where=mass > 0)
    return normalized
