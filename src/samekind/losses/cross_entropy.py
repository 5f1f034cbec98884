"""Supervised losses: cross-entropy of classes, eq. (4) of the paper, and of pairs, eq. (6). All are sums, not means."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def label_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Return L_sup_f, eq. (4) of the paper: the sum over samples of -ln f(x_i)_{y_i}, from logits (n, C) and classes y (n,)."""
    return F.cross_entropy(logits, y, reduction="sum")


def label_hinge(outputs: Tensor, y: Tensor) -> Tensor:
    """Return the hinge loss SUM_i SUM_c max(0, 1 - t_ic f_ic) of outputs f (n, C).

    t_ic is 1 if c is the class of sample i, and -1 otherwise.
    """
    t = 2.0 * F.one_hot(y, outputs.shape[1]).to(outputs.dtype) - 1.0
    return (1.0 - t * outputs).clamp_min(0.0).sum()


def soft_cross_entropy(logits: Tensor, q: Tensor) -> Tensor:
    """Return the sum over samples of -SUM_c q_c ln f_c, where f is the softmax of logits (n, C) and q (n, C) the target."""
    return -(q * torch.log_softmax(logits, dim=-1)).sum()


def pair_log_odds(pair_logits: Tensor) -> Tensor:
    """Return the log-odds ln(W/(1 - W)) of similarities W, from logits (..., 2) of the similarity network.

    The first logit is that of "same class", the second that of "different classes".
    """
    return pair_logits[..., 0] - pair_logits[..., 1]


def pair_cross_entropy(pair_logits: Tensor, same: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return L_sup_W, eq. (6) of the paper: the sum over pairs of -ln W where `same` is True, and of -ln(1 - W) elsewhere.

    W are the similarities from logits (m, 2) of the similarity network; each pair is multiplied by its weight, if given.
    """
    # with two classes, -log_softmax is a softplus of the difference of the logits
    difference = pair_log_odds(pair_logits)
    per_pair = F.softplus(torch.where(same, -difference, difference))
    return per_pair.sum() if weight is None else (weight * per_pair).sum()


def similarity_distillation_loss(pair_logits: Tensor, agreement: Tensor, log_odds: float, weight: Tensor) -> Tensor:
    """Return the sum over pairs of weight * -(a ln W + (1 - a) ln(1 - W)), where a (`agreement`) is the target similarity.

    W is computed from logits (m, 2) of the similarity network, after `log_odds` is subtracted from their log-odds ln(W/(1 -
    W)).
    """
    return F.binary_cross_entropy_with_logits(pair_log_odds(pair_logits) - log_odds, agreement, weight, reduction="sum")
