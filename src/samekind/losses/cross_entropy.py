"""What labels teach: the class of one thing (equation 4), the sameness of two (equation 6). Sums, not means."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def label_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """L_sup_f: SUM_i -ln f(x_i)_{y_i}, from logits (n, C) and classes (n,)."""
    return F.cross_entropy(logits, y, reduction="sum")


def label_hinge(outputs: Tensor, y: Tensor) -> Tensor:
    """SUM_i SUM_c max(0, 1 - t_ic f_ic), t_ic = 1 for the class of row i and -1 for the others; outputs f (n, C)."""
    t = 2.0 * F.one_hot(y, outputs.shape[1]).to(outputs.dtype) - 1.0
    return (1.0 - t * outputs).clamp_min(0.0).sum()


def soft_cross_entropy(logits: Tensor, q: Tensor) -> Tensor:
    """SUM_i SUM_c -q_ic ln f(x_i)_c, from logits (n, C) and targets q (n, C) that are shared among classes."""
    return -(q * torch.log_softmax(logits, dim=-1)).sum()


def pair_log_odds(pair_logits: Tensor) -> Tensor:
    """The log-odds of W, by Phi's logits (..., 2) in the order (same, different)."""
    return pair_logits[..., 0] - pair_logits[..., 1]


def pair_cross_entropy(pair_logits: Tensor, same: Tensor, weight: Tensor | None = None) -> Tensor:
    """L_sup_W: SUM over pairs of -ln W where `same`, -ln(1-W) where not; logits (m, 2) in the order (same, different)."""
    # with two classes, -log_softmax is a softplus of the difference
    difference = pair_log_odds(pair_logits)
    per_pair = F.softplus(torch.where(same, -difference, difference))
    return per_pair.sum() if weight is None else (weight * per_pair).sum()


def similarity_distillation_loss(pair_logits: Tensor, agreed: Tensor, log_odds: float, weight: Tensor) -> Tensor:
    """SUM over pairs of weight times -(a ln W + (1 - a) ln(1 - W)), where a in [0, 1] is how likely two things agree."""
    return F.binary_cross_entropy_with_logits(pair_log_odds(pair_logits) - log_odds, agreed, weight, reduction="sum")
