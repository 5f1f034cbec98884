"""What the solvers of graphs share: labels as rows, degrees, parts that hang together, and linear systems.

W (n, n) is sparse, symmetric, not negative, with zero diagonal; D = diag(W 1). y (n,) holds class numbers, or a negative
number where there is no label.
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

Floats = NDArray[np.float64]
Labels = NDArray[np.integer[Any]]

DENSE_UP_TO = 3000  # rows that a direct solver handles within a second and 100 MB
TOLERANCE = 1e-12  # of conjugate gradients, relative; the systems have condition numbers up to 2e5


def one_hot(W: csr_array, y: Labels, n_classes: int) -> Floats:
    """Y (n, C), rows of zeros where there is no label."""
    if W.shape != (len(y), len(y)):
        raise LabelError(
            f"y has {len(y)} entries and the graph {W.shape[0]} points. Give one entry per point, -1 for no label."
        )
    if not (y >= 0).any():
        raise LabelError(f"y holds no labelled sample (all {len(y)} are -1). Label at least one per class.")
    if y.max() >= n_classes:
        raise LabelError(f"y holds class {y.max()} where n_classes is {n_classes}. Number the classes 0 to n_classes - 1.")
    Y: Floats = np.zeros((len(y), n_classes))
    labelled = np.flatnonzero(y >= 0)
    Y[labelled, y[labelled]] = 1.0
    return Y


def normalize_class_fractions(shares: Sequence[float] | NDArray[np.floating[Any]], n_classes: int) -> Floats:
    """(C,): how much of the pool each class is held to be, as shares of one."""
    q: Floats = np.asarray(shares, dtype=np.float64)
    if q.shape != (n_classes,) or not (q > 0).all() or not np.isfinite(q).all():
        raise SettingError(f"class shares are {q.tolist()}; expected {n_classes} numbers above 0, one for each class")
    return np.asarray(q / q.sum())


def degrees(W: csr_array) -> Floats:
    """The diagonal of D: what each point's edges weigh together."""
    return np.asarray(W.sum(axis=1), dtype=np.float64)


def components(W: csr_array) -> NDArray[np.int64]:
    """(n,): the number of the part of the graph in which each point lies; no edge leads from one part to another."""
    return np.asarray(connected_components(W, directed=False)[1], dtype=np.int64)


def reachable_from_labels(W: csr_array, y: Labels) -> NDArray[np.bool_]:
    """(n,): whether a way along the edges leads from each point to a label."""
    part = components(W)
    return np.isin(part, part[y >= 0])


def solve_positive_definite(A: csr_array, B: Floats, dense_up_to: int, tolerance: float = TOLERANCE) -> Floats:
    """X of A X = B, A symmetric and positive definite; beyond `dense_up_to` rows to a relative `tolerance`.

    First scaled to a unit diagonal: a point with tiny weights is then solved as precisely as any other.
    """
    scale: Floats = 1.0 / np.sqrt(A.diagonal())
    E = diags_array(scale)
    A, B = csr_array(E @ A @ E), scale[:, None] * B
    X: Floats = solve(A.toarray(), B, assume_a="pos") if len(B) <= dense_up_to else conjugate_gradients(A, B, tolerance)
    return scale[:, None] * X


def conjugate_gradients(
    A: csr_array | LinearOperator, B: Floats, tolerance: float = TOLERANCE, start: Floats | None = None
) -> Floats:
    """X of A X = B, all columns at once, each with steps of its own, until ||B - A X|| <= tolerance ||B|| in each.

    `start` is a first guess of X, zeros without one; then zeros of a column stay exact zeros where nothing leads to them.
    """
    X: Floats = np.zeros_like(B) if start is None else start.copy()
    R = B.copy() if start is None else B - A @ X
    P = R.copy()
    left = np.einsum("ij,ij->j", R, R)
    enough = tolerance**2 * np.einsum("ij,ij->j", B, B)
    steps = 0
    while (moving := left > enough).any():
        steps += 1
        AP = A @ P
        bend = np.einsum("ij,ij->j", P, AP)
        if steps > 10 * len(B) or not np.isfinite(bend).all():
            raise DivergedError(
                f"conjugate gradients did not settle in {steps} steps on a graph of {len(B)} points. "
                "Check W for infinite weights, or raise n_neighbors."
            )
        alpha = np.divide(left, bend, out=np.zeros_like(left), where=moving)
        X += alpha * P
        R -= alpha * AP
        now = np.einsum("ij,ij->j", R, R)
        P *= np.divide(now, left, out=np.zeros_like(left), where=moving)
        P += R
        left = now
    return X


def normalize_rows(F: Floats) -> Floats:
    """Rows divided by their sum, uniform where that is zero; what a solver left below zero is rounding."""
    F = np.maximum(F, 0.0)
    mass = F.sum(axis=1, keepdims=True)
    uniform = np.full_like(F, 1.0 / F.shape[1])
    normalised: Floats = np.divide(F, mass, out=uniform, where=mass > 0)
    return normalised
