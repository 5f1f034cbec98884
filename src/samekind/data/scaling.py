"""Inputs brought to one scale, so that distances, noise and learning rates mean the same on any data."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from samekind.data.image_layout import channel_statistics, is_uint8_images


@dataclass(frozen=True)
class Scaler:
    """(x - mean)/scale, one pair for each column of a vector or channel of an image; then x basis, if there is one."""

    mean: Tensor
    scale: Tensor
    basis: Tensor | None = None  # (d, k): directions that are kept of vectors

    def __call__(self, x: Tensor) -> Tensor:
        shape = (1, -1, *[1] * (x.ndim - 2))
        scaled = (x - self.mean.view(shape).to(x.dtype)) / self.scale.view(shape).to(x.dtype)
        return scaled if self.basis is None else scaled @ self.basis.to(x.dtype)

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a row that had `shape`."""
        return shape if self.basis is None else (self.basis.shape[1],)


def fit_scaler(x: Tensor) -> Scaler:
    """Mean 0 and standard deviation 1 in each column or channel; a constant one is only centred."""
    mean, std = channel_statistics(x) if is_uint8_images(x) else _statistics(x)
    constant = std <= 1e-7 * mean.abs().clamp_min(1e-30)
    return Scaler(mean, torch.where(constant, torch.ones_like(std), std))


def _statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = x.double()
    over = [0, *range(2, x.ndim)]
    mean = wide.mean(over)
    return mean, wide.std(over, unbiased=False) if len(x) > 1 or x.ndim > 2 else torch.zeros_like(mean)


def with_common_scale(scaler: Scaler) -> Scaler:
    """One scale for all columns of vectors: for columns in one unit, whose widths mean something."""
    return replace(scaler, scale=scaler.scale.square().mean().sqrt().expand_as(scaler.scale).clone())


def with_pca_basis(scaler: Scaler, x: Tensor) -> Scaler:
    """The scaler with a basis of those directions of x (n, d) that stand out of noise, at the least two.

    Of pure noise of variance s^2 no direction has more than s^2 (1 + sqrt(d/n))^2 (Marchenko & Pastur 1967); s^2 is read
    off the median direction. Kept directions keep their widths to each other, and have 1 in the mean.
    """
    rows = scaler(x.double())
    n, d = rows.shape
    variances, directions = _principal(rows)
    ratio = d / n
    noise = variances.median() / (1.0 - ratio / 3.0 if ratio < 1.0 else ratio - 1.0 / 3.0)  # where the median of noise lies
    kept = max(2, int((variances > noise * (1.0 + ratio**0.5) ** 2).sum()))
    return replace(scaler, basis=directions[:, :kept] / variances[:kept].mean().sqrt())


def _principal(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Variances, largest first, and directions (d, k) of centred rows (n, d), without those of no variance."""
    n, d = rows.shape
    gram = rows.T @ rows if d <= n else rows @ rows.T
    squares, vectors = torch.linalg.eigh(gram / n)
    some = squares > 1e-9 * squares[-1]
    squares, vectors = squares[some].flip(0), vectors[:, some].flip(1)
    if d > n:
        vectors = rows.T @ vectors / (n * squares).sqrt()
    return squares, vectors
