"""Poisson learning: labels are sources and sinks on the graph, and the potential between them decides.

Calder, Cook, Thorpe & Slepčev 2020, "Poisson Learning: Graph Based Semi-Supervised Learning At Very Low Label Rates". Where
almost no row has a label, harmonic answers are flat except in spikes at the labels; the potential is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import LinearOperator

from samekind.graphs.linear_systems import (
    DENSE_UP_TO,
    Floats,
    Labels,
    class_fractions,
    components,
    conjugate_gradients,
    degrees,
    one_hot,
)

SETTLED = 1e-6  # where conjugate gradients stop, relative; the error on 30,000 MNIST images is the same from 1e-12 to 1e-5
INNER = 40  # steps of diffusion in a round of PoissonMBO, as in the authors' code
SEARCH, PACE, LEAST, MOST = 100, 10.0, 0.5, 2.0  # steps, pace and limits of the search for the factors of classes


def poisson_potential(W: csr_array, y: Labels, n_classes: int, *, dense_up_to: int = DENSE_UP_TO) -> Floats:
    """U (n, C) with (D - W) U = B and SUM_i d_i U_i = 0, where B_i = Y_i - mean of Y over the labelled rows, else 0.

    On a graph in several parts both conditions hold in each part for itself: the mean is that of the part's own labels,
    as sources and sinks must cancel out wherever nothing can flow off. 0 where there is no label.
    """
    part = components(W)
    return _potential(W, _sources(one_hot(W, y, n_classes), y, part), part, dense_up_to)


def poisson_learning(
    W: csr_array,
    y: Labels,
    n_classes: int,
    *,
    shares: Sequence[float] | None = None,
    rounds: int = 0,
    dense_up_to: int = DENSE_UP_TO,
) -> Floats:
    """F (n, C): a softmax of the potential U, each class weighted by s_c = shares_c / its share of the labels.

    U is divided by its root mean square first; that and the softmax are ours, and only say how sure an answer is: which
    class is the largest is the paper's. A class gets nothing in a part of the graph where no row has its label, and a part
    without any label is uniform. `rounds` of threshold dynamics follow (PoissonMBO; the paper has 20), whose answers are
    certain.
    """
    Y, part = one_hot(W, y, n_classes), components(W)
    known = Y.sum(axis=0) / Y.sum()
    wanted = known if shares is None else class_fractions(shares, n_classes)
    B = _sources(Y, y, part)
    U = _potential(W, B, part, dense_up_to)
    factor = np.divide(wanted, known, out=np.zeros(n_classes), where=known > 0)
    possible = _classes_of_parts(Y, part)
    U = U * factor / max(float(np.sqrt(np.square(U).mean())), np.finfo(float).tiny)
    if rounds == 0:
        return _softmax(U, possible)
    answer = _thresholded(W, B, _softmax(U, possible), wanted, rounds, possible)
    answer[y >= 0] = Y[y >= 0]
    return np.where(possible.any(axis=1, keepdims=True), answer, 1.0 / n_classes)


def _sources(Y: Floats, y: Labels, part: NDArray[np.int64]) -> Floats:
    """B: Y less the mean of the labels in the same part of the graph; each column sums to zero in each part."""
    labelled = y >= 0
    counts = np.bincount(part[labelled], minlength=part.max() + 1)
    sums = np.stack([np.bincount(part, weights=column, minlength=part.max() + 1) for column in Y.T], axis=1)
    means = sums / np.maximum(counts, 1)[:, None]
    return np.where(labelled[:, None], Y - means[part], 0.0)


def _potential(W: csr_array, B: Floats, part: NDArray[np.int64], dense_up_to: int) -> Floats:
    """D^-1/2 (I - S + V V^T)^-1 D^-1/2 B with S = D^-1/2 W D^-1/2, V the constants that I - S cannot see.

    V (n, parts) has orthonormal columns D^1/2 1. As V^T D^-1/2 B = 0, the added term changes nothing but that the matrix
    can be inverted, and the answer is the one without constants: SUM_i d_i U_i = 0 in each part.
    """
    degree = degrees(W)
    alone = degree == 0  # a part of its own, whose source is 0
    root = np.sqrt(np.where(alone, 1.0, degree))
    length = np.sqrt(np.bincount(part, weights=root**2))
    V = csr_array((root / length[part], (np.arange(len(part)), part)))
    S = csr_array(diags_array(1.0 / root) @ W @ diags_array(1.0 / root))
    right = B / root[:, None]
    if len(B) <= dense_up_to:
        A = np.eye(len(B)) - S.toarray() + (V @ V.T).toarray()
        X: Floats = solve(A, right, assume_a="pos")
    else:
        X = conjugate_gradients(_operator(S, V), right, SETTLED)
    return np.asarray((X - V @ (V.T @ X)) / root[:, None])


def _operator(S: csr_array, V: csr_array) -> LinearOperator:
    """I - S + V V^T, which is never formed: V V^T alone would fill a matrix."""

    def times(x: Floats) -> Floats:
        return np.asarray(x - S @ x + V @ (V.T @ x))

    return LinearOperator(S.shape, matvec=times, matmat=times, dtype=np.float64)


def _classes_of_parts(Y: Floats, part: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n, C): whether the class has a label in the part of the graph where the point lies."""
    sums = np.stack([np.bincount(part, weights=column) for column in Y.T], axis=1)
    return np.asarray(sums[part] > 0)


def _softmax(U: Floats, possible: NDArray[np.bool_]) -> Floats:
    """Over the possible classes of each row; over all where none is."""
    allowed = possible | ~possible.any(axis=1, keepdims=True)
    raised = np.exp(np.where(allowed, U - U.max(axis=1, keepdims=True, where=allowed, initial=-np.inf), -np.inf))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def _thresholded(W: csr_array, B: Floats, F: Floats, shares: Floats, rounds: int, possible: NDArray[np.bool_]) -> Floats:
    """PoissonMBO: F, made certain, diffuses for INNER steps beside the sources, and is made certain again, in turn."""
    step = 1.0 / max(float(degrees(W).max()), np.finfo(float).tiny)
    stay = csr_array(diags_array(1.0 - step * degrees(W)) + step * W)
    F = _certain(F, shares, possible)
    for _ in range(rounds):
        for _ in range(INNER):
            F = stay @ F + step * B
        F = _certain(F, shares, possible)
    return F


def _certain(F: Floats, shares: Floats, possible: NDArray[np.bool_]) -> Floats:
    """Each row its largest class, F_ic s_c, with factors s that bring the sizes of classes close to `shares`.

    s moves by what is missing of each class and stays within LEAST and MOST, so that shares are wished for, not forced.
    """
    s, best, least_missing = np.ones(F.shape[1]), None, np.inf
    for _ in range(SEARCH):
        answer = np.eye(F.shape[1])[np.where(possible, F * s, -np.inf).argmax(axis=1)]
        missing = shares - answer.mean(axis=0)
        if np.abs(missing).max() < least_missing:
            best, least_missing = answer, float(np.abs(missing).max())
        s = np.clip(s + PACE * missing, LEAST, MOST)
    assert best is not None
    return np.asarray(best)
