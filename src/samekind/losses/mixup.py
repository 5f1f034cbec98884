"""Mixup of samples and targets (Zhang et al. 2017, arXiv:1710.09412), and the targets of MixMatch and ReMixMatch."""

from __future__ import annotations

import torch
from torch import Tensor


def mix(x: Tensor, order: Tensor, lam: Tensor) -> Tensor:
    """Return lam x_i + (1 - lam) x_order(i) for each sample i. lam has one value for all samples, or one for each (n,)."""
    lam = lam.to(x.dtype).view(-1, *[1] * (x.ndim - 1))
    return lam * x + (1.0 - lam) * x[order]


def sample_mixup_ratio(n: int, a: float, like: Tensor) -> Tensor:
    """Draw n mixup ratios from Beta(a, a) with torch's global random state, on the device of the tensor `like`."""
    parameter = torch.tensor(a, device=like.device)
    lam: Tensor = torch.distributions.Beta(parameter, parameter).sample((n,))
    return lam


def fold_mixup_ratio(lam: Tensor) -> Tensor:
    """Return max(lam, 1 - lam), so that a mixture is closer to the sample itself than to the sample mixed into it."""
    return torch.maximum(lam, 1.0 - lam)


def sharpen(p: Tensor, T: float) -> Tensor:
    """Return p^(1/T) / SUM_c p_c^(1/T) for probabilities p (n, C): the smaller the temperature T, the closer to one-hot."""
    powers = p ** (1.0 / T)
    return powers / powers.sum(dim=-1, keepdim=True)


def align_to_prior(p: Tensor, prior: Tensor, mean: Tensor, eps: float = 1e-6) -> Tensor:
    """Return probabilities p (n, C), multiplied by (prior + eps)/(mean + eps) and normalized.

    `prior` (C,) are the class fractions of the data, and `mean` (C,) those of recent predictions. So classes that are predicted
    too often get smaller probabilities.
    """
    weighted = p * (prior + eps) / (mean + eps)
    return weighted / weighted.sum(dim=-1, keepdim=True)
