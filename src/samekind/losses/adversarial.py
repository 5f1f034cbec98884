"""What the worst small change of a row does to the answer, after Miyato et al. 2017, arXiv:1704.03976."""

from __future__ import annotations

import torch
from torch import Tensor


def divergence(logits: Tensor, other_logits: Tensor) -> Tensor:
    """Mean over rows of KL(p || q) = SUM_c p_c (ln p_c - ln q_c), p and q the answers behind the two logits (n, C)."""
    log_p, log_q = torch.log_softmax(logits, dim=-1), torch.log_softmax(other_logits, dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1).mean()


def entropy(logits: Tensor) -> Tensor:
    """Mean over rows of -SUM_c p_c ln p_c."""
    log_p = torch.log_softmax(logits, dim=-1)
    return -(log_p.exp() * log_p).sum(dim=-1).mean()


def unit(d: Tensor) -> Tensor:
    """Each row of d (n, ...) brought to length 1. By its largest entry first: gradients may be too small to be squared."""
    rows = d.flatten(1)
    rows = rows / (rows.abs().amax(dim=1, keepdim=True) + 1e-12)
    return (rows / (rows.square().sum(dim=1, keepdim=True) + 1e-6).sqrt()).view_as(d)
