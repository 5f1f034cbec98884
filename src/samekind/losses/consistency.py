"""Consistency losses: two predictions for two views of one sample should agree."""

from __future__ import annotations

import torch
from torch import Tensor

from samekind.losses.cross_entropy import pair_log_odds


def softmax_mse(logits: Tensor, target_logits: Tensor) -> Tensor:
    """Return the mean over batch AND classes of (p - q)^2, p and q the softmax of both logits, as in the Pi model."""
    return target_mse(logits, torch.softmax(target_logits, dim=-1))


def target_mse(logits: Tensor, q: Tensor) -> Tensor:
    """Return the mean over batch AND classes of (p - q)^2, p the softmax of the logits, q (n, C) target probabilities."""
    return (torch.softmax(logits, dim=-1) - q).square().mean()


def similarity_consistency(pair_logits: Tensor, teacher_pair_logits: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return L_cons, eq. (10) of the paper: SUM over pairs of ||Phi - Phi'||^2 over both outputs, which is 2 (W - W')^2."""
    W, teacher_W = (torch.sigmoid(pair_log_odds(logits)) for logits in (pair_logits, teacher_pair_logits))
    per_pair = 2.0 * (W - teacher_W).square()
    return per_pair.sum() if weight is None else (weight * per_pair).sum()
