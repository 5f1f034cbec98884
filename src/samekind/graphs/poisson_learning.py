"""Poisson learning: labels are sources and sinks of a potential on the graph; the largest potential gives the class.

Calder, Cook, Thorpe & Slepčev 2020, "Poisson Learning: Graph Based Semi-Supervised Learning At Very Low Label Rates". With very
few labels, harmonic functions are almost constant except for spikes at the labels. The potential does not have this fault.
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
    components,
    conjugate_gradients,
    degrees,
    normalize_class_fractions,
    one_hot,
)

# relative residual at which conjugate gradients stop; the error on 30,000 MNIST images is the same from 1e-12 to 1e-5
TOLERANCE = 1e-6
DIFFUSION_STEPS = 40  # number of diffusion steps in a round of PoissonMBO, as in the authors' code
SEARCH_STEPS, SEARCH_RATE = 100, 10.0  # number of steps and step size of the search for the class factors
MIN_FACTOR, MAX_FACTOR = 0.5, 2.0  # bounds of the class factors


def poisson_potential(W: csr_array, y: Labels, n_classes: int, *, dense_up_to: int = DENSE_UP_TO) -> Floats:
    """Return the potential U (n, C) that solves (D - W) U = B with SUM_i d_i U_i = 0.

    B_i is the one-hot label of sample i minus the mean label, and 0 if i is unlabelled. Each connected component is solved by
    itself: the mean label is that of the component, because its sources and sinks must cancel. U is 0 in a component without
    labels.
    """
    component = components(W)
    return _potential(W, _sources(one_hot(W, y, n_classes), y, component), component, dense_up_to)


def poisson_learning(
    W: csr_array,
    y: Labels,
    n_classes: int,
    *,
    class_fractions: Sequence[float] | None = None,
    rounds: int = 0,
    dense_up_to: int = DENSE_UP_TO,
) -> Floats:
    """Return class probabilities F (n, C): a softmax of the potential U.

    Before the softmax, U is divided by its root mean square, and class c is multiplied by class_fractions_c / its fraction of
    the labels. The division and the softmax are not in the paper: they make probabilities of the potential and keep the
    predicted class. A class without labels in a sample's component has probability 0; in a component without any label, F is
    uniform. After `rounds` of threshold dynamics (PoissonMBO; 20 in the paper), F is one-hot.
    """
    Y, component = one_hot(W, y, n_classes), components(W)
    known = Y.sum(axis=0) / Y.sum()
    target = known if class_fractions is None else normalize_class_fractions(class_fractions, n_classes)
    B = _sources(Y, y, component)
    U = _potential(W, B, component, dense_up_to)
    factor = np.divide(target, known, out=np.zeros(n_classes), where=known > 0)
    possible = _classes_of_components(Y, component)
    U = U * factor / max(float(np.sqrt(np.square(U).mean())), np.finfo(float).tiny)
    if rounds == 0:
        return _softmax(U, possible)
    F = _threshold_dynamics(W, B, _softmax(U, possible), target, rounds, possible)
    F[y >= 0] = Y[y >= 0]
    return np.where(possible.any(axis=1, keepdims=True), F, 1.0 / n_classes)


def _sources(Y: Floats, y: Labels, component: NDArray[np.int64]) -> Floats:
    """Return the sources B (n, C): one-hot labels Y minus the mean label of their component, and 0 for unlabelled samples.

    So each column sums to 0 in each component.
    """
    labelled = y >= 0
    counts = np.bincount(component[labelled], minlength=component.max() + 1)
    sums = np.stack([np.bincount(component, weights=column, minlength=component.max() + 1) for column in Y.T], axis=1)
    means = sums / np.maximum(counts, 1)[:, None]
    return np.where(labelled[:, None], Y - means[component], 0.0)


def _potential(W: csr_array, B: Floats, component: NDArray[np.int64], dense_up_to: int) -> Floats:
    """Return the potential U = D^-1/2 (I - S + V V^T)^-1 D^-1/2 B with S = D^-1/2 W D^-1/2.

    V (n, components) spans the null space of I - S; its columns D^1/2 1 are scaled to length 1. Because V^T D^-1/2 B = 0, the
    term V V^T makes the matrix invertible without changing the solution, and SUM_i d_i U_i = 0 holds in each component.
    """
    degree = degrees(W)
    isolated = degree == 0  # a sample without edges is a component of its own, and its source is 0
    root = np.sqrt(np.where(isolated, 1.0, degree))
    length = np.sqrt(np.bincount(component, weights=root**2))
    V = csr_array((root / length[component], (np.arange(len(component)), component)))
    S = csr_array(diags_array(1.0 / root) @ W @ diags_array(1.0 / root))
    right = B / root[:, None]
    if len(B) <= dense_up_to:
        A = np.eye(len(B)) - S.toarray() + (V @ V.T).toarray()
        X: Floats = solve(A, right, assume_a="pos")
    else:
        X = conjugate_gradients(_operator(S, V), right, TOLERANCE)
    return np.asarray((X - V @ (V.T @ X)) / root[:, None])


def _operator(S: csr_array, V: csr_array) -> LinearOperator:
    """Return I - S + V V^T as a linear operator. As a matrix it would be dense, because V V^T is dense."""

    def times(x: Floats) -> Floats:
        return np.asarray(x - S @ x + V @ (V.T @ x))

    return LinearOperator(S.shape, matvec=times, matmat=times, dtype=np.float64)


def _classes_of_components(Y: Floats, component: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return for each sample and class (n, C) whether the sample's component has a label of the class."""
    sums = np.stack([np.bincount(component, weights=column) for column in Y.T], axis=1)
    return np.asarray(sums[component] > 0)


def _softmax(U: Floats, possible: NDArray[np.bool_]) -> Floats:
    """Return the softmax of U (n, C) over the possible classes of each sample; if none is possible, over all classes."""
    allowed = possible | ~possible.any(axis=1, keepdims=True)
    exponentials = np.exp(np.where(allowed, U - U.max(axis=1, keepdims=True, where=allowed, initial=-np.inf), -np.inf))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def _threshold_dynamics(W: csr_array, B: Floats, F: Floats, target: Floats, rounds: int, possible: NDArray[np.bool_]) -> Floats:
    """Return F (n, C) after PoissonMBO: in each round, F diffuses for DIFFUSION_STEPS with the sources B and then becomes
    one-hot.
    """
    step = 1.0 / max(float(degrees(W).max()), np.finfo(float).tiny)
    diffusion = csr_array(diags_array(1.0 - step * degrees(W)) + step * W)
    F = _one_hot_of_size(F, target, possible)
    for _ in range(rounds):
        for _ in range(DIFFUSION_STEPS):
            F = diffusion @ F + step * B
        F = _one_hot_of_size(F, target, possible)
    return F


def _one_hot_of_size(F: Floats, target: Floats, possible: NDArray[np.bool_]) -> Floats:
    """Return for each sample the one-hot class argmax_c F_ic s_c, with factors s_c that bring the class fractions close
    to `target`.

    Each search step changes s_c in proportion to what is missing from the fraction of class c. The factors stay between
    MIN_FACTOR and MAX_FACTOR, so the target may not be reached.
    """
    s, best, smallest = np.ones(F.shape[1]), None, np.inf
    for _ in range(SEARCH_STEPS):
        assigned = np.eye(F.shape[1])[np.where(possible, F * s, -np.inf).argmax(axis=1)]
        missing = target - assigned.mean(axis=0)
        if np.abs(missing).max() < smallest:
            best, smallest = assigned, float(np.abs(missing).max())
        s = np.clip(s + SEARCH_RATE * missing, MIN_FACTOR, MAX_FACTOR)
    assert best is not None
    return np.asarray(best)
