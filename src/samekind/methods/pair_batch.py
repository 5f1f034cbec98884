"""Pairs of samples in a batch: the child batches of the learned graph, and functions that choose and weight pairs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from samekind.nets.classifier import Output


class Pairs(NamedTuple):
    """Pairs (i, j) of positions in a batch, and their weights, whose sum is the number of pairs in the paper's batch."""

    i: Tensor
    j: Tensor
    weight: Tensor


class PairBatch(NamedTuple):
    """Batch of pairs after the forward passes. The outputs are for the samples [X1, X1', X_L] of eq. (12)."""

    y: Tensor  # labels of X_L
    student: Output
    teacher: Output  # outputs for another view of each sample
    f: Tensor  # class probabilities by the student
    target: Tensor  # (B1, C) target probabilities of X1
    pairs: tuple[Pairs, Pairs, Pairs]  # child batches 1, 2 and 3
    phi: tuple[Tensor, Tensor, Tensor]  # logits of the similarity network for each child batch
    all_phi: Tensor  # the logits `phi` of all child batches, concatenated
    same: Tensor  # whether the labels of a pair of child batch 2 are equal
    W: Tensor  # edge weights of child batch 3


def pair_by_position(i: Tensor, j: Tensor) -> Pairs:
    """Return the pairs (i[k], j[k]) for every k, each with weight 1."""
    return Pairs(i, j, torch.ones(len(i), device=i.device))


def pair_halves(positions: Tensor) -> Pairs:
    """Return pairs of element k of the first half with element k of the second half, for every k."""
    half = len(positions) // 2
    return pair_by_position(positions[:half], positions[half : 2 * half])


def pair_all(a: Tensor, b: Tensor, total: float) -> Pairs:
    """Return all pairs (i, j) with i in a, j in b and i != j; their equal weights sum to `total`."""
    i, j = a.repeat_interleave(len(b)), b.repeat(len(a))
    different = i != j
    i, j = i[different], j[different]
    return Pairs(i, j, torch.full((len(i),), total / max(len(i), 1), device=i.device))


def swap_randomly(pairs: Pairs) -> Pairs:
    """Swap the two ends of each pair with probability 1/2."""
    swap = torch.rand(len(pairs.i), device=pairs.i.device) < 0.5
    return Pairs(torch.where(swap, pairs.j, pairs.i), torch.where(swap, pairs.i, pairs.j), pairs.weight)


def balance_weights(weight: Tensor, same: Tensor) -> Tensor:
    """Return weights with the same sum, half of it on same-class pairs and half on different-class pairs."""
    n_same = same.sum()
    n_different = len(same) - n_same
    if n_same == 0 or n_different == 0:
        return weight
    return weight.sum() * torch.where(same, 0.5 / n_same, 0.5 / n_different)
