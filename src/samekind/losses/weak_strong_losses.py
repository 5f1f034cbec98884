"""What a strong look learns from a weak one: FixMatch and what came after it. Targets are given; no gradient goes to them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def masked_cross_entropy(logits: Tensor, target: Tensor, heard: Tensor) -> Tensor:
    """Mean over ALL rows of 1[heard] CE(p, target), target a class (n,) or class probabilities (n, C).

    The rows that are not heard count in the denominator: the fewer guesses pass, the less is said.
    """
    return (heard * F.cross_entropy(logits, target, reduction="none")).mean()


def fairness(logits: Tensor, p: Tensor, share: Tensor) -> Tensor:
    """FreeMatch's SUM_c p'_c ln m'_c, p' = norm(p/share), m' = norm(mean answer/share of answers); logits (n, C) of heard rows.

    A class that no row is put into has 1/0 in its place, and is left out. 0 where no row is heard.
    """
    if len(logits) == 0:
        return logits.sum()
    f = torch.softmax(logits, dim=-1)
    found = torch.bincount(f.argmax(1), minlength=f.shape[1]).to(f.dtype) / len(f)
    there = found > 0
    p_even = normalised(p * _inverse(share))
    f_even = normalised(f.mean(0)[there] / found[there])
    return (p_even[there] * torch.log(f_even)).sum()


def aligned(q: Tensor, mean: Tensor) -> Tensor:
    """Distribution alignment: q (n, C) divided by the mean answer (C,), rows again of sum one."""
    return normalised(q / mean.clamp_min(torch.finfo(mean.dtype).tiny))


def calibrated(near: Tensor, q: Tensor, y: Tensor) -> Tensor:
    """Similarities near (n, K) times what q (n, C) thinks of the class y (K,) of each slot, rows again of sum one."""
    return normalised(near * q[:, y])


def class_shares(near: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """(n, C): similarities near (n, K) to slots of class y (K,), added up for each class."""
    return inner(near, F.one_hot(y, n_classes).T.to(near.dtype))


def pseudo_label_graph(q: Tensor, threshold: float) -> Tensor:
    """CoMatch's target graph: Q = q q^T with a diagonal of 1, what is below `threshold` left out, rows of sum one."""
    Q = inner(q, q).fill_diagonal_(1.0)
    return normalised(torch.where(threshold <= Q, Q, torch.zeros_like(Q)))


def inner(a: Tensor, b: Tensor) -> Tensor:
    """a b^T (n_a, n_b): inner products of rows, in full precision also where nets compute in half."""
    with torch.autocast(a.device.type, enabled=False):
        return a @ b.T


def normalised(x: Tensor) -> Tensor:
    """Each row divided by its sum; a row of zeros stays one."""
    return x / x.sum(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)


def _inverse(x: Tensor) -> Tensor:
    """1/x, and 0 where x is 0."""
    return torch.where(x > 0, 1.0 / torch.where(x > 0, x, torch.ones_like(x)), torch.zeros_like(x))
