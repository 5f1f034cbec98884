"""Random walks on the neighbour graph of the pool: where one may go from a point without leaving its kind.

A vector has no natural augmentation; the pool itself gives one. Walks of 1, 2, 4, ... hops reach ever further along the
data, and how far they may go is read off the data, without a label.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor

from samekind.graphs.affinity import exponent

MAPS = 16  # independent walkers that start at each point
LONGEST = 12  # log2 of the most hops
TRUST = 0.85  # share of same-label mass, averaged over classes, below which a walk is held to leave its kind
ENOUGH = 3.0  # rows that must have spoken before a level counts as confirmed
COST = 3e8  # multiplications that asking the labels may take
Integers = npt.NDArray[np.int64]


def walk_graph(distances: Tensor, indices: Tensor, density_power: float | None = None) -> csr_array:
    """W_ij = (p_i p_j)^a exp(-d_ij^2/(s_i s_j)) between near neighbours (n, k), p_i = 1/s_i, s_i the distance to the k-th.

    Edges in thin regions are weakened, so that a walk crosses a gap between crowds more rarely than the crowds' plain
    overlap would have it. The power a is 4 in the plane and falls with the intrinsic dimension, as densities blur.
    """
    n, k = indices.shape
    s = distances[:, -1].clamp_min(float(distances[:, -1].median()) * 1e-3 + 1e-12)
    weights = torch.exp(exponent(distances, s[:, None], s[indices])).clamp_min(1e-8)
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


def trusted_levels(W: csr_array, y: Integers) -> int:
    """How many levels (1, 2, 4, ... hops) keep to the labels that are known; y (n,) holds -1 where none is.

    From each labelled row, how much of the mass that a walk brings to the *other* labelled rows lands on the same label?
    The walk is trusted up to the first level where that share falls below TRUST; and not at all if no shorter level
    was confirmed by at least ENOUGH rows, since then nobody could be asked about those.
    """
    labelled = np.flatnonzero(y >= 0)
    hop = _hop_shares(W)
    mass = np.zeros((W.shape[0], len(labelled)))
    mass[labelled, np.arange(len(labelled))] = 1.0
    hops, confirmed = 0, False
    for level in range(LONGEST + 1):
        if (2**level - hops) * W.nnz * len(labelled) > COST:
            break  # what is too dear to ask is left to the pool itself
        while hops < 2**level:
            mass, hops = hop @ mass, hops + 1
        agreement, evidence = _agreement(mass[labelled], y[labelled], W.shape[0])
        if agreement < TRUST:
            return level if confirmed else 0
        confirmed = confirmed or evidence >= ENOUGH
    return LONGEST + 1


def _agreement(reached: npt.NDArray[np.float64], y: Integers, n: int) -> tuple[float, float]:
    """The share of same-label mass, averaged over classes, each with an imagined row that agrees; and how many spoke.

    A row that hardly reaches any other counts for little: in full from the mass that a uniform jump would bring.
    """
    others = reached * ~np.eye(len(y), dtype=bool)
    total = others.sum(axis=1)
    evidence = np.minimum(1.0, total * n / max(len(y) - 1, 1))
    share = (others * (y[:, None] == y)).sum(axis=1) / np.maximum(total, np.finfo(float).tiny)
    per_class = [(evidence[y == c] @ share[y == c] + 1.0) / (evidence[y == c].sum() + 1.0) for c in np.unique(y)]
    return float(np.mean(per_class)), float(evidence.sum())


def walk_maps(W: csr_array, pieces: float, seed: int, *, most: int = LONGEST + 1) -> Tensor:
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
        if (hops == here).sum() / MAPS < pieces:
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
