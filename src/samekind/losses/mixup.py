"""Mixtures of rows and of what is said about them, after mixup (Zhang et al. 2017, arXiv:1710.09412)."""

from __future__ import annotations

import torch
from torch import Tensor


def mixed(x: Tensor, order: Tensor, lam: Tensor) -> Tensor:
    """lam x_i + (1 - lam) x_order(i); lam is one number for all rows, or one for each (n,)."""
    lam = lam.to(x.dtype).view(-1, *[1] * (x.ndim - 1))
    return lam * x + (1.0 - lam) * x[order]


def shares(n: int, a: float, like: Tensor) -> Tensor:
    """lam ~ Beta(a, a), n of them, on the device of `like`; drawn as dropout is."""
    parameter = torch.tensor(a, device=like.device)
    lam: Tensor = torch.distributions.Beta(parameter, parameter).sample((n,))
    return lam


def folded(lam: Tensor) -> Tensor:
    """max(lam, 1 - lam): a mixture stays nearer to its own row than to the other."""
    return torch.maximum(lam, 1.0 - lam)


def sharpened(p: Tensor, T: float) -> Tensor:
    """p^(1/T) / SUM_c p_c^(1/T), rows of p (n, C); the smaller the temperature T, the nearer to one class."""
    powers = p ** (1.0 / T)
    return powers / powers.sum(dim=-1, keepdim=True)


def aligned(p: Tensor, wanted: Tensor, found: Tensor, eps: float = 1e-6) -> Tensor:
    """Rows p (n, C) times (wanted + eps)/(found + eps) (C,), then normalised: classes answered too often are held back."""
    weighted = p * (wanted + eps) / (found + eps)
    return weighted / weighted.sum(dim=-1, keepdim=True)
