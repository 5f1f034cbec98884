"""Views: ways of looking at a row that leave its class alone. A view is a function (x, rows, generator) -> x."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

View = Callable[[Tensor, Tensor, torch.Generator], Tensor]
Views = Mapping[str, View]  # by name: "solo" needs nothing but the row itself, "weak" may use the pool


def plain(x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """The row as it is."""
    return x


@dataclass(frozen=True)
class Noise:
    """x + sigma * N(0, 1)."""

    sigma: float

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        return x + self.sigma * _normal(x, generator)


@dataclass(frozen=True)
class Walk:
    """Another row of the pool, some hops away along the data, plus noise: the augmentation of vectors.

    maps[l, a, i] is where walker a stands 2^l hops after row i; level and walker are drawn per row, all levels alike.
    """

    pool: Tensor  # (n, d)
    maps: Tensor  # (levels, walkers, n)
    sigma: float

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        levels, walkers, _ = self.maps.shape
        level = torch.randint(levels, (len(x),), generator=generator)
        walker = torch.randint(walkers, (len(x),), generator=generator)
        return self.pool[self.maps[level, walker, rows]] + self.sigma * _normal(x, generator)


@dataclass(frozen=True)
class Shift:
    """Images (n, C, H, W) moved by up to `pixels` in each direction, drawn per image, edges reflected; then noise."""

    pixels: int
    flip: bool = False
    sigma: float = 0.0

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        n, _, height, width = x.shape
        p = self.pixels
        padded = F.pad(x, (p, p, p, p), mode="reflect")
        top = torch.randint(2 * p + 1, (n, 1), generator=generator) + torch.arange(height)
        left = torch.randint(2 * p + 1, (n, 1), generator=generator) + torch.arange(width)
        if self.flip:
            mirrored = torch.rand((n, 1), generator=generator) < 0.5
            left = torch.where(mirrored, left.flip(1), left)
        image = torch.arange(n)[:, None, None]
        moved = padded[image, :, top[:, :, None], left[:, None, :]].permute(0, 3, 1, 2)
        return moved + self.sigma * _normal(x, generator) if self.sigma > 0 else moved.contiguous()


def _normal(x: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(x.shape, generator=generator, dtype=x.dtype)
