"""Pairs of samples in a batch: the three child batches of the learned graph, and functions that choose and weight pairs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from samekind.nets.classifier import Output


class Pairs(NamedTuple):
    """Pairs of samples, as two positions i and j in a batch, and a weight for each pair.

    The weights sum to the number of pairs that the paper's batch has, also if all pairs of the batch are used.
    """

    i: Tensor
    j: Tensor
    weight: Tensor


class PairBatch(NamedTuple):
    """The three child batches of eq. (12) in the paper, after the forward passes.

    The outputs are for the samples [X1, X1', X_L]: two views of the unlabelled samples, then the labelled samples. X1 has B1
    samples.
    """

    y: Tensor  # labels of the labelled samples X_L
    student: Output
    teacher: Output  # outputs of the EMA teacher for another view of each sample
    f: Tensor  # class probabilities predicted by the student
    target: Tensor  # (B1, C) target probabilities of the unlabelled samples X1
    pairs: tuple[Pairs, Pairs, Pairs]  # child batch 1: two views of one sample; 2: labelled pairs; 3: unlabelled pairs
    phi: tuple[Tensor, Tensor, Tensor]  # logits of the similarity network for the pairs of each child batch
    all_phi: Tensor  # the logits `phi` of all three child batches, concatenated
    same: Tensor  # whether the two labels of each pair of child batch 2 are equal
    W: Tensor  # similarities that the network predicts for the pairs of child batch 3


def pair_by_position(i: Tensor, j: Tensor) -> Pairs:
    """Return the pairs (i[k], j[k]) for all k, each with weight 1."""
    return Pairs(i, j, torch.ones(len(i), device=i.device))


def pair_halves(positions: Tensor) -> Pairs:
    """Return pairs of element k of the first half with element k of the second half, for all k."""
    half = len(positions) // 2
    return pair_by_position(positions[:half], positions[half : 2 * half])


def pair_all(a: Tensor, b: Tensor, total: float) -> Pairs:
    """Return all pairs (i, j) with i in a, j in b and i != j. Their weights are equal and sum to `total`."""
    i, j = a.repeat_interleave(len(b)), b.repeat(len(a))
    different = i != j
    i, j = i[different], j[different]
    return Pairs(i, j, torch.full((len(i),), total / max(len(i), 1), device=i.device))


def swap_randomly(pairs: Pairs) -> Pairs:
    """Swap the two samples of each pair with probability 1/2."""
    swap = torch.rand(len(pairs.i), device=pairs.i.device) < 0.5
    return Pairs(torch.where(swap, pairs.j, pairs.i), torch.where(swap, pairs.i, pairs.j), pairs.weight)


def balance_weights(weight: Tensor, same: Tensor) -> Tensor:
    """Return weights with the same sum, of which same-class pairs get one half and different-class pairs the other.

    If all pairs are of one kind, the weights are returned unchanged.
    """
    n_same = same.sum()
    n_different = len(same) - n_same
    if n_same == 0 or n_different == 0:
        return weight
    return weight.sum() * torch.where(same, 0.5 / n_same, 0.5 / n_different)
