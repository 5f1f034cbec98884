"""Scaling of features, so that distances, noise and learning rates mean the same for any data."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from samekind.image_layout import channel_statistics, is_uint8_images


@dataclass(frozen=True)
class Scaler:
    """Scales each column of vectors, or each channel of images, to (x - mean)/scale.

    If `basis` is given, the scaled vectors are then projected on it.
    """

    mean: Tensor
    scale: Tensor
    basis: Tensor | None = None  # (d, k): directions onto which vectors are projected; None: no projection

    def __call__(self, x: Tensor) -> Tensor:
        shape = (1, -1, *[1] * (x.ndim - 2))
        scaled = (x - self.mean.view(shape).to(x.dtype)) / self.scale.view(shape).to(x.dtype)
        return scaled if self.basis is None else scaled @ self.basis.to(x.dtype)

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape that a sample of this shape has after scaling."""
        return shape if self.basis is None else (self.basis.shape[1],)


def identity_scaler(x: Tensor) -> Scaler:
    """Return a scaler that changes nothing, for vectors or images x."""
    n_columns = channel_statistics(x)[0].shape if is_uint8_images(x) else x.shape[1:2]
    return Scaler(torch.zeros(n_columns, dtype=torch.float64), torch.ones(n_columns, dtype=torch.float64))


def fit_scaler(x: Tensor) -> Scaler:
    """Return a scaler that gives each column or channel mean 0 and standard deviation 1. A constant column is only centred."""
    mean, std = channel_statistics(x) if is_uint8_images(x) else _statistics(x)
    constant = std <= 1e-7 * mean.abs().clamp_min(1e-30)
    return Scaler(mean, torch.where(constant, torch.ones_like(std), std))


def _statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = x.double()
    over = [0, *range(2, x.ndim)]
    mean = wide.mean(over)
    return mean, wide.std(over, unbiased=False) if len(x) > 1 or x.ndim > 2 else torch.zeros_like(mean)


def with_common_scale(scaler: Scaler) -> Scaler:
    """Return the scaler with the same scale for all columns, for data whose columns have the same unit."""
    return replace(scaler, scale=scaler.scale.square().mean().sqrt().expand_as(scaler.scale).clone())


def with_pca_basis(scaler: Scaler, x: Tensor) -> Scaler:
    """Return the scaler with a basis: those principal directions of x (n, d) that are above the noise level, at least two.

    In pure noise of variance s^2, no direction has a variance above s^2 (1 + sqrt(d/n))^2 (Marchenko & Pastur 1967). s^2 is
    estimated from the median variance. The directions that are kept have the same relative variances as before, scaled to mean
    1.
    """
    centered = scaler(x.double())
    n, d = centered.shape
    variances, directions = _principal(centered)
    ratio = d / n
    # variance of the noise: the median variance, divided by the median variance in pure noise of variance 1
    noise = variances.median() / (1.0 - ratio / 3.0 if ratio < 1.0 else ratio - 1.0 / 3.0)
    kept = max(2, int((variances > noise * (1.0 + ratio**0.5) ** 2).sum()))
    return replace(scaler, basis=directions[:, :kept] / variances[:kept].mean().sqrt())


def _principal(centered: Tensor) -> tuple[Tensor, Tensor]:
    """Return the variances of centred samples (n, d) along their principal directions, largest first, and these
    directions (d, k).

    Directions with variance 0 are left out.
    """
    n, d = centered.shape
    gram = centered.T @ centered if d <= n else centered @ centered.T
    squares, vectors = torch.linalg.eigh(gram / n)
    nonzero = squares > 1e-9 * squares[-1]
    squares, vectors = squares[nonzero].flip(0), vectors[:, nonzero].flip(1)
    if d > n:
        vectors = centered.T @ vectors / (n * squares).sqrt()
    return squares, vectors
