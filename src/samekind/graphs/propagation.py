"""Labels carried along the edges of a graph until nothing changes, solved in one go.

W (n, n) is sparse, symmetric, not negative, with zero diagonal; D = diag(W 1). y (n,) holds class numbers, or a negative
number where there is no label. Answers F (n, C) have rows that sum to one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import cg

from samekind.errors import DivergedError, LabelError, SettingError

Floats = NDArray[np.float64]
Labels = NDArray[np.integer[Any]]

DENSE_UP_TO = 3000  # rows that a direct solver handles within a second and 100 MB
TOLERANCE = 1e-12  # of conjugate gradients, relative; the systems have condition numbers up to 2e5


def label_propagation(
    W: csr_array, y: Labels, n_classes: int, *, teleport: float = 1e-5, dense_up_to: int = DENSE_UP_TO
) -> Floats:
    """Labels stay as given, and every other point is the average of its neighbours (Zhu & Ghahramani 2002).

    F_U = (I - T_UU)^-1 T_UL Y_L with T = D^-1 W, written symmetrically and tied to a ground that knows nothing:
    (D_UU + G_UU - W_UU) F_U = W_UL Y_L + G_UU 1/C, where G = teleport D, and 1 for a point without edges.
    """
    Y = _one_hot(W, y, n_classes)
    L, U = np.flatnonzero(y >= 0), np.flatnonzero(y < 0)
    if len(U) == 0:
        return Y
    degree = _degrees(W)[U]
    ground = np.where(degree > 0, teleport * degree, 1.0)
    W_U = csr_array(W)[U]
    F = Y.copy()
    F[U] = _solve(diags_array(degree + ground) - W_U[:, U], W_U[:, L] @ Y[L] + ground[:, None] / n_classes, dense_up_to)
    return _rows_to_one(F)


def local_global_consistency(
    W: csr_array, y: Labels, n_classes: int, alpha: float = 0.99, *, balanced: bool = False, dense_up_to: int = DENSE_UP_TO
) -> Floats:
    """Every point listens to its neighbours with weight alpha, and to its own label with the rest (Zhou et al. 2004).

    F = (1 - alpha) (I - alpha S)^-1 Y with S = D^-1/2 W D^-1/2; a point that no label reaches is uniform. With `balanced` the
    labels of a class share a mass of one, however many they are (Iscen et al. 2019).
    """
    if not 0.0 <= alpha < 1.0:
        raise SettingError(f"alpha is {alpha}; expected 0 <= alpha < 1. The paper uses 0.99.")
    Y = _one_hot(W, y, n_classes)
    if balanced:
        Y /= np.maximum(Y.sum(axis=0), 1.0)
    degree = _degrees(W)
    root = diags_array(np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0))
    S = root @ W @ root
    return _rows_to_one(_solve(diags_array(np.ones(len(y))) - alpha * S, (1.0 - alpha) * Y, dense_up_to))


def _one_hot(W: csr_array, y: Labels, n_classes: int) -> Floats:
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


def _degrees(W: csr_array) -> Floats:
    return np.asarray(W.sum(axis=1), dtype=np.float64)


def _solve(A: csr_array, B: Floats, dense_up_to: int) -> Floats:
    """X of A X = B, A symmetric and positive definite.

    First scaled to a unit diagonal: a point with tiny weights is then solved as precisely as any other.
    """
    scale: Floats = 1.0 / np.sqrt(A.diagonal())
    E = diags_array(scale)
    A, B = csr_array(E @ A @ E), scale[:, None] * B
    X: Floats = solve(A.toarray(), B, assume_a="pos") if len(B) <= dense_up_to else _conjugate_gradients(A, B)
    return scale[:, None] * X


def _conjugate_gradients(A: csr_array, B: Floats) -> Floats:
    """One column at a time; zeros of a column stay exact zeros where nothing leads to them."""
    X: Floats = np.zeros_like(B)
    for c in range(B.shape[1]):
        X[:, c], unfinished = cg(A, B[:, c], rtol=TOLERANCE, atol=0.0)
        if unfinished:
            raise DivergedError(
                f"conjugate gradients did not settle in {unfinished} steps on a graph of {len(B)} points. "
                "Check W for infinite weights, or raise n_neighbours."
            )
    return X


def _rows_to_one(F: Floats) -> Floats:
    """Rows divided by their sum, uniform where that is zero; what a solver left below zero is rounding."""
    F = np.maximum(F, 0.0)
    mass = F.sum(axis=1, keepdims=True)
    uniform = np.full_like(F, 1.0 / F.shape[1])
    normalised: Floats = np.divide(F, mass, out=uniform, where=mass > 0)
    return normalised
