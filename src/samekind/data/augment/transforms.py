"""Transforms: augmentations of a batch that keep the class of each sample.

A transform is a function (x, index, generator) -> x. `index` holds the positions of the samples in the dataset. All random
numbers are drawn from `generator`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from samekind.errors import DataError

Transform = Callable[[Tensor, Tensor, torch.Generator], Tensor]
# Transforms by name. "labelled_only" uses nothing but the sample itself, "weak" may use the whole dataset, and "strong" may
# distort heavily.
Views = Mapping[str, Transform]


def identity(x: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
    """Return the samples unchanged."""
    return x


@dataclass(frozen=True)
class GaussianNoise:
    """Adds Gaussian noise: x + sigma * N(0, 1)."""

    sigma: float

    def __call__(self, x: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
        return x + self.sigma * _gaussian(x, generator)


@dataclass(frozen=True)
class RandomWalk:
    """Random-walk augmentation: replaces a sample by another sample that a random walk on the neighbour graph reaches.

    maps[l, a, i] is the sample that walker a, started at sample i, reaches in 2^l steps. The level l and the walker a are drawn
    uniformly for each sample of a batch.
    """

    samples: Tensor  # (n, d); all samples of the dataset
    maps: Tensor  # (levels, walkers, n); indices of samples

    def __call__(self, x: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
        levels, walkers, _ = self.maps.shape
        level = torch.randint(levels, (len(x),), generator=generator)
        walker = torch.randint(walkers, (len(x),), generator=generator)
        return self.samples[self.maps[level, walker, index]]


@dataclass(frozen=True)
class RandomShift:
    """Moves images by up to `pixels` in each direction; the edges are reflected. Optionally flips them and adds noise.

    `flip` flips half of the images left to right. `sigma` is the standard deviation of Gaussian noise.
    """

    pixels: int
    flip: bool = False
    sigma: float = 0.0

    def __call__(self, x: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
        n, channels, height, width = x.shape
        rows, columns = _shift_indices(height, self.pixels), _shift_indices(width, self.pixels)
        top = torch.randint(len(rows) // 2, (n,), generator=generator)
        left = torch.randint(len(columns) // 2, (n,), generator=generator)
        if self.flip:
            left = torch.where(torch.rand(n, generator=generator) < 0.5, left + len(columns) // 2, left)
        sources = (width * rows).index_select(0, top)[:, :, None] + columns.index_select(0, left)[:, None, :]
        shifted = x.flatten(2).gather(2, sources.view(n, 1, -1).expand(-1, channels, -1)).view(x.shape)
        return shifted + self.sigma * _gaussian(x, generator) if self.sigma > 0 else shifted


@dataclass(frozen=True)
class RandomAffine:
    """Rotates each image by a random angle of up to `degrees`, and scales and shears it.

    The scale is drawn from 1 ± `stretch`, and the shear from ± `slant`.
    """

    degrees: float = 10.0
    stretch: float = 0.1
    slant: float = 0.1

    def __call__(self, x: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
        n = len(x)
        rotation, stretch, slant = 2.0 * torch.rand((3, n), generator=generator, dtype=x.dtype) - 1.0
        angle = rotation * math.radians(self.degrees)
        size = 1.0 + stretch * self.stretch
        cosine, sine = size * torch.cos(angle), size * torch.sin(angle)
        x_axis = torch.stack([cosine, sine], dim=1)  # (n, 2): to which vector a step to the right is mapped
        y_axis = torch.stack([slant * self.slant - sine, cosine], dim=1)
        grid = _grid(x_axis, y_axis, x.shape[2], x.shape[3])
        return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


@dataclass(frozen=True)
class Compose:
    """Two transforms, applied one after the other."""

    first: Transform
    then: Transform

    @property
    def accepts_uint8(self) -> bool:
        return takes_uint8(self.first)

    def __call__(self, x: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
        return self.then(self.first(x, index, generator), index, generator)


@dataclass(frozen=True)
class NormalizeAfter:
    """A transform of uint8 images (n, C, H, W), followed by a normalization from data/augment/normalize.py."""

    accepts_uint8: ClassVar[bool] = True
    transform: Transform
    normalize: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
        return self.normalize(self.transform(x, index, generator))


@dataclass(frozen=True)
class Uint8Adapter:
    """Applies a transform of uint8 images to float images: each channel is mapped to 0..255 and then back."""

    transform: Transform
    low: Tensor  # (C, 1, 1): value of each channel that is mapped to 0; `high` is mapped to 255
    high: Tensor

    def __call__(self, x: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
        step = (self.high - self.low).clamp_min(torch.finfo(x.dtype).tiny) / 255.0
        uint8_images = ((x - self.low) / step).round().clamp(0.0, 255.0).to(torch.uint8)
        return self.transform(uint8_images, index, generator).to(x.dtype) * step + self.low


def takes_uint8(transform: Transform) -> bool:
    """Return whether a transform takes uint8 images that are not normalized yet."""
    return bool(getattr(transform, "accepts_uint8", False))


def _grid(x_axis: Tensor, y_axis: Tensor, height: int, width: int) -> Tensor:
    """Return sampling positions (n, height, width, 2), as F.affine_grid does without translation, but three times faster.

    A position is x times one vector plus y times another, so the products are computed only once for each column and row.
    """
    x = x_axis[:, None, :] * _pixel_centers(width, x_axis.dtype)[:, None]
    y = y_axis[:, None, :] * _pixel_centers(height, y_axis.dtype)[:, None]
    return x[:, None] + y[:, :, None]


@cache
def _pixel_centers(size: int, dtype: torch.dtype) -> Tensor:
    """Return the positions of the pixel centres on an axis from -1 to 1, as torch defines them."""
    line = F.affine_grid(torch.eye(2, 3, dtype=dtype)[None], [1, 1, 1, size], align_corners=False)
    return line[0, 0, :, 0].clone()


@cache
def _shift_indices(size: int, pixels: int) -> Tensor:
    """Return which pixel each pixel on an axis is copied from: a row for each shift, and then all rows again, flipped.

    The shifts go from -pixels to pixels. Pixels beyond the edge are reflected.
    """
    max_shift = min(pixels, size - 1)  # for a longer shift, the image would have too few pixels to reflect
    source = torch.arange(-max_shift, max_shift + 1)[:, None] + torch.arange(size)
    reflected = size - 1 - (size - 1 - source.abs()).abs()
    return torch.cat([reflected, reflected.flip(1)])


def _gaussian(x: Tensor, generator: torch.Generator) -> Tensor:
    if not x.is_floating_point():
        raise DataError(
            f"noise needs floats, found {x.dtype}. Normalize the images first: "
            "Compose(NormalizeAfter(...), GaussianNoise(...))."
        )
    return torch.randn(x.shape, generator=generator, dtype=x.dtype)
