"""Random walks on the neighbour graph of the pool: where one may go from a point without leaving its kind.

A vector has no natural augmentation; the pool itself gives one. Walks of 1, 2, 4, ... hops reach ever further along the
data, and how far they may go is read off the data, without a label.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, diags_array, eye_array
from torch import Tensor

from samekind.graphs.affinity import log_affinity
from samekind.graphs.cross_validation import (
    leave_one_out_folds,
    linear_baseline_correct,
    significantly_more,
    true_class_ranks_first,
)
from samekind.graphs.linear_systems import conjugate_gradients

MAPS = 16  # independent walkers that start at each point
LONGEST = 12  # log2 of the most hops
TRUST = 0.85  # share of same-label mass, averaged over classes, below which a walk is held to leave its kind
SOME, ENOUGH = 2.0, 3.0  # rows that must have spoken for a level to be confirmed, and for silence of that kind to be a veto
COST = 2e9  # multiplications that asking the labels may take
RANKED = 1e-6  # tolerance of conjugate gradients: precise enough to rank what labels say
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def random_walk_graph(distances: Tensor, indices: Tensor, density_power: float | None = None) -> csr_array:
    """W_ij = (p_i p_j)^a exp(-d_ij^2/(s_i s_j)) between near neighbours (n, k), p_i = 1/s_i, s_i the distance to the k-th.

    Edges in thin regions are weakened, so that a walk crosses a gap between crowds more rarely than the crowds' plain
    overlap would have it. The power a is 4 in the plane and falls with the intrinsic dimension, as densities blur.
    """
    n, k = indices.shape
    s = distances[:, -1].clamp_min(float(distances[:, -1].median()) * 1e-3 + 1e-12)
    weights = torch.exp(log_affinity(distances, s[:, None], s[indices])).clamp_min(1e-8)
    edges = (weights.double().flatten().numpy(), indices.flatten().numpy(), np.arange(0, n * k + 1, k))
    W = csr_array(edges, shape=(n, n))
    W = W.maximum(W.T)
    a = 8.0 / max(2.0, intrinsic_dimension(distances)) if density_power is None else density_power
    # heaps of duplicates are no crowd that others should be drawn to
    thinness = s.clamp_min(float(s.median()) / 4.0)
    crowded = diags_array((thinness.min() / thinness).double().numpy() ** a)
    return csr_array(crowded @ W @ crowded)


def _hop_shares(W: csr_array) -> csr_array:
    """P = D^-1 W: the share of each neighbour in a hop. A row without neighbours stays empty."""
    return csr_array(diags_array(1.0 / np.maximum(W.sum(axis=1), np.finfo(float).tiny)) @ W)


def intrinsic_dimension(distances: Tensor) -> float:
    """Levina & Bickel's estimate from the distances (n, k) to the nearest neighbours, averaged as inverses."""
    positive = distances[(distances[:, 0] > 0) & (distances[:, -1] > distances[:, 0])]
    if len(positive) == 0 or distances.shape[1] < 3:
        return 2.0
    inverse = torch.log(positive[:, -1:] / positive[:, :-1]).mean()
    return float(1.0 / inverse.clamp_min(1e-3))


class Trust(NamedTuple):
    """How many levels the labels were asked about, how many they stand for, and whether enough rows could speak at all."""

    asked: int
    confirmed: int
    heard: bool


def label_consistent_levels(W: csr_array, y: Integers) -> Trust:
    """How many levels (1, 2, 4, ... hops) keep to the labels that are known; y (n,) holds -1 where none is.

    From each labelled row, how much of the mass that a walk brings to the *other* labelled rows lands on the same label?
    The longest level where that share is TRUST or more, said by at least SOME rows, is confirmed, and with it all
    shorter ones: a labelled row that strayed among another kind misleads short walks, and is outvoted in long ones.
    """
    known = y[y >= 0]
    asked, confirmed, heard = 0, 0, False
    for asked, mass in enumerate(_ends_of_walks(W, y, LONGEST + 1), start=1):
        agreement, evidence = _agreement(mass, known, W.shape[0])
        heard = heard or evidence >= ENOUGH
        if agreement >= TRUST and evidence >= SOME:
            confirmed = asked
    return Trust(asked, confirmed, heard)


def walks_beat_linear_baseline(W: csr_array, x: Floats, y: Integers, levels: int) -> bool:
    """Whether walks of so many levels tell left-out labels clearly better than straight cuts through x (n, d) do.

    What is gained and lost is the mean over levels. Labels alone need no pool, so in doubt they are followed.
    """
    known = y[y >= 0]
    classes, own = np.unique(known, return_inverse=True)
    if len(classes) < 2:
        return False
    alone = linear_baseline_correct(x[y >= 0], known)
    turn = leave_one_out_folds(known)
    left = turn[:, None] != turn
    of_class = np.eye(len(classes))[own]
    walked = [true_class_ranks_first(mass * left @ of_class, own) for mass in _ends_of_walks(W, y, levels)]
    if not walked:
        return False
    gained = float(np.mean([(told & ~alone).sum() for told in walked]))
    lost = float(np.mean([(alone & ~told).sum() for told in walked]))
    return significantly_more(gained, lost)


def walk_error_rate(W: csr_array, y: Integers, levels: int = 6) -> float:
    """How often a labelled row would be given another label by walks from the other labelled rows: the mean over levels.

    A row goes to the class whose labelled rows send it most on average; equals share. A row that is alone in its class is
    not asked. Where no row can be asked, 0.
    """
    known = y[y >= 0]
    classes = np.unique(known)
    same = known[:, None] == known
    asked = same.sum(axis=1) > 1
    if not asked.any():
        return 0.0
    shares = []
    for mass in _ends_of_walks(W, y, levels):
        np.fill_diagonal(mass, 0.0)
        sent = np.stack([mass[known == c].sum(axis=0) / np.maximum(1, (known == c).sum() - (known == c)) for c in classes])
        best = sent == sent.max(axis=0)
        right = best[np.searchsorted(classes, known), np.arange(len(known))] / best.sum(axis=0)
        shares.append(1.0 - right[asked].mean())
    return float(np.mean(shares)) if shares else 0.0


def _ends_of_walks(W: csr_array, y: Integers, levels: int) -> Iterator[Floats]:
    """For each level l, (L, L): the share of walks from the i-th labelled row that end on the j-th, times its territory.

    Walks stop with probability 2^-l at each hop (1/2 at level 0), so that all ends follow from one system of equations;
    in the symmetric S = D^-1/2 W D^-1/2 it is X = (1 - stop) S X + stop I. Levels too dear to ask are left out.
    """
    labelled = np.flatnonzero(y >= 0)
    root = np.sqrt(np.maximum(np.asarray(W.sum(axis=1), dtype=np.float64), np.finfo(float).tiny))
    S = csr_array(diags_array(1.0 / root) @ W @ diags_array(1.0 / root))
    still = eye_array(W.shape[0], format="csr")
    start = np.zeros((W.shape[0], len(labelled)))
    start[labelled, np.arange(len(labelled))] = 1.0
    ends, spent = start, 0.0
    for level in range(levels):
        spent += 4.0 * 2.0 ** (level / 2) * W.nnz * len(labelled)
        if spent > COST:
            return
        stop = 2.0 ** -max(level, 1)
        ends = conjugate_gradients(csr_array(still - (1.0 - stop) * S), stop * start, RANKED, start=ends)
        mass = np.maximum(ends * root[labelled] / root[:, None], 0.0)
        yield mass[labelled] * _territories(mass, y[labelled])


def _territories(mass: Floats, known: Integers) -> Floats:
    """(L,), 1 in the mean: how many rows of the pool a labelled row of its class stands for, rows shared out by mass (n, L).

    Labels are often given class by class, and not as classes occur: five of a rare kind lie denser than five of a common one,
    and would draw more than their share of what walks bring to labelled rows.
    """
    total = mass.sum(axis=1, keepdims=True)
    rows = np.divide(mass, total, out=np.zeros_like(mass), where=total > 0).sum(axis=0)
    same = known[:, None] == known
    of_class = same @ rows / same.sum(axis=1)
    return np.asarray(of_class / max(of_class.mean(), np.finfo(float).tiny))


def _agreement(reached: Floats, y: Integers, n: int) -> tuple[float, float]:
    """The share of same-label mass, averaged over classes, each with an imagined row that agrees; and how many spoke.

    A row that hardly reaches any other counts for little: in full from the mass that a uniform jump would bring.
    """
    others = reached * ~np.eye(len(y), dtype=bool)
    total = others.sum(axis=1)
    evidence = np.minimum(1.0, total * n / max(len(y) - 1, 1))
    share = (others * (y[:, None] == y)).sum(axis=1) / np.maximum(total, np.finfo(float).tiny)
    per_class = [(evidence[y == c] @ share[y == c] + 1.0) / (evidence[y == c].sum() + 1.0) for c in np.unique(y)]
    return float(np.mean(per_class)), float(evidence.sum())


def random_walk_maps(W: csr_array, pieces: float, seed: int, *, least: int = 1, most: int = LONGEST + 1) -> Tensor:
    """Maps (levels, MAPS, n): maps[l, a, i] is where a walker from i stands after 2^l hops; `most` levels at the most.

    Levels go on while the walk still tells at least `pieces` pieces of the pool apart. The number of pieces that hold a
    walker for t hops is the trace of P^t, and walkers who are back where they began count it.
    """
    rng = np.random.default_rng(seed)
    here = np.arange(W.shape[0])
    hops = _one_hop(W, rng)
    levels = [hops]
    for _ in range(most - 1):
        partner = (np.arange(MAPS) + rng.integers(1, MAPS)) % MAPS  # an independent walker goes on from there
        hops = np.take_along_axis(hops[partner], hops, axis=1)
        if len(levels) >= least and (hops == here).sum() / MAPS < pieces:
            break
        levels.append(hops)
    return torch.from_numpy(np.stack(levels))


def _one_hop(W: csr_array, rng: np.random.Generator) -> Integers:
    """(MAPS, n): a neighbour of each point, drawn by weight; a point without neighbours stays."""
    # shares, not weights: beside the sum over a dense crowd the weights of a thin one would be rounded away
    W = _hop_shares(W)
    ends = np.cumsum(W.data)
    before = np.concatenate([[0.0], ends])
    first, last = before[W.indptr[:-1]], before[W.indptr[1:]]
    drawn = first + rng.random((MAPS, W.shape[0])) * (last - first)
    edge = np.searchsorted(ends, drawn, side="right")
    edge = np.clip(edge, W.indptr[:-1], np.maximum(W.indptr[1:] - 1, W.indptr[:-1]))
    lonely = np.diff(W.indptr) == 0
    if lonely.all():
        return np.tile(np.arange(W.shape[0]), (MAPS, 1))
    reached = W.indices[np.minimum(edge, len(W.indices) - 1)].astype(np.int64)
    return np.where(lonely, np.arange(W.shape[0]), reached)
