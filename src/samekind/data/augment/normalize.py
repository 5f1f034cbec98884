"""Normalization of images from 0..255 to the scale of a network. It is the last step, after all augmentation.

A normalizer maps a batch (n, C, H, W) of uint8 or floats to floats. It is fitted on the images of a dataset, uint8 (n, H, W, C)
or floats (n, C, H, W), of which only a block at a time is converted to floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from samekind.data.scaling import Scaler, fit_scaler
from samekind.errors import DataError, SettingError
from samekind.image_layout import BLOCK_VALUES, as_floats

Normalizer = Callable[[Tensor], Tensor]
ZCA_LIMIT = 64 * 64 * 3  # largest number of values in an image for ZCA; its matrix then takes 1.2 GB in double precision


@dataclass(frozen=True)
class NormalizePerImage:
    """Scales each image to mean 0 and standard deviation 1, over all its pixels and channels. A constant image becomes 0."""

    def __call__(self, x: Tensor) -> Tensor:
        pixels = x.reshape(len(x), -1).float()
        centered = pixels - pixels.mean(1, keepdim=True)
        std = centered.square().mean(1, keepdim=True).sqrt()
        # differences this small are rounding errors, so the image is constant
        constant = std <= 1e-6 * pixels.abs().amax(1, keepdim=True)
        return (centered / torch.where(constant, 1.0, std)).view(x.shape)


@dataclass(frozen=True)
class NormalizePerChannel:
    """Scales each channel to (x - mean)/scale. A Scaler holds mean and scale of each channel."""

    scaler: Scaler

    def __call__(self, x: Tensor) -> Tensor:
        return self.scaler(x.float())


def per_channel(images: Tensor) -> NormalizePerChannel:
    """Return a normalizer that gives each channel mean 0 and standard deviation 1 over all images."""
    return NormalizePerChannel(fit_scaler(images))


# maps 0..255 to -1..1 by x/127.5 - 1, whatever the images are
SYMMETRIC = NormalizePerChannel(Scaler(torch.tensor([127.5]), torch.tensor([127.5])))


@dataclass(frozen=True)
class Zca:
    """ZCA whitening: (x/255 - mean) V (E + eps)^(-1/2) V', with eigenvalues E and eigenvectors V of the covariance of pixels.

    Afterwards the pixels are almost uncorrelated. Of all such transforms, this one changes the images least.
    """

    mean: Tensor  # (C H W,)
    matrix: Tensor  # (C H W, C H W)

    def __call__(self, x: Tensor) -> Tensor:
        pixels = x.reshape(len(x), -1).float() / 255.0
        if pixels.shape[1] != len(self.mean):
            raise DataError(
                f"found images of shape {tuple(x.shape[1:])}, but ZCA was fitted on images of {len(self.mean)} values. "
                "Pass images of the same size."
            )
        return ((pixels - self.mean) @ self.matrix).view(x.shape)


def zca(images: Tensor, eps: float = 1e-5) -> Zca:
    """Return the ZCA whitening of the images, fitted in double precision.

    `eps` limits how much small variances are amplified.
    """
    if not eps > 0:
        raise SettingError(f"eps is {eps}; expected more than 0, such as 1e-5")
    if images[0].numel() > ZCA_LIMIT:
        raise DataError(
            f"an image has {images[0].numel()} values, but ZCA, which needs a square matrix of that size, handles at "
            f"most {ZCA_LIMIT}. Make the images smaller, or use per_channel."
        )
    mean = sum((pixels.sum(0) for pixels in _blocks(images)), torch.zeros(())) / len(images)
    covariance = torch.zeros((len(mean), len(mean)), dtype=torch.float64)
    for pixels in _blocks(images):
        pixels -= mean
        covariance.addmm_(pixels.T, pixels, alpha=1.0 / len(images))
    values, vectors = torch.linalg.eigh(covariance)
    matrix = (vectors / (values.clamp_min(0.0) + eps).sqrt()) @ vectors.T
    return Zca(mean.float(), matrix.float())


def _blocks(images: Tensor) -> Iterator[Tensor]:
    """Yield the pixels, from 0 to 1 in double precision, in blocks (m, C H W) of m images."""
    for block in torch.split(images, max(1, BLOCK_VALUES // images[0].numel())):
        yield as_floats(block).reshape(len(block), -1).double() / 255.0
