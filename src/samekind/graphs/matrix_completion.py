"""Label completion: missing labels are filled in like the missing entries of a low-rank matrix.

Goldberg, Zhu, Recht, Xu & Nowak 2010, "Transduction with Matrix Completion"; solved by fixed-point continuation.
"""

from __future__ import annotations

import numpy as np

from samekind.flops import add_flops
from samekind.graphs.linear_systems import Floats, Labels

# The completion is solved once for each of these amounts, which are subtracted from the singular values. They are fractions of
# the largest singular value.
SHRINKAGES = (0.25, 0.0625, 0.0156, 0.0039)
MAX_STEPS = 100  # largest number of iterations for each amount in SHRINKAGES
TOLERANCE = 1e-3  # relative change of the matrix below which the iteration stops


def complete_labels(
    X: Floats, y: Labels, n_classes: int, *, label_weight: float = 4.0, shrinkages: tuple[float, ...] = SHRINKAGES
) -> Labels:
    """Return a class for every sample of X (n, d). y (n,) is -1 where the label is missing; given labels are kept.

    The matrix Z (C + d + 1, n) = [labels as +1 or -1; features; ones] has a column for each sample. It minimises

        s ||Z||_* + 1/2 SUM over features (Z - X)^2 + label_weight SUM over known labels ln(1 + exp(-y Z)),  last row = 1

    for smaller and smaller s; each solution is the start of the next. ||Z||_* is the sum of the singular values. The class of a
    sample is the largest of the first C entries in its column.
    """
    known = np.flatnonzero(y >= 0)
    target = np.full((n_classes, len(known)), -1.0)
    target[y[known], np.arange(len(known))] = 1.0
    features = _standardize(X).T
    Z = np.concatenate([np.zeros((n_classes, len(y))), features, np.ones((1, len(y)))])
    Z[:n_classes, known] = target
    largest = float(np.linalg.norm(Z, 2)) if Z.size else 0.0
    # step size from the largest second derivative of the loss; that of the logistic loss is 1/4
    step = 1.0 / max(1.0, label_weight / 4.0)
    for fraction in shrinkages:
        Z = _fixed_point(Z, features, target, known, label_weight=label_weight, step=step, shrinkage=fraction * largest)
    return np.asarray(np.where(y >= 0, y, Z[:n_classes].argmax(axis=0)))


def shrink_singular_values(A: Floats, by: float) -> Floats:
    """Return A with `by` subtracted from each singular value; negative results become 0.

    The singular values come from the eigenvectors of A A^T. A has many more columns than rows, and a full singular value
    decomposition would spend most of its time on the right singular vectors.
    """
    m, n = A.shape
    # operations of three products of matrices of A's size, and of the eigenvectors of an m x m matrix
    add_flops(6 * m**2 * n + 9 * m**3)
    s2, U = np.linalg.eigh(A @ A.T)
    s = np.sqrt(np.maximum(s2, np.finfo(float).tiny))
    return np.asarray((U * np.maximum(1.0 - by / s, 0.0)) @ (U.T @ A))


def _fixed_point(
    Z: Floats, features: Floats, target: Floats, known: Labels, *, label_weight: float, step: float, shrinkage: float
) -> Floats:
    """Repeat a gradient step on the two losses and a shrinkage of the singular values until Z hardly changes; return Z."""
    C = len(target)
    for _ in range(MAX_STEPS):
        A = Z.copy()
        A[C:-1] -= step * (Z[C:-1] - features)
        A[:C, known] += step * label_weight * target / (1.0 + np.exp(target * Z[:C, known]))
        A = shrink_singular_values(A, step * shrinkage)
        A[-1] = 1.0
        change = np.linalg.norm(A - Z)
        Z = A
        if change <= TOLERANCE * np.linalg.norm(Z):
            break
    return Z


def _standardize(X: Floats) -> Floats:
    """Return X (n, d) with columns of mean 0 and standard deviation 1; a constant column becomes 0."""
    centered, deviation = X - X.mean(axis=0), X.std(axis=0)
    varies = deviation > 1e-12 * np.abs(X).max(initial=1.0)
    return np.asarray(np.divide(centered, deviation, out=np.zeros_like(centered), where=varies))
