"""Images of bytes, 0..255, brought to the scale that nets like: the last step before the net, after all augmentation.

A normaliser is a function of a batch (n, C, H, W), of bytes or floats, that gives floats. Fitting takes the images as a pool
keeps them, bytes (n, H, W, C) or floats (n, C, H, W), and never holds more than a block of them as floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from samekind.data.image_layout import BLOCK_VALUES, as_floats
from samekind.data.scaling import Scaler, fit_scaler
from samekind.errors import DataError, SettingError

Normalizer = Callable[[Tensor], Tensor]
ZCA_LIMIT = 64 * 64 * 3  # values of an image: a matrix of 1.2 GB in double precision


@dataclass(frozen=True)
class NormalizePerImage:
    """Each image with mean 0 and standard deviation 1 over all its pixels and channels together; a flat one is only centred."""

    def __call__(self, x: Tensor) -> Tensor:
        pixels = x.reshape(len(x), -1).float()
        centred = pixels - pixels.mean(1, keepdim=True)
        std = centred.square().mean(1, keepdim=True).sqrt()
        flat = std <= 1e-6 * pixels.abs().amax(1, keepdim=True)  # no more than rounding
        return (centred / torch.where(flat, 1.0, std)).view(x.shape)


@dataclass(frozen=True)
class NormalizePerChannel:
    """(x - mean)/scale of each channel, with the numbers of a scaler."""

    scaler: Scaler

    def __call__(self, x: Tensor) -> Tensor:
        return self.scaler(x.float())


def per_channel(images: Tensor) -> NormalizePerChannel:
    """Mean 0 and standard deviation 1 in each channel, over all images together."""
    return NormalizePerChannel(fit_scaler(images))


SYMMETRIC = NormalizePerChannel(
    Scaler(torch.tensor([127.5]), torch.tensor([127.5]))
)  # x/127.5 - 1, from -1 to 1; nothing is fitted


@dataclass(frozen=True)
class Zca:
    """(x/255 - mean) V (E + eps)^(-1/2) V', E and V the eigenvalues and eigenvectors of the covariance of pixels.

    The pixels come out nearly uncorrelated, and as close to the image as that allows.
    """

    mean: Tensor  # (C H W,)
    matrix: Tensor  # (C H W, C H W)

    def __call__(self, x: Tensor) -> Tensor:
        pixels = x.reshape(len(x), -1).float() / 255.0
        if pixels.shape[1] != len(self.mean):
            raise DataError(f"found images of shape {tuple(x.shape[1:])}; ZCA was fitted on {len(self.mean)} values an image")
        return ((pixels - self.mean) @ self.matrix).view(x.shape)


def zca(images: Tensor, eps: float = 1e-5) -> Zca:
    """Fitted in double precision in two passes over the images; eps is what keeps faint directions from being blown up."""
    if not eps > 0:
        raise SettingError(f"eps is {eps}; expected more than 0, such as 1e-5")
    if images[0].numel() > ZCA_LIMIT:
        raise DataError(
            f"found images of {images[0].numel()} values; ZCA needs a matrix of their square, and {ZCA_LIMIT} is the most. "
            "Make the images smaller, or use per_channel."
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
    """Pixels from 0 to 1 in double precision (block, C H W), a few images at a time."""
    for block in torch.split(images, max(1, BLOCK_VALUES // images[0].numel())):
        yield as_floats(block).reshape(len(block), -1).double() / 255.0
