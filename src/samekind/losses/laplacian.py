"""The extended graph Laplacian (equations 7 to 9): the classifier's graph is drawn towards the learned one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

EPS = 1e-6  # added to s = beta d2 where it meets a logarithm


def squared_distance(f_i: Tensor, f_j: Tensor) -> Tensor:
    """d2 = ||f_i - f_j||^2, summed over classes: 0 for equal answers, 2 for opposite certain ones."""
    return (f_i - f_j).square().sum(-1)


def margin_hinge(d2: Tensor, margin: float) -> Tensor:
    """Per pair, max(0, margin - d)^2: nothing is left to push once two things are `margin` apart.

    The root of a distance of 0 has no gradient; such a pair, which could go anywhere, is left where it is.
    """
    d = torch.where(d2 > 0, d2, torch.ones_like(d2)).sqrt() * (d2 > 0)
    return (margin - d).clamp_min(0.0).square()


def confidence(d2: Tensor, beta: float) -> Tensor:
    """A = exp(-beta d2), equation 7: how sure the classifier is that two things share a class."""
    return torch.exp(-beta * d2)


def log1mexp(s: Tensor) -> Tensor:
    """ln(1 - exp(-s)) for s > 0, right for tiny and for large s, in value and gradient.

    torch.where evaluates both branches and a NaN gradient in the branch not taken survives; so each branch gets an input
    clamped to its own domain.
    """
    near = s <= math.log(2.0)
    tiny = torch.finfo(s.dtype).tiny
    small = torch.where(near, s, torch.full_like(s, 0.5)).clamp_min(tiny)
    large = torch.where(near, torch.full_like(s, 1.0), s)
    return torch.where(near, torch.log(-torch.expm1(-small)), torch.log1p(-torch.exp(-large)))


def contrastive(z_i: Tensor, z_j: Tensor, same: Tensor, margin: float, eps: float) -> Tensor:
    """Per pair: D2 where `same`, else max(margin - sqrt(D2 + eps), 0)^2, with D2 the MEAN over features of (z_i - z_j)^2.

    eps keeps the gradient finite where two rows meet: that of sqrt is infinite at 0.
    """
    D2 = (z_i - z_j).square().mean(-1)
    return torch.where(same, D2, (margin - torch.sqrt(D2 + eps)).clamp_min(0.0).square())


def similar_laplacian(d2: Tensor, beta: float) -> Tensor:
    """Per pair, equation 9 at W = 1: beta d2. The other branch is never evaluated, as 0 * -inf would be NaN."""
    return beta * d2


def extended_laplacian(d2: Tensor, W: Tensor, beta: float, eps: float = EPS) -> Tensor:
    """Per pair, equation 9: W beta d2 - (1 - W) ln(1 - exp(-beta d2)).

    eps is added inside the logarithm, not clamped: two equal answers that should differ still feel a push.
    """
    s = beta * d2
    return W * s - (1.0 - W) * log1mexp(s + eps)
