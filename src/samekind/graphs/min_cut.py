"""Minimum cuts: separate the classes where the edges between them have the smallest total weight.

Blum & Chawla 2001, "Learning from Labeled and Unlabeled Data using Graph Mincuts"; for more than two classes by the
expansion moves of Boykov, Veksler & Zabih 2001; averaged over noisy graphs as in Blum, Lafferty, Rwebangira & Reddy 2004.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, triu
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from samekind.graphs.linear_systems import Floats, Labels, one_hot, reachable_from_labels
from samekind.graphs.propagation import harmonic

MAX_CAPACITY = 2**29  # largest sum of the capacities at a sample; scipy computes flows in 32-bit integers
Integers = NDArray[np.int64]


def cut_weight(W: csr_array, labels: Labels) -> float:
    """Return the sum of W_ij over the edges between samples of different labels."""
    i, j, w = _edges(W)
    return float(w[labels[i] != labels[j]].sum())


def min_cut(W: csr_array, y: Labels, n_classes: int) -> Integers:
    """Return a class (n,) for every sample that keeps the labels y and minimises the weight of the cut edges.

    With two classes one maximum flow gives the optimum. With more the problem is NP-hard: an expansion move, again one maximum
    flow, lets one class take over the samples that reduce the cut most; the moves repeat until no class can reduce it. The cut
    is then at most twice the optimum. The first labelling is that of the harmonic function, and a move must strictly reduce the
    cut. Weights are scaled so that the largest degree is 2^29, and rounded to integers.
    """
    labels: Integers = np.where(y >= 0, y, harmonic(W, y, n_classes).argmax(axis=1)).astype(np.int64)
    U = np.flatnonzero(y < 0)
    if len(U) == 0:
        return labels
    unary, pairs = _integer_energy(W, one_hot(W, y, n_classes), U)
    current, n_failed, c = labels[U], 0, 0
    while n_failed < n_classes:
        expanded = _expansion_move(unary, pairs, current, c)
        better = _energy(unary, pairs, expanded) < _energy(unary, pairs, current)
        current, n_failed = (expanded, 1) if better else (current, n_failed + 1)
        c = (c + 1) % n_classes
    labels[U] = current
    return labels


def average_min_cuts(W: csr_array, y: Labels, n_classes: int, *, cuts: int = 1, noise: float = 0.0, seed: int = 0) -> Floats:
    """Return F (n, C): the fraction of `cuts` minimum cuts that give each class to a sample; uniform if no label reaches it.

    For each cut the weights are multiplied by 1 + noise u, u uniform in [0, 1) for each edge. If other cuts are only slightly
    worse, the minimum cut changes from one noisy graph to the next, so F shows how certain a class is.
    """
    rng = np.random.default_rng(seed)
    F: Floats = np.zeros((len(y), n_classes))
    for _ in range(cuts):
        noisy = _with_noise(W, noise, rng) if noise > 0 else W
        F[np.arange(len(y)), min_cut(noisy, y, n_classes)] += 1.0 / cuts
    F[~reachable_from_labels(W, y)] = 1.0 / n_classes
    return F


class _WeightedPairs(NamedTuple):
    """Edges between unlabelled samples: their ends i, j and integer weights w."""

    i: Integers
    j: Integers
    w: Integers


def _edges(W: csr_array) -> tuple[Integers, Integers, Floats]:
    """Return each edge (i < j) once, as indices i, j and weights."""
    upper = coo_array(triu(W, k=1))
    return upper.row.astype(np.int64), upper.col.astype(np.int64), np.asarray(upper.data, dtype=np.float64)


def _integer_energy(W: csr_array, Y: Floats, U: Integers) -> tuple[Integers, _WeightedPairs]:
    """Return the cost (n_U, C) of each class for each unlabelled sample, and the edges between unlabelled samples.

    The cost of a class is the weight of the edges to labelled samples of other classes. All weights are rounded to integers.
    """
    W_U = csr_array(W)[U]
    max_degree = float(W_U.sum(axis=1).max())
    scale = MAX_CAPACITY / max_degree if max_degree > 0 else 1.0
    to_labels = np.rint(scale * (W_U @ Y)).astype(np.int64)
    i, j, w = _edges(W_U[:, U])
    rounded = np.rint(scale * w).astype(np.int64)
    return to_labels.sum(axis=1, keepdims=True) - to_labels, _WeightedPairs(
        i[rounded > 0], j[rounded > 0], rounded[rounded > 0]
    )


def _energy(unary: Integers, pairs: _WeightedPairs, labels: Integers) -> int:
    """Return the total weight of the edges that a labelling cuts."""
    return int(unary[np.arange(len(labels)), labels].sum() + pairs.w[labels[pairs.i] != labels[pairs.j]].sum())


def _expansion_move(unary: Integers, pairs: _WeightedPairs, labels: Integers, c: int) -> Integers:
    """Return the best labelling in which some samples change to class c and all others keep their class.

    Let x_i = 1 if sample i changes to class c, else 0. A pair (x_i, x_j) costs `keep` for (0, 0), `one` for (0, 1), `other` for
    (1, 0) and 0 for (1, 1). This is keep + (other - keep) x_i - other x_j + (one + other - keep) (1 - x_i) x_j. The last term
    is an arc from i to j of the flow network; the others are costs of single samples.
    """
    n, i, j, w = len(labels), pairs.i, pairs.j, pairs.w
    keep, one, other = (w * (labels[i] != labels[j]), w * (labels[i] != c), w * (labels[j] != c))
    change = unary[:, c] - unary[np.arange(n), labels]
    np.add.at(change, i, other - keep)
    np.add.at(change, j, -other)
    source, sink = n, n + 1
    samples = np.arange(n)
    gain, loss = np.maximum(-change, 0), np.maximum(change, 0)
    # a sample on the source side keeps its class and cuts its arc to the sink; one on the sink side changes to class c
    arcs = _arcs([(i, j, one + other - keep), (samples, np.full(n, sink), gain), (np.full(n, source), samples, loss)], n + 2)
    changed = _side_of_sink(arcs, source, sink)[:n]
    return np.where(changed, c, labels)


def _arcs(parts: list[tuple[Integers, Integers, Integers]], n: int) -> csr_array:
    rows, columns, capacities = (np.concatenate(each) for each in zip(*parts, strict=True))
    positive = capacities > 0
    indices = (rows[positive], columns[positive])
    return csr_array(coo_array((capacities[positive].astype(np.int32), indices), shape=(n, n)))


def _side_of_sink(arcs: csr_array, source: int, sink: int) -> NDArray[np.bool_]:
    """Return the smallest sink side of a minimum cut: the nodes that reach the sink in the residual graph."""
    flow = maximum_flow(arcs, source, sink).flow
    residual = csr_array(arcs - flow)
    residual.data = (residual.data > 0).astype(np.int32)
    residual.eliminate_zeros()
    side = np.zeros(arcs.shape[0], dtype=bool)
    side[breadth_first_order(csr_array(residual.T), sink, return_predecessors=False)] = True
    return side


def _with_noise(W: csr_array, noise: float, rng: np.random.Generator) -> csr_array:
    i, j, w = _edges(W)
    upper = csr_array((w * (1.0 + noise * rng.random(len(w))), (i, j)), shape=W.shape)
    return csr_array(upper + upper.T)
