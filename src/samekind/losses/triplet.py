"""Triplets: a row is to be nearer to one of its own class than to one of another."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def triplet(z: Tensor, a: Tensor, p: Tensor, n: Tensor, margin: float) -> Tensor:
    """Mean over triplets of max(0, ||h_a - h_p||^2 - ||h_a - h_n||^2 + margin), h the features z (m, d) scaled to length 1."""
    h = F.normalize(z, dim=1)
    near, far = (h[a] - h[p]).square().sum(1), (h[a] - h[n]).square().sum(1)
    return (near - far + margin).clamp_min(0.0).mean()


def sample_triplets(kinds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows a, p, n: each row of a known class (m,), with one of its class and one of another, drawn at random.

    A negative class is an unknown one. A row that finds no partner of either sort is left out.
    """
    m = len(kinds)
    known = (kinds >= 0)[:, None] & (kinds >= 0)
    same = known & (kinds[:, None] == kinds) & ~torch.eye(m, dtype=torch.bool, device=kinds.device)
    other = known & (kinds[:, None] != kinds)
    a = torch.nonzero(same.any(1) & other.any(1)).flatten()
    luck = torch.rand(2, m, m, device=kinds.device)
    p, n = (luck[k].masked_fill(~which, -1.0).argmax(1)[a] for k, which in enumerate((same, other)))
    return a, p, n
