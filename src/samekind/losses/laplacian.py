"""Pairwise losses on a graph: the extended graph Laplacian, eqs. (7) to (9) of the paper, and margin losses."""

from __future__ import annotations

import math

import torch
from torch import Tensor

EPS = 1e-6  # added to s = beta d2 inside the logarithm


def squared_distance(f_i: Tensor, f_j: Tensor) -> Tensor:
    """Return d2 = ||f_i - f_j||^2, summed over classes: 0 for equal predictions, 2 for opposite certain ones."""
    return (f_i - f_j).square().sum(-1)


def margin_hinge(d2: Tensor, margin: float) -> Tensor:
    """Return max(0, margin - d)^2 per pair, from squared distances d2.

    The square root has no gradient at 0, so a pair at distance 0 gets no gradient.
    """
    d = torch.where(d2 > 0, d2, torch.ones_like(d2)).sqrt() * (d2 > 0)
    return (margin - d).clamp_min(0.0).square()


def confidence(d2: Tensor, beta: float) -> Tensor:
    """Return A = exp(-beta d2), eq. (7) of the paper: the classifier's confidence that two samples share a class."""
    return torch.exp(-beta * d2)


def log1mexp(s: Tensor) -> Tensor:
    """Return ln(1 - exp(-s)) for s > 0, accurate for tiny and for large s, in value and gradient.

    torch.where evaluates both branches, and a NaN in the gradient of the unused branch makes the whole gradient NaN. So the
    input of each branch is clamped to the domain of that branch.
    """
    near = s <= math.log(2.0)
    tiny = torch.finfo(s.dtype).tiny
    small = torch.where(near, s, torch.full_like(s, 0.5)).clamp_min(tiny)
    large = torch.where(near, torch.full_like(s, 1.0), s)
    return torch.where(near, torch.log(-torch.expm1(-small)), torch.log1p(-torch.exp(-large)))


def contrastive(z_i: Tensor, z_j: Tensor, same: Tensor, margin: float, eps: float) -> Tensor:
    """Return per pair D2 where `same`, else max(margin - sqrt(D2 + eps), 0)^2; D2 is the MEAN over features of (z_i - z_j)^2.

    eps keeps the gradient of the square root finite where two samples coincide.
    """
    D2 = (z_i - z_j).square().mean(-1)
    return torch.where(same, D2, (margin - torch.sqrt(D2 + eps)).clamp_min(0.0).square())


def similar_laplacian(d2: Tensor, beta: float) -> Tensor:
    """Return eq. (9) of the paper per pair at W = 1: beta d2. The term with 1 - W is not evaluated: 0 * -inf is NaN."""
    return beta * d2


def extended_laplacian(d2: Tensor, W: Tensor, beta: float, eps: float = EPS) -> Tensor:
    """Return eq. (9) of the paper per pair: W beta d2 - (1 - W) ln(1 - exp(-beta d2)).

    eps is added inside the logarithm; a clamp would give no gradient to equal predictions that should differ.
    """
    s = beta * d2
    return W * s - (1.0 - W) * log1mexp(s + eps)
