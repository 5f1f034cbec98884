"""Labels as the missing entries of a matrix of low rank.

Goldberg, Zhu, Recht, Xu & Nowak 2010, "Transduction with Matrix Completion"; solved by fixed-point continuation.
"""

from __future__ import annotations

import numpy as np

from samekind.graphs.linear_systems import Floats, Labels

SHRINKS = (0.25, 0.0625, 0.0156, 0.0039)  # what is taken off the singular values, as shares of the largest
STEPS = 100  # at each of them, at the most
SETTLED = 1e-3  # relative change at which a step is the last


def complete_labels(
    X: Floats, y: Labels, n_classes: int, *, label_weight: float = 4.0, shrinks: tuple[float, ...] = SHRINKS
) -> Labels:
    """A class for every row of X (n, d), y (n,) holding -1 where it is missing; given labels stay.

    Z (C + d + 1, n) = [+-1 labels; features; ones] minimises

        s ||Z||_* + 1/2 SUM over features (Z - X)^2 + label_weight SUM over known labels ln(1 + exp(-y Z)),  last row = 1

    for ever smaller s, each solution the start of the next; the class of a row is the largest of its first C entries.
    """
    known = np.flatnonzero(y >= 0)
    target = np.full((n_classes, len(known)), -1.0)
    target[y[known], np.arange(len(known))] = 1.0
    features = _standardised(X).T
    Z = np.concatenate([np.zeros((n_classes, len(y))), features, np.ones((1, len(y)))])
    Z[:n_classes, known] = target
    largest = float(np.linalg.norm(Z, 2)) if Z.size else 0.0
    length = 1.0 / max(1.0, label_weight / 4.0)  # of a step: the logistic loss bends by a quarter at the most
    for share in shrinks:
        Z = _settled(Z, features, target, known, label_weight=label_weight, length=length, shrink=share * largest)
    return np.asarray(np.where(y >= 0, y, Z[:n_classes].argmax(axis=0)))


def shrunk(A: Floats, by: float) -> Floats:
    """A with each singular value made smaller by so much, none below 0.

    By the eigenvectors of A A^T: A is far wider than high, and most time would be spent on its other vectors.
    """
    s2, U = np.linalg.eigh(A @ A.T)
    s = np.sqrt(np.maximum(s2, np.finfo(float).tiny))
    return np.asarray((U * np.maximum(1.0 - by / s, 0.0)) @ (U.T @ A))


def _settled(
    Z: Floats, features: Floats, target: Floats, known: Labels, *, label_weight: float, length: float, shrink: float
) -> Floats:
    C = len(target)
    for _ in range(STEPS):
        A = Z.copy()
        A[C:-1] -= length * (Z[C:-1] - features)
        A[:C, known] += length * label_weight * target / (1.0 + np.exp(target * Z[:C, known]))
        A = shrunk(A, length * shrink)
        A[-1] = 1.0
        change = np.linalg.norm(A - Z)
        Z = A
        if change <= SETTLED * np.linalg.norm(Z):
            break
    return Z


def _standardised(X: Floats) -> Floats:
    """Each column with mean 0 and deviation 1; one that is the same everywhere is 0."""
    centred, deviation = X - X.mean(axis=0), X.std(axis=0)
    varies = deviation > 1e-12 * np.abs(X).max(initial=1.0)
    return np.asarray(np.divide(centred, deviation, out=np.zeros_like(centred), where=varies))
