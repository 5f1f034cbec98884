"""Minimum cuts: the classes part where the edges between them weigh least.

Blum & Chawla 2001, "Learning from Labeled and Unlabeled Data using Graph Mincuts"; for more than two classes by the
expansion moves of Boykov, Veksler & Zabih 2001; averaged over noisy graphs as in Blum, Lafferty, Rwebangira & Reddy 2004.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, triu
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from samekind.graphs.linear_systems import Floats, Labels, one_hot, reachable_from_labels
from samekind.graphs.propagation import harmonic

LARGEST = 2**29  # what all arcs at a point may add up to: flows are counted in 32 bits
Integers = NDArray[np.int64]


def cut_weight(W: csr_array, labels: Labels) -> float:
    """SUM over edges between points of different labels of W_ij: what is cut."""
    i, j, w = _edges(W)
    return float(w[labels[i] != labels[j]].sum())


def min_cut(W: csr_array, y: Labels, n_classes: int) -> Integers:
    """(n,): a class for every point, labels kept, so that as little as possible is cut.

    With two classes that is one maximum flow, and no labelling cuts less. With more the problem is NP-hard: each class in
    turn takes over whatever lessens the cut the most, which is again one maximum flow, until no class can any more. What is
    cut then is at most twice the least. The harmonic answer is where this starts; of equal cuts the nearest to it is taken.
    Weights are rounded to whole numbers, 2^29 for the heaviest point.
    """
    labels: Integers = np.where(y >= 0, y, harmonic(W, y, n_classes).argmax(axis=1)).astype(np.int64)
    U = np.flatnonzero(y < 0)
    if len(U) == 0:
        return labels
    own, pairs = _as_whole_numbers(W, one_hot(W, y, n_classes), U)
    current, stuck, c = labels[U], 0, 0
    while stuck < n_classes:
        other = _expanded(own, pairs, current, c)
        better = _energy(own, pairs, other) < _energy(own, pairs, current)
        current, stuck = (other, 1) if better else (current, stuck + 1)
        c = (c + 1) % n_classes
    labels[U] = current
    return labels


def average_min_cuts(W: csr_array, y: Labels, n_classes: int, *, cuts: int = 1, noise: float = 0.0, seed: int = 0) -> Floats:
    """F (n, C): how often a point falls to each class in `cuts` minimum cuts; uniform where no label is in reach.

    Each cut is that of a graph whose weights are multiplied by 1 + noise u, u uniform in [0, 1) and drawn for each edge: cuts
    that are least by a hair change from one to the next, and cuts that are least by far do not.
    """
    rng = np.random.default_rng(seed)
    F: Floats = np.zeros((len(y), n_classes))
    for _ in range(cuts):
        noisy = _with_noise(W, noise, rng) if noise > 0 else W
        F[np.arange(len(y)), min_cut(noisy, y, n_classes)] += 1.0 / cuts
    F[~reachable_from_labels(W, y)] = 1.0 / n_classes
    return F


class _Pairs:
    """Edges between unlabelled points: their ends i, j and whole weights w."""

    def __init__(self, i: Integers, j: Integers, w: Integers) -> None:
        self.i, self.j, self.w = i, j, w


def _edges(W: csr_array) -> tuple[Integers, Integers, Floats]:
    """Each edge once."""
    upper = coo_array(triu(W, k=1))
    return upper.row.astype(np.int64), upper.col.astype(np.int64), np.asarray(upper.data, dtype=np.float64)


def _as_whole_numbers(W: csr_array, Y: Floats, U: Integers) -> tuple[Integers, _Pairs]:
    """What each unlabelled point cuts of its edges to labels if it takes each class (n_U, C), and the pairs among them."""
    W_U = csr_array(W)[U]
    heaviest = float(W_U.sum(axis=1).max())
    scale = LARGEST / heaviest if heaviest > 0 else 1.0
    to_labels = np.rint(scale * (W_U @ Y)).astype(np.int64)
    i, j, w = _edges(W_U[:, U])
    whole = np.rint(scale * w).astype(np.int64)
    return to_labels.sum(axis=1, keepdims=True) - to_labels, _Pairs(i[whole > 0], j[whole > 0], whole[whole > 0])


def _energy(own: Integers, pairs: _Pairs, labels: Integers) -> int:
    return int(own[np.arange(len(labels)), labels].sum() + pairs.w[labels[pairs.i] != labels[pairs.j]].sum())


def _expanded(own: Integers, pairs: _Pairs, labels: Integers, c: int) -> Integers:
    """The best labelling in which some points turn to class c and all others keep what they have.

    x_i = 1 where i turns. A pair costs keep (0, 0), one (0, 1), other (1, 0) or nothing (1, 1), which is
    keep + (other - keep) x_i - other x_j + (one + other - keep) (1 - x_i) x_j: an arc from i to j beside costs of x alone.
    """
    n, i, j, w = len(labels), pairs.i, pairs.j, pairs.w
    keep, one, other = (w * (labels[i] != labels[j]), w * (labels[i] != c), w * (labels[j] != c))
    turning = own[:, c] - own[np.arange(n), labels]
    np.add.at(turning, i, other - keep)
    np.add.at(turning, j, -other)
    source, sink = n, n + 1
    points = np.arange(n)
    gain, loss = np.maximum(-turning, 0), np.maximum(turning, 0)
    # x = 0 on the side of the source: an arc to the sink is paid by a point that keeps, one from the source by one that turns
    arcs = _arcs([(i, j, one + other - keep), (points, np.full(n, sink), gain), (np.full(n, source), points, loss)], n + 2)
    turned = _side_of_sink(arcs, source, sink)[:n]
    return np.where(turned, c, labels)


def _arcs(parts: list[tuple[Integers, Integers, Integers]], n: int) -> csr_array:
    rows, columns, capacities = (np.concatenate(each) for each in zip(*parts, strict=True))
    some = capacities > 0
    shape = (n, n)
    return csr_array(coo_array((capacities[some].astype(np.int32), (rows[some], columns[some])), shape=shape))


def _side_of_sink(arcs: csr_array, source: int, sink: int) -> NDArray[np.bool_]:
    """The points from which something could still flow to the sink when the flow is largest: the smallest such side."""
    flow = maximum_flow(arcs, source, sink).flow
    left = csr_array(arcs - flow)
    left.data = (left.data > 0).astype(np.int32)
    left.eliminate_zeros()
    side = np.zeros(arcs.shape[0], dtype=bool)
    side[breadth_first_order(csr_array(left.T), sink, return_predecessors=False)] = True
    return side


def _with_noise(W: csr_array, noise: float, rng: np.random.Generator) -> csr_array:
    i, j, w = _edges(W)
    upper = csr_array((w * (1.0 + noise * rng.random(len(w))), (i, j)), shape=W.shape)
    return csr_array(upper + upper.T)
