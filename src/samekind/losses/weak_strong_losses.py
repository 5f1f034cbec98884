"""Losses of FixMatch and its successors: strong views learn from targets of weak views; no gradient flows through targets."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def masked_cross_entropy(logits: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Return the cross-entropy of each sample times its mask, averaged over ALL n samples.

    The target holds classes (n,) or probabilities (n, C). The mask (n,) is boolean, or a weight. Masked samples count in the
    mean, so the loss is small while few samples are above the threshold.
    """
    return (mask * F.cross_entropy(logits, target, reduction="none")).mean()


def propagated_cross_entropy(logits: Tensor, F_star: Tensor) -> Tensor:
    """Return the mean over n samples of w_i CE(f_i, ŷ_i), where ŷ_i is the class with the largest propagated probability.

    F_star (n, C) are the propagated class probabilities, and logits (n, C) those of the predictions f. The weight w_i is
    1 - H(F_i)/ln C, where H is the entropy: it is 1 for a certain class, and 0 if all classes are equally probable.
    """
    entropy = -torch.xlogy(F_star, F_star).sum(-1)
    w = (1.0 - entropy / math.log(max(F_star.shape[1], 2))).clamp(0.0, 1.0)
    return masked_cross_entropy(logits, F_star.argmax(-1), w)


def fairness(logits: Tensor, p: Tensor, fractions: Tensor) -> Tensor:
    """Return FreeMatch's fairness term SUM_c p'_c ln m'_c, the negative cross-entropy of two class distributions.

    p' is the running mean prediction p (C,), divided by the running class fractions (C,) of pseudo-labels and normalized. m' is
    the same for the given logits (n, C), which are those of samples above the threshold. A class that is predicted for no
    sample is left out. Without any sample, the term is 0.
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
    """Divide predictions q (n, C) by the mean prediction (C,) and normalize them, so that on average all classes are equal."""
    return normalize_sum(q / mean.clamp_min(torch.finfo(mean.dtype).tiny))


def calibrate_similarities(similarity: Tensor, q: Tensor, y: Tensor) -> Tensor:
    """Return similarities (n, K), multiplied by the probability that q gives to the class of each memory slot, and normalized.

    q (n, C) are the predictions for the n samples, and y (K,) the classes of the K memory slots.
    """
    return normalize_sum(similarity * q[:, y])


def aggregate_by_class(similarity: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """Return for each sample and class the sum of its similarities (n, K) to the memory slots of this class, shape (n, C).

    y (K,) are the classes of the slots.
    """
    return inner_products(similarity, F.one_hot(y, n_classes).T.to(similarity.dtype))


def pseudo_label_graph(q: Tensor, threshold: float) -> Tensor:
    """Return CoMatch's target graph of predictions q (n, C): similarities Q (n, n) whose rows sum to one.

    Q is q q^T with 1 on the diagonal; entries below the threshold are set to 0, and then each row is normalized.
    """
    Q = inner_products(q, q).fill_diagonal_(1.0)
    return normalize_sum(torch.where(threshold <= Q, Q, torch.zeros_like(Q)))


def inner_products(a: Tensor, b: Tensor) -> Tensor:
    """Return a b^T (n_a, n_b), in full precision even under autocast."""
    with torch.autocast(a.device.type, enabled=False):
        return a @ b.T


def normalize_sum(x: Tensor) -> Tensor:
    """Divide x by its sum over the last axis; where the sum is 0, x stays 0."""
    return x / x.sum(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)


def _inverse(x: Tensor) -> Tensor:
    """Return 1/x, and 0 where x is 0."""
    return torch.where(x > 0, 1.0 / torch.where(x > 0, x, torch.ones_like(x)), torch.zeros_like(x))
