"""Labels carried along the edges of a graph until nothing changes, solved in one go.

W (n, n) is sparse, symmetric, not negative, with zero diagonal; D = diag(W 1). y (n,) holds class numbers, or a negative
number where there is no label. Answers F (n, C) have rows that sum to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from samekind.errors import SettingError
from samekind.graphs.linear_systems import (
    DENSE_UP_TO,
    TOLERANCE,
    Floats,
    Labels,
    degrees,
    normalize_class_fractions,
    normalize_rows,
    one_hot,
    reachable_from_labels,
    solve_positive_definite,
)


def label_propagation(
    W: csr_array, y: Labels, n_classes: int, *, teleport: float = 1e-5, dense_up_to: int = DENSE_UP_TO
) -> Floats:
    """Labels stay as given, and every other point is the average of its neighbours (Zhu & Ghahramani 2002).

    F_U = (I - T_UU)^-1 T_UL Y_L with T = D^-1 W, written symmetrically and tied to a ground that knows nothing:
    (D_UU + G_UU - W_UU) F_U = W_UL Y_L + G_UU 1/C, where G = teleport D, and 1 for a point without edges.
    """
    Y = one_hot(W, y, n_classes)
    L, U = np.flatnonzero(y >= 0), np.flatnonzero(y < 0)
    if len(U) == 0:
        return Y
    degree = degrees(W)[U]
    ground = np.where(degree > 0, teleport * degree, 1.0)
    W_U = csr_array(W)[U]
    F = Y.copy()
    arriving = W_U[:, L] @ Y[L] + ground[:, None] / n_classes
    F[U] = solve_positive_definite(diags_array(degree + ground) - W_U[:, U], arriving, dense_up_to)
    return normalize_rows(F)


def harmonic(W: csr_array, y: Labels, n_classes: int, *, dense_up_to: int = DENSE_UP_TO) -> Floats:
    """Labels stay as given, and the rest is the harmonic function between them (Zhu, Ghahramani & Lafferty 2003).

    F_U = (D_UU - W_UU)^-1 W_UL Y_L, with no ground: solved where a label is in reach, and uniform elsewhere.
    """
    F = one_hot(W, y, n_classes)
    U = np.flatnonzero((y < 0) & reachable_from_labels(W, y))
    if len(U):
        L, W_U = np.flatnonzero(y >= 0), csr_array(W)[U]
        F[U] = solve_positive_definite(diags_array(degrees(W)[U]) - W_U[:, U], W_U[:, L] @ F[L], dense_up_to)
    return normalize_rows(F)


def normalize_class_mass(F: Floats, free: NDArray[np.bool_], shares: Sequence[float] | NDArray[np.floating[Any]]) -> Floats:
    """F_ic q_c / SUM_i F_ic over the free rows i, which then sum to one again: class c gets the mass that q_c wants.

    q has one entry for each class, `shares`. `free` (n,) says which rows may change: not labelled ones (Zhu et al. 2003).
    """
    q = normalize_class_fractions(shares, F.shape[1])
    mass = F[free].sum(axis=0)
    wanted = np.divide(q, mass, out=np.zeros_like(mass), where=mass > 0)
    normalised = F.copy()
    normalised[free] = normalize_rows(F[free] * wanted)
    return normalised


def local_global_consistency(
    W: csr_array,
    y: Labels,
    n_classes: int,
    alpha: float = 0.99,
    *,
    balanced: bool = False,
    dense_up_to: int = DENSE_UP_TO,
    tolerance: float = TOLERANCE,
) -> Floats:
    """Every point listens to its neighbours with weight alpha, and to its own label with the rest (Zhou et al. 2004).

    F = (1 - alpha) (I - alpha S)^-1 Y with S = D^-1/2 W D^-1/2; a point that no label reaches is uniform. With `balanced` the
    labels of a class share a mass of one, however many they are (Iscen et al. 2019).
    """
    if not 0.0 <= alpha < 1.0:
        raise SettingError(f"alpha is {alpha}; expected 0 <= alpha < 1. The paper uses 0.99.")
    Y = one_hot(W, y, n_classes)
    if balanced:
        Y /= np.maximum(Y.sum(axis=0), 1.0)
    degree = degrees(W)
    root = diags_array(np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0))
    S = root @ W @ root
    return normalize_rows(
        solve_positive_definite(diags_array(np.ones(len(y))) - alpha * S, (1.0 - alpha) * Y, dense_up_to, tolerance)
    )
