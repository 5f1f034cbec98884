"""Losses of FixMatch and the methods that followed it: strong views learn from targets of weak views, without gradient."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def masked_cross_entropy(logits: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over ALL samples of mask times CE(p, target); target holds classes (n,) or probabilities (n, C).

    The mask is boolean or a weight (n,). Masked samples count in the denominator: the fewer samples pass, the smaller the loss.
    """
    return (mask * F.cross_entropy(logits, target, reduction="none")).mean()


def fairness(logits: Tensor, p: Tensor, fractions: Tensor) -> Tensor:
    """Return FreeMatch's fairness term SUM_c p'_c ln m'_c for logits (n, C) of the samples above the threshold, 0 if none are.

    p' = norm(p/fractions) from the running mean prediction p and the running class fractions; m' is the same from the given
    logits; norm divides by the sum. A class that is predicted for no sample has the fraction 0, and is left out.
    """
    if len(logits) == 0:
        return logits.sum()
    f = torch.softmax(logits, dim=-1)
    predicted = torch.bincount(f.argmax(1), minlength=f.shape[1]).to(f.dtype) / len(f)
    present = predicted > 0
    p_even = normalize_sum(p * _inverse(fractions))
    f_even = normalize_sum(f.mean(0)[present] / predicted[present])
    return (p_even[present] * torch.log(f_even)).sum()


def align_to_uniform(q: Tensor, mean: Tensor) -> Tensor:
    """Align predictions q (n, C) to a uniform class distribution: divide by the mean prediction (C,), normalize to sum one."""
    return normalize_sum(q / mean.clamp_min(torch.finfo(mean.dtype).tiny))


def calibrate_similarities(similarity: Tensor, q: Tensor, y: Tensor) -> Tensor:
    """Return similarities (n, K) to K memory slots times the probability q (n, C) of the slot's class y (K,), normalized."""
    return normalize_sum(similarity * q[:, y])


def aggregate_by_class(similarity: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """Return (n, C): similarities (n, K) to memory slots, summed over the slots of each class; y (K,) are their classes."""
    return inner_products(similarity, F.one_hot(y, n_classes).T.to(similarity.dtype))


def pseudo_label_graph(q: Tensor, threshold: float) -> Tensor:
    """Return CoMatch's target graph: Q = q q^T with diagonal 1, entries below `threshold` set to 0, rows of sum one."""
    Q = inner_products(q, q).fill_diagonal_(1.0)
    return normalize_sum(torch.where(threshold <= Q, Q, torch.zeros_like(Q)))


def inner_products(a: Tensor, b: Tensor) -> Tensor:
    """Return a b^T (n_a, n_b), in full precision also under autocast."""
    with torch.autocast(a.device.type, enabled=False):
        return a @ b.T


def normalize_sum(x: Tensor) -> Tensor:
    """Divide the last axis of x by its sum; zeros stay zeros."""
    return x / x.sum(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)


def _inverse(x: Tensor) -> Tensor:
    """Return 1/x, and 0 where x is 0."""
    return torch.where(x > 0, 1.0 / torch.where(x > 0, x, torch.ones_like(x)), torch.zeros_like(x))
