"""Inputs brought to one scale, so that distances, noise and learning rates mean the same on any data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Scaler:
    """(x - mean)/scale, one pair for each column of a vector or channel of an image."""

    mean: Tensor
    scale: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        shape = (1, -1, *[1] * (x.ndim - 2))
        return (x - self.mean.view(shape).to(x.dtype)) / self.scale.view(shape).to(x.dtype)


def scaler_for(x: Tensor) -> Scaler:
    """Mean 0 and standard deviation 1 in each column or channel; a constant one is only centred."""
    wide = x.double()
    over = [0, *range(2, x.ndim)]
    mean = wide.mean(over)
    std = wide.std(over, unbiased=False) if len(x) > 1 or x.ndim > 2 else torch.zeros_like(mean)
    constant = std <= 1e-7 * mean.abs().clamp_min(1e-30)
    return Scaler(mean, torch.where(constant, torch.ones_like(std), std))
