"""Losses on pairs of samples: the extended graph Laplacian, eqs. (7) to (9) of the paper, and margin losses."""

from __future__ import annotations

import math

import torch
from torch import Tensor

EPS = 1e-6  # added to beta * d2 inside the logarithm, which would be infinite at 0


def squared_distance(f_i: Tensor, f_j: Tensor) -> Tensor:
    """Return the squared distance d2 = ||f_i - f_j||^2 of two predictions, summed over the last axis.

    It is 0 for equal predictions, and 2 for certain predictions of different classes.
    """
    return (f_i - f_j).square().sum(-1)


def margin_hinge(d2: Tensor, margin: float) -> Tensor:
    """Return max(0, margin - d)^2 for each pair, from the squared distances d2 (m,).

    A pair at distance 0 gets the gradient 0, because the square root has no gradient there.
    """
    d = torch.where(d2 > 0, d2, torch.ones_like(d2)).sqrt() * (d2 > 0)
    return (margin - d).clamp_min(0.0).square()


def confidence(d2: Tensor, beta: float) -> Tensor:
    """Return A = exp(-beta d2), eq. (7) of the paper: how confident the classifier is that two samples have the same class."""
    return torch.exp(-beta * d2)


def log1mexp(s: Tensor) -> Tensor:
    """Return ln(1 - exp(-s)) for s > 0, with accurate values and gradients for tiny and for large s.

    torch.where evaluates both branches, and a NaN in the gradient of the unused branch makes the whole gradient NaN. So the
    input of each branch is clamped to the domain of that branch.
    """
    near = s <= math.log(2.0)
    tiny = torch.finfo(s.dtype).tiny
    small = torch.where(near, s, torch.full_like(s, 0.5)).clamp_min(tiny)
    large = torch.where(near, torch.full_like(s, 1.0), s)
    return torch.where(near, torch.log(-torch.expm1(-small)), torch.log1p(-torch.exp(-large)))


def contrastive(z_i: Tensor, z_j: Tensor, same: Tensor, margin: float, eps: float) -> Tensor:
    """Return the contrastive loss of each pair: D2 if the classes are the same, and else max(margin - sqrt(D2 + eps), 0)^2.

    D2 is the mean over features of (z_i - z_j)^2. eps keeps the gradient of the square root finite if two samples are equal.
    """
    D2 = (z_i - z_j).square().mean(-1)
    return torch.where(same, D2, (margin - torch.sqrt(D2 + eps)).clamp_min(0.0).square())


def similar_laplacian(d2: Tensor, beta: float) -> Tensor:
    """Return the loss of eq. (9) of the paper for each pair, for pairs with W = 1: beta d2.

    The second term, -(1 - W) ln(1 - exp(-beta d2)), is left out: at d2 = 0 it would be 0 times infinity, which is NaN.
    """
    return beta * d2


def extended_laplacian(d2: Tensor, W: Tensor, beta: float, eps: float = EPS) -> Tensor:
    """Return the loss of eq. (9) of the paper for each pair: W beta d2 - (1 - W) ln(1 - exp(-beta d2)).

    d2 are squared distances of two predictions, and W similarities in [0, 1]. eps is added inside the logarithm. A clamp
    instead would give gradient 0 to equal predictions of samples that should be different.
    """
    s = beta * d2
    return W * s - (1.0 - W) * log1mexp(s + eps)
