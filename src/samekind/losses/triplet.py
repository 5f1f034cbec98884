"""Triplet loss: a sample should be closer to a sample of its own class than to one of another class."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def triplet_loss(z: Tensor, a: Tensor, p: Tensor, n: Tensor, margin: float) -> Tensor:
    """Return the mean of max(0, ||h_a - h_p||^2 - ||h_a - h_n||^2 + margin), where h = z / ||z|| for features z (m, d).

    a, p and n are positions of anchors, positives (of the anchor's class) and negatives (of another class).
    """
    h = F.normalize(z, dim=1)
    near, far = (h[a] - h[p]).square().sum(1), (h[a] - h[n]).square().sum(1)
    return (near - far + margin).clamp_min(0.0).mean()


def sample_triplets(classes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Draw triplets of positions (a, p, n): for each sample a, a random sample p of its class and a random n of another class.

    A negative number in `classes` (m,) means that the class is unknown; such samples are not used. A sample a is left out if
    there is no p or no n for it.
    """
    m = len(classes)
    known = (classes >= 0)[:, None] & (classes >= 0)
    same = known & (classes[:, None] == classes) & ~torch.eye(m, dtype=torch.bool, device=classes.device)
    other = known & (classes[:, None] != classes)
    a = torch.nonzero(same.any(1) & other.any(1)).flatten()
    random = torch.rand(2, m, m, device=classes.device)
    p, n = (random[k].masked_fill(~which, -1.0).argmax(1)[a] for k, which in enumerate((same, other)))
    return a, p, n
