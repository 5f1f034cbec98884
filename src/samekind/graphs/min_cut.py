"""Minimum cuts: separate the classes where the edges between them have the smallest total weight.

Blum & Chawla 2001, "Learning from Labeled and Unlabeled Data using Graph Mincuts". More than two classes are separated by the
expansion moves of Boykov, Veksler & Zabih 2001. Cuts of noisy graphs are averaged as in Blum, Lafferty, Rwebangira & Reddy
2004.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, triu
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from samekind.graphs.linear_systems import Floats, Labels, one_hot, reachable_from_labels
from samekind.graphs.propagation import harmonic

MAX_CAPACITY = 2**29  # largest sum of integer edge weights at a sample; scipy computes flows in 32-bit integers
Integers = NDArray[np.int64]


def cut_weight(W: csr_array, labels: Labels) -> float:
    """Return the total weight of the edges between samples with different labels."""
    i, j, w = _edges(W)
    return float(w[labels[i] != labels[j]].sum())


def min_cut(W: csr_array, y: Labels, n_classes: int) -> Integers:
    """Return a class (n,) for every sample, so that labels y are kept and the edges between classes have the least total
    weight.

    With two classes, one maximum flow gives the optimum. With more classes the problem is NP-hard, and the classes are improved
    by expansion moves. In such a move, one class takes over the samples that reduce the weight most, found by a maximum flow.
    The moves end when no class reduces the weight any more; it is then at most twice the optimum. They begin with the classes
    of the harmonic function. Weights are rounded to integers, scaled so that the largest degree is 2^29.
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
    """Return F (n, C): for each sample and class, the fraction of `cuts` minimum cuts that give the sample this class.

    Samples that no path connects to a label get equal fractions. For each cut, every edge weight is multiplied by 1 + noise u,
    with u drawn uniformly from [0, 1). Where several cuts have almost the same weight, the minimum cut changes with the noise,
    so F shows how certain a class is.
    """
    rng = np.random.default_rng(seed)
    F: Floats = np.zeros((len(y), n_classes))
    for _ in range(cuts):
        noisy = _with_noise(W, noise, rng) if noise > 0 else W
        F[np.arange(len(y)), min_cut(noisy, y, n_classes)] += 1.0 / cuts
    F[~reachable_from_labels(W, y)] = 1.0 / n_classes
    return F


class _WeightedPairs(NamedTuple):
    """Edges between unlabelled samples: the two ends i and j of each edge, and its weight w as an integer."""

    i: Integers
    j: Integers
    w: Integers


def _edges(W: csr_array) -> tuple[Integers, Integers, Floats]:
    """Return each edge of W once, as its two ends i < j and its weight."""
    upper = coo_array(triu(W, k=1))
    return upper.row.astype(np.int64), upper.col.astype(np.int64), np.asarray(upper.data, dtype=np.float64)


def _integer_energy(W: csr_array, Y: Floats, U: Integers) -> tuple[Integers, _WeightedPairs]:
    """Return the cost (n_U, C) of each class for each of n_U unlabelled samples, and the edges between unlabelled samples.

    The cost of a class is the total weight of a sample's edges to labelled samples of other classes. All weights are integers.
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
    """Return the total weight of all edges between samples of different classes."""
    return int(unary[np.arange(len(labels)), labels].sum() + pairs.w[labels[pairs.i] != labels[pairs.j]].sum())


def _expansion_move(unary: Integers, pairs: _WeightedPairs, labels: Integers, c: int) -> Integers:
    """Return the best classes among those where some samples change to class c and all others keep their present class.

    Let x_i be 1 if sample i changes to class c, and 0 if not. The edge between i and j costs `keep` if neither changes, `one`
    if only j changes, `other` if only i changes, and 0 if both change. This is keep + (other - keep) x_i - other x_j + (one +
    other - keep) (1 - x_i) x_j. The last term is an arc from i to j in the flow network; the other terms are costs of single
    samples.
    """
    n, i, j, w = len(labels), pairs.i, pairs.j, pairs.w
    keep, one, other = (w * (labels[i] != labels[j]), w * (labels[i] != c), w * (labels[j] != c))
    change = unary[:, c] - unary[np.arange(n), labels]
    np.add.at(change, i, other - keep)
    np.add.at(change, j, -other)
    source, sink = n, n + 1
    samples = np.arange(n)
    gain, loss = np.maximum(-change, 0), np.maximum(change, 0)
    # A sample on the source side of the cut keeps its class, and the cut contains its arc to the sink. A sample on the sink
    # side changes to class c.
    arcs = _arcs([(i, j, one + other - keep), (samples, np.full(n, sink), gain), (np.full(n, source), samples, loss)], n + 2)
    changed = _side_of_sink(arcs, source, sink)[:n]
    return np.where(changed, c, labels)


def _arcs(parts: list[tuple[Integers, Integers, Integers]], n: int) -> csr_array:
    rows, columns, capacities = (np.concatenate(each) for each in zip(*parts, strict=True))
    positive = capacities > 0
    indices = (rows[positive], columns[positive])
    return csr_array(coo_array((capacities[positive].astype(np.int32), indices), shape=(n, n)))


def _side_of_sink(arcs: csr_array, source: int, sink: int) -> NDArray[np.bool_]:
    """Return which nodes are on the sink side of the minimum cut: those from which the residual graph leads to the sink.

    If several cuts are minimal, this is the cut with the smallest sink side.
    """
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
