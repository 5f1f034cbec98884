"""Random walks on the nearest-neighbour graph of a dataset: an augmentation that replaces a sample by another one nearby.

Images have natural augmentations, such as flips; vectors do not. So walks of 1, 2, 4, ... hops replace a vector by one that
should have the same class. Their largest length is derived from the graph, and from the labels if there are enough.
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

MAPS = 16  # number of independent walkers that start at each sample
MAX_LEVEL = 12  # log2 of the largest number of hops
# fraction of walks between labelled samples that must end at the same label for a walk length to be confirmed
MIN_AGREEMENT = 0.85
MIN_EVIDENCE = 2.0  # effective number of labelled samples without which no walk length is confirmed
ENOUGH_EVIDENCE = 3.0  # effective number of labelled samples from which a low agreement counts against the walks
MAX_COST = 2e9  # largest number of multiplications spent on comparing walks with the labels
TOLERANCE = 1e-6  # relative residual at which conjugate gradients stop; precise enough to rank the classes
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def random_walk_graph(distances: Tensor, indices: Tensor, density_power: float | None = None) -> csr_array:
    """Return the edge weights W_ij = (p_i p_j)^a exp(-d_ij^2/(s_i s_j)) between nearest neighbours.

    `distances` and `indices` (n, k) are those of each sample's neighbours, s_i is the distance to the k-th neighbour, and p_i =
    1/s_i a density. The densities lower the weights in sparse regions, so that a walk rarely crosses the gap between two
    clusters. The power a (`density_power`) is by default 4 in two dimensions, and falls with the intrinsic dimension, where
    densities are less reliable.
    """
    n, k = indices.shape
    s = distances[:, -1].clamp_min(float(distances[:, -1].median()) * 1e-3 + 1e-12)
    weights = torch.exp(log_affinity(distances, s[:, None], s[indices])).clamp_min(1e-8)
    edges = (weights.double().flatten().numpy(), indices.flatten().numpy(), np.arange(0, n * k + 1, k))
    W = csr_array(edges, shape=(n, n))
    W = W.maximum(W.T)
    a = 8.0 / max(2.0, intrinsic_dimension(distances)) if density_power is None else density_power
    # widths have a lower bound, because a group of duplicates would otherwise attract all walks
    scale = s.clamp_min(float(s.median()) / 4.0)
    density = diags_array((scale.min() / scale).double().numpy() ** a)
    return csr_array(density @ W @ density)


def _transition_matrix(W: csr_array) -> csr_array:
    """Return the probability that a walk hops from sample i to sample j: W_ij divided by the sum of row i of W.

    A sample without neighbours has a row of zeros.
    """
    return csr_array(diags_array(1.0 / np.maximum(W.sum(axis=1), np.finfo(float).tiny)) @ W)


def intrinsic_dimension(distances: Tensor) -> float:
    """Return Levina & Bickel's estimate of the intrinsic dimension, from distances (n, k) to the nearest neighbours.

    The local estimates are combined by the mean of their inverses.
    """
    positive = distances[(distances[:, 0] > 0) & (distances[:, -1] > distances[:, 0])]
    if len(positive) == 0 or distances.shape[1] < 3:
        return 2.0
    inverse = torch.log(positive[:, -1:] / positive[:, :-1]).mean()
    return float(1.0 / inverse.clamp_min(1e-3))


class LabelConsistency(NamedTuple):
    """Result of comparing walks with labels: the number of walk lengths tested and confirmed, and whether labels sufficed
    to judge.
    """

    tested: int
    confirmed: int
    enough_evidence: bool


def label_consistent_levels(W: csr_array, y: Integers) -> LabelConsistency:
    """Return how many walk lengths (1, 2, 4, ... hops) agree with the labels y (n,), which are -1 where unknown.

    The agreement of a length is the fraction of walks from one labelled sample to *another* that end at the same label. A
    length is confirmed if its agreement is at least MIN_AGREEMENT, from at least MIN_EVIDENCE samples. All shorter lengths are
    confirmed with it, because one labelled sample that lies among another class misleads only short walks.
    """
    known = y[y >= 0]
    tested, confirmed, enough = 0, 0, False
    for tested, mass in enumerate(_walk_mass_between_labels(W, y, MAX_LEVEL + 1), start=1):
        agreement, evidence = _agreement(mass, known, W.shape[0])
        enough = enough or evidence >= ENOUGH_EVIDENCE
        if agreement >= MIN_AGREEMENT and evidence >= MIN_EVIDENCE:
            confirmed = tested
    return LabelConsistency(tested, confirmed, enough)


def walks_beat_linear_baseline(W: csr_array, x: Floats, y: Integers, levels: int) -> bool:
    """Return whether walks predict held-out labels significantly better than a linear classifier on x (n, d).

    For each of the walk lengths, the samples that only one of the two predicts correctly are counted, and the counts are
    averaged. Without a significant difference, the result is False: the linear classifier is simpler, because it uses no
    unlabelled samples.
    """
    known = y[y >= 0]
    classes, own = np.unique(known, return_inverse=True)
    if len(classes) < 2:
        return False
    baseline = linear_baseline_correct(x[y >= 0], known)
    fold = leave_one_out_folds(known)
    training = fold[:, None] != fold
    Y = np.eye(len(classes))[own]
    walked = [true_class_ranks_first(mass * training @ Y, own) for mass in _walk_mass_between_labels(W, y, levels)]
    if not walked:
        return False
    gained = float(np.mean([(correct & ~baseline).sum() for correct in walked]))
    lost = float(np.mean([(baseline & ~correct).sum() for correct in walked]))
    return significantly_more(gained, lost)


def walk_error_rate(W: csr_array, y: Integers, levels: int = 6) -> float:
    """Return the leave-one-out error of walks between labelled samples, in [0, 1], averaged over the walk lengths.

    Each labelled sample is assigned to the class from whose labelled samples walks reach it most often on average. If m classes
    tie, and the true class is one of them, 1/m of the sample counts as correct. A sample that is alone in its class is not
    tested. If no sample can be tested, the error is 0.
    """
    known = y[y >= 0]
    classes = np.unique(known)
    same = known[:, None] == known
    tested = same.sum(axis=1) > 1
    if not tested.any():
        return 0.0
    errors = []
    for mass in _walk_mass_between_labels(W, y, levels):
        np.fill_diagonal(mass, 0.0)
        sent = np.stack([mass[known == c].sum(axis=0) / np.maximum(1, (known == c).sum() - (known == c)) for c in classes])
        best = sent == sent.max(axis=0)
        correct = best[np.searchsorted(classes, known), np.arange(len(known))] / best.sum(axis=0)
        errors.append(1.0 - correct[tested].mean())
    return float(np.mean(errors)) if errors else 0.0


def _walk_mass_between_labels(W: csr_array, y: Integers, levels: int) -> Iterator[Floats]:
    """Yield for each level l a matrix (L, L): the probability that a walk from labelled sample i ends at j, times the
    weight of j.

    At level l, a walk stops at each hop with probability 2^-l (1/2 at level 0). So one linear system gives the ends of all
    walks: X = (1 - stop) S X + stop I with the symmetric S = D^-1/2 W D^-1/2. Levels that would exceed MAX_COST are left out.
    """
    labelled = np.flatnonzero(y >= 0)
    root = np.sqrt(np.maximum(np.asarray(W.sum(axis=1), dtype=np.float64), np.finfo(float).tiny))
    S = csr_array(diags_array(1.0 / root) @ W @ diags_array(1.0 / root))
    identity = eye_array(W.shape[0], format="csr")
    start = np.zeros((W.shape[0], len(labelled)))
    start[labelled, np.arange(len(labelled))] = 1.0
    ends, cost = start, 0.0
    for level in range(levels):
        cost += 4.0 * 2.0 ** (level / 2) * W.nnz * len(labelled)
        if cost > MAX_COST:
            return
        stop = 2.0 ** -max(level, 1)
        ends = conjugate_gradients(csr_array(identity - (1.0 - stop) * S), stop * start, TOLERANCE, start=ends)
        mass = np.maximum(ends * root[labelled] / root[:, None], 0.0)
        yield mass[labelled] * _represented_samples(mass, y[labelled])


def _represented_samples(mass: Floats, known: Integers) -> Floats:
    """Return a weight (L,) for each labelled sample: how many samples a label of its class represents, scaled to mean 1.

    `mass` (n, L) is the probability that a walk from each sample ends at each labelled one. People often label equally many
    samples of each class, however frequent the classes are. Then the labels of a rare class lie closer together, and without
    these weights too many walks would end at them.
    """
    total = mass.sum(axis=1, keepdims=True)
    represented = np.divide(mass, total, out=np.zeros_like(mass), where=total > 0).sum(axis=0)
    same = known[:, None] == known
    of_class = same @ represented / same.sum(axis=1)
    return np.asarray(of_class / max(of_class.mean(), np.finfo(float).tiny))


def _agreement(reached: Floats, y: Integers, n: int) -> tuple[float, float]:
    """Return the fraction of walks that end at the same label, averaged over classes, and the effective number of samples.

    Each class gets one imaginary sample whose walks all agree, as a prior. If walks from a sample reach other labelled samples
    less often than uniform jumps would, the sample gets a smaller weight, in proportion. The effective number is the sum of the
    weights.
    """
    others = reached * ~np.eye(len(y), dtype=bool)
    total = others.sum(axis=1)
    evidence = np.minimum(1.0, total * n / max(len(y) - 1, 1))
    fraction = (others * (y[:, None] == y)).sum(axis=1) / np.maximum(total, np.finfo(float).tiny)
    per_class = [(evidence[y == c] @ fraction[y == c] + 1.0) / (evidence[y == c].sum() + 1.0) for c in np.unique(y)]
    return float(np.mean(per_class)), float(evidence.sum())


def random_walk_maps(
    W: csr_array, n_clusters: float, seed: int, *, min_levels: int = 1, max_levels: int = MAX_LEVEL + 1
) -> Tensor:
    """Return maps (levels, MAPS, n): maps[l, a, i] is the sample that walker a, started at sample i, reaches after 2^l hops.

    Levels are added while walks still separate at least `n_clusters` clusters, up to `max_levels`. The number of clusters is
    estimated by the trace of P^t for t hops, that is, by the number of walkers that are back at their start.
    """
    rng = np.random.default_rng(seed)
    start = np.arange(W.shape[0])
    reached = _one_hop(W, rng)
    levels = [reached]
    for _ in range(max_levels - 1):
        # the second half of a walk is made by another walker, so that the two halves are independent
        partner = (np.arange(MAPS) + rng.integers(1, MAPS)) % MAPS
        reached = np.take_along_axis(reached[partner], reached, axis=1)
        if len(levels) >= min_levels and (reached == start).sum() / MAPS < n_clusters:
            break
        levels.append(reached)
    return torch.from_numpy(np.stack(levels))


def _one_hop(W: csr_array, rng: np.random.Generator) -> Integers:
    """Return (MAPS, n): a random neighbour of each sample, drawn by edge weight. A sample without neighbours stays in place."""
    # Sum probabilities and not weights: in a large sum, small weights would be lost in rounding.
    P = _transition_matrix(W)
    ends = np.cumsum(P.data)
    before = np.concatenate([[0.0], ends])
    first, last = before[P.indptr[:-1]], before[P.indptr[1:]]
    drawn = first + rng.random((MAPS, P.shape[0])) * (last - first)
    edge = np.searchsorted(ends, drawn, side="right")
    edge = np.clip(edge, P.indptr[:-1], np.maximum(P.indptr[1:] - 1, P.indptr[:-1]))
    isolated = np.diff(P.indptr) == 0
    if isolated.all():
        return np.tile(np.arange(P.shape[0]), (MAPS, 1))
    reached = P.indices[np.minimum(edge, len(P.indices) - 1)].astype(np.int64)
    return np.where(isolated, np.arange(P.shape[0]), reached)
