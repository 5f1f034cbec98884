"""Label propagation in closed form: each unlabelled sample becomes the average of its neighbours.

W (n, n) are the edge weights: sparse, symmetric, not negative, with zero diagonal. D is the diagonal matrix of the row sums of
W. y (n,) holds class numbers, or a negative number for an unlabelled sample. The rows of the results F (n, C) sum to 1.
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
    """Return F (n, C), where given labels stay fixed and all other samples are the average of their neighbours.

    Zhu & Ghahramani 2002: F_U = (I - T_UU)^-1 T_UL Y_L with T = D^-1 W, where U are the unlabelled and L the labelled samples.
    Here the symmetric system (D_UU + G_UU - W_UU) F_U = W_UL Y_L + G_UU 1/C is solved. The diagonal matrix G = teleport D (1
    for a sample without edges) ties each sample weakly to the uniform distribution, so that the system can always be solved.
    """
    Y = one_hot(W, y, n_classes)
    L, U = np.flatnonzero(y >= 0), np.flatnonzero(y < 0)
    if len(U) == 0:
        return Y
    degree = degrees(W)[U]
    ground = np.where(degree > 0, teleport * degree, 1.0)
    W_U = csr_array(W)[U]
    F = Y.copy()
    right_side = W_U[:, L] @ Y[L] + ground[:, None] / n_classes
    F[U] = solve_positive_definite(diags_array(degree + ground) - W_U[:, U], right_side, dense_up_to)
    return normalize_rows(F)


def harmonic(W: csr_array, y: Labels, n_classes: int, *, dense_up_to: int = DENSE_UP_TO) -> Floats:
    """Return the harmonic function F (n, C) that equals the given labels (Zhu, Ghahramani & Lafferty 2003).

    F_U = (D_UU - W_UU)^-1 W_UL Y_L for the samples U that a path connects to a label, where L are the labelled samples. Other
    samples get equal probabilities.
    """
    F = one_hot(W, y, n_classes)
    U = np.flatnonzero((y < 0) & reachable_from_labels(W, y))
    if len(U):
        L, W_U = np.flatnonzero(y >= 0), csr_array(W)[U]
        F[U] = solve_positive_definite(diags_array(degrees(W)[U]) - W_U[:, U], W_U[:, L] @ F[L], dense_up_to)
    return normalize_rows(F)


def normalize_class_mass(
    F: Floats, free: NDArray[np.bool_], class_fractions: Sequence[float] | NDArray[np.floating[Any]]
) -> Floats:
    """Return F (n, C) with the total mass of each class changed to the expected fractions q (Zhu et al. 2003).

    F_ic becomes F_ic q_c / SUM_i F_ic, and then each row is divided by its sum. Only the samples that are True in `free` (n,),
    which are the unlabelled ones, change.
    """
    q = normalize_class_fractions(class_fractions, F.shape[1])
    mass = F[free].sum(axis=0)
    factor = np.divide(q, mass, out=np.zeros_like(mass), where=mass > 0)
    normalized = F.copy()
    normalized[free] = normalize_rows(F[free] * factor)
    return normalized


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
    """Return F = (1 - alpha) (I - alpha S)^-1 Y with S = D^-1/2 W D^-1/2 (Zhou et al. 2004), and each row divided by its sum.

    alpha is the weight of the neighbours against a sample's own label. A sample that no path connects to a label gets equal
    probabilities. With `balanced`, the labels of each class sum to 1, however many there are (Iscen et al. 2019).
    """
    if not 0.0 <= alpha < 1.0:
        raise SettingError(f"alpha is {alpha}; expected 0 <= alpha < 1. The paper uses 0.99.")
    Y = one_hot(W, y, n_classes)
    if balanced:
        Y /= np.maximum(Y.sum(axis=0), 1.0)
    return normalize_rows(solve_positive_definite(_consistency_system(W, alpha), (1.0 - alpha) * Y, dense_up_to, tolerance))


def leave_one_out_consistency(
    W: csr_array,
    y: Labels,
    n_classes: int,
    held_out: Labels,
    alpha: float = 0.99,
    *,
    dense_up_to: int = DENSE_UP_TO,
    tolerance: float = TOLERANCE,
) -> Floats:
    """Return (m, C): for each of m labelled samples, its row of `local_global_consistency` without its own label.

    The solution is linear in the labels, F = M Y with a symmetric M. So one system with the columns of M for the held-out
    samples gives all rows.
    """
    Y = one_hot(W, y, n_classes)
    columns: Floats = np.zeros((len(y), len(held_out)))
    columns[held_out, np.arange(len(held_out))] = 1.0 - alpha
    M = solve_positive_definite(_consistency_system(W, alpha), columns, dense_up_to, tolerance)
    own = M[held_out, np.arange(len(held_out))]
    return normalize_rows(M.T @ Y - own[:, None] * Y[held_out])


def _consistency_system(W: csr_array, alpha: float) -> csr_array:
    """Return I - alpha S with S = D^-1/2 W D^-1/2."""
    degree = degrees(W)
    root = diags_array(np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0))
    return csr_array(diags_array(np.ones(W.shape[0])) - alpha * (root @ W @ root))
