"""Consistency losses: the predictions for two views of one sample should be equal."""

from __future__ import annotations

import torch
from torch import Tensor

from samekind.losses.cross_entropy import pair_log_odds


def softmax_mse(logits: Tensor, target_logits: Tensor) -> Tensor:
    """Return the mean of (p - q)^2 over samples and classes, where p and q are the softmax of the two logits (n, C).

    This is the consistency loss of the Pi model and of Mean Teacher.
    """
    return target_mse(logits, torch.softmax(target_logits, dim=-1))


def target_mse(logits: Tensor, q: Tensor) -> Tensor:
    """Return the mean of (p - q)^2 over samples and classes, where p is the softmax of the logits (n, C) and q (n, C) the
    target.
    """
    return (torch.softmax(logits, dim=-1) - q).square().mean()


def similarity_consistency(pair_logits: Tensor, teacher_pair_logits: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return L_cons, eq. (10) of the paper: the sum over pairs of 2 (W - W')^2, times the weight of each pair.

    W and W' are the similarities by the similarity network and by its EMA teacher, from their logits (m, 2) for m pairs. The
    factor 2 is there because the paper sums over both outputs, W and 1 - W.
    """
    W, teacher_W = (torch.sigmoid(pair_log_odds(logits)) for logits in (pair_logits, teacher_pair_logits))
    per_pair = 2.0 * (W - teacher_W).square()
    return per_pair.sum() if weight is None else (weight * per_pair).sum()
