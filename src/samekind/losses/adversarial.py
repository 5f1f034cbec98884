"""Losses of virtual adversarial training, after Miyato et al. 2017, arXiv:1704.03976."""

from __future__ import annotations

import torch
from torch import Tensor


def kl_divergence(logits: Tensor, other_logits: Tensor) -> Tensor:
    """Return the mean over samples of KL(p || q) = SUM_c p_c (ln p_c - ln q_c).

    p is the softmax of `logits` (n, C), and q that of `other_logits` (n, C).
    """
    log_p, log_q = torch.log_softmax(logits, dim=-1), torch.log_softmax(other_logits, dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1).mean()


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy -SUM_c p_c ln p_c of the predictions, averaged over samples; p is the softmax of the logits (n, C)."""
    log_p = torch.log_softmax(logits, dim=-1)
    return -(log_p.exp() * log_p).sum(dim=-1).mean()


def unit_vectors(d: Tensor) -> Tensor:
    """Scale each sample of d (n, ...) to length 1.

    Each sample is divided by its largest entry first, because the squares of tiny gradients would underflow to 0.
    """
    flat = d.flatten(1)
    flat = flat / (flat.abs().amax(dim=1, keepdim=True) + 1e-12)
    return (flat / (flat.square().sum(dim=1, keepdim=True) + 1e-6).sqrt()).view_as(d)
