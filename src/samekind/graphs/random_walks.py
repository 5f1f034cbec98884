"""Random walks on the nearest-neighbour graph of a dataset, which replace a sample by another one of the same class.

A vector has no natural augmentation, so the dataset itself provides one: walks of 1, 2, 4, ... hops reach further and further
along the data. How far they may go follows from the graph, and from the labels where there are enough.
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

MAPS = 16  # independent walkers that start at each sample
MAX_LEVEL = 12  # log2 of the largest number of hops
MIN_AGREEMENT = 0.85  # fraction of walks between labelled samples that must end at the same label to confirm a level
MIN_EVIDENCE = 2.0  # effective number of labelled samples that a walk level needs to be confirmed
ENOUGH_EVIDENCE = 3.0  # effective number of labelled samples from which on a low agreement counts against the walks
MAX_COST = 2e9  # largest number of multiplications for comparing walks with the labels
TOLERANCE = 1e-6  # relative residual of conjugate gradients: precise enough to rank the classes
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def random_walk_graph(distances: Tensor, indices: Tensor, density_power: float | None = None) -> csr_array:
    """Return W_ij = (p_i p_j)^a exp(-d_ij^2/(s_i s_j)) between nearest neighbours, from their distances and indices (n, k).

    s_i is the distance to the k-th neighbour and p_i = 1/s_i a density. The densities lower the weights of edges in sparse
    regions, so that a walk rarely crosses the gap between two clusters. The power a (`density_power`) is 4 in two dimensions
    and falls with the intrinsic dimension, because density estimates get worse.
    """
    n, k = indices.shape
    s = distances[:, -1].clamp_min(float(distances[:, -1].median()) * 1e-3 + 1e-12)
    weights = torch.exp(log_affinity(distances, s[:, None], s[indices])).clamp_min(1e-8)
    edges = (weights.double().flatten().numpy(), indices.flatten().numpy(), np.arange(0, n * k + 1, k))
    W = csr_array(edges, shape=(n, n))
    W = W.maximum(W.T)
    a = 8.0 / max(2.0, intrinsic_dimension(distances)) if density_power is None else density_power
    # widths are bounded below: otherwise a group of duplicates would attract all walks
    scale = s.clamp_min(float(s.median()) / 4.0)
    density = diags_array((scale.min() / scale).double().numpy() ** a)
    return csr_array(density @ W @ density)


def _transition_matrix(W: csr_array) -> csr_array:
    """Return P = D^-1 W, the probability of each hop. The row of a sample without neighbours stays empty."""
    return csr_array(diags_array(1.0 / np.maximum(W.sum(axis=1), np.finfo(float).tiny)) @ W)


def intrinsic_dimension(distances: Tensor) -> float:
    """Return Levina & Bickel's estimate of the intrinsic dimension from the distances (n, k) to the nearest neighbours.

    The inverses of the local estimates are averaged.
    """
    positive = distances[(distances[:, 0] > 0) & (distances[:, -1] > distances[:, 0])]
    if len(positive) == 0 or distances.shape[1] < 3:
        return 2.0
    inverse = torch.log(positive[:, -1:] / positive[:, :-1]).mean()
    return float(1.0 / inverse.clamp_min(1e-3))


class LabelConsistency(NamedTuple):
    """Number of walk levels compared with the labels, number confirmed, and whether there was enough evidence to judge."""

    tested: int
    confirmed: int
    enough_evidence: bool


def label_consistent_levels(W: csr_array, y: Integers) -> LabelConsistency:
    """Return how many levels (1, 2, 4, ... hops) agree with the labels y (n,), which are -1 where unknown.

    The agreement of a level is the fraction of walks from one labelled sample to *another* that end at the same label. The
    longest level with an agreement of MIN_AGREEMENT or more, from at least MIN_EVIDENCE samples, is confirmed together with all
    shorter ones, because a single labelled sample among another class misleads short walks only.
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

    The numbers of samples that only one of the two predicts correctly are averaged over the levels. The linear classifier is
    simpler, as it uses no unlabelled samples, so without a significant difference the result is False.
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
    """Return the leave-one-out error of walks between labelled samples, averaged over the levels.

    A sample is assigned to the class from whose labelled samples walks reach it with the highest mean probability; in a tie of
    m classes that contains the true class, 1/m of the sample counts as correct. A sample that is alone in its class is not
    tested. The error is 0 if no sample can be tested.
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
    """Yield a matrix (L, L) for each level l: the probability that a walk from labelled sample i ends at j, times j's weight.

    Walks stop with probability 2^-l at each hop (1/2 at level 0), so that one linear system gives the ends of all walks:
    X = (1 - stop) S X + stop I with the symmetric S = D^-1/2 W D^-1/2. Levels that would exceed MAX_COST are left out.
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

    `mass` (n, L) divides each sample among the labelled samples that its walks reach. People often label the same number of
    samples per class, however frequent the classes are. The labels of a rare class then lie closer together and, without
    these weights, would be reached too often.
    """
    total = mass.sum(axis=1, keepdims=True)
    represented = np.divide(mass, total, out=np.zeros_like(mass), where=total > 0).sum(axis=0)
    same = known[:, None] == known
    of_class = same @ represented / same.sum(axis=1)
    return np.asarray(of_class / max(of_class.mean(), np.finfo(float).tiny))


def _agreement(reached: Floats, y: Integers, n: int) -> tuple[float, float]:
    """Return the fraction of walks that end at the same label, averaged over classes, and the effective number of samples.

    As a prior, one imaginary sample whose walks all agree is added to each class. If walks from a sample reach other labelled
    samples less often than uniform jumps would, the weight of the sample is lowered in proportion.
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
    """Return maps (levels, MAPS, n): maps[l, a, i] is the sample that walker a from sample i reaches after 2^l hops.

    Levels are added up to `max_levels`, while walks still separate at least `n_clusters` clusters. The trace of P^t measures in
    how many clusters walks of t hops stay; it is estimated by the number of walkers that are back at their start.
    """
    rng = np.random.default_rng(seed)
    start = np.arange(W.shape[0])
    reached = _one_hop(W, rng)
    levels = [reached]
    for _ in range(max_levels - 1):
        # another walker makes the second half of a walk, so that the two halves are independent
        partner = (np.arange(MAPS) + rng.integers(1, MAPS)) % MAPS
        reached = np.take_along_axis(reached[partner], reached, axis=1)
        if len(levels) >= min_levels and (reached == start).sum() / MAPS < n_clusters:
            break
        levels.append(reached)
    return torch.from_numpy(np.stack(levels))


def _one_hop(W: csr_array, rng: np.random.Generator) -> Integers:
    """Return (MAPS, n): a random neighbour of each sample, drawn by weight; a sample without neighbours stays in place."""
    # add up probabilities and not weights: small weights would be lost in the rounding of a large sum
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
