"""Views: ways of looking at a row that leave its class alone. A view is a function (x, rows, generator) -> x."""

from __future__ import annotations

import math
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
    """Another row of the pool, some hops away along the data.

    maps[l, a, i] is where walker a stands 2^l hops after row i; level and walker are drawn per row, all levels alike.
    """

    pool: Tensor  # (n, d)
    maps: Tensor  # (levels, walkers, n)

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        levels, walkers, _ = self.maps.shape
        level = torch.randint(levels, (len(x),), generator=generator)
        walker = torch.randint(walkers, (len(x),), generator=generator)
        return self.pool[self.maps[level, walker, rows]]


@dataclass(frozen=True)
class Shift:
    """Images (n, C, H, W) moved by up to `pixels` in each direction, drawn per image, edges reflected; then noise."""

    pixels: int
    flip: bool = False
    sigma: float = 0.0

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        n, _, height, width = x.shape
        down, across = min(self.pixels, height - 1), min(self.pixels, width - 1)  # more than that cannot be reflected
        padded = F.pad(x, (across, across, down, down), mode="reflect")
        top = torch.randint(2 * down + 1, (n, 1), generator=generator) + torch.arange(height)
        left = torch.randint(2 * across + 1, (n, 1), generator=generator) + torch.arange(width)
        if self.flip:
            mirrored = torch.rand((n, 1), generator=generator) < 0.5
            left = torch.where(mirrored, left.flip(1), left)
        image = torch.arange(n)[:, None, None]
        moved = padded[image, :, top[:, :, None], left[:, None, :]].permute(0, 3, 1, 2)
        return moved + self.sigma * _normal(x, generator) if self.sigma > 0 else moved.contiguous()


@dataclass(frozen=True)
class Tilt:
    """Images turned, stretched and slanted a little, each by its own draw from [-degrees, degrees], 1 ± stretch and ± slant."""

    degrees: float = 10.0
    stretch: float = 0.1
    slant: float = 0.1

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        n = len(x)
        turn, stretch, slant = 2.0 * torch.rand((3, n), generator=generator, dtype=x.dtype) - 1.0
        angle = turn * math.radians(self.degrees)
        size = 1.0 + stretch * self.stretch
        cosine, sine, nothing = size * torch.cos(angle), size * torch.sin(angle), torch.zeros_like(angle)
        across = torch.stack([cosine, slant * self.slant - sine, nothing], dim=1)
        down = torch.stack([sine, cosine, nothing], dim=1)
        grid = F.affine_grid(torch.stack([across, down], dim=1), list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


@dataclass(frozen=True)
class Both:
    """One view, then another of what it gave."""

    first: View
    then: View

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        return self.then(self.first(x, rows, generator), rows, generator)


def _normal(x: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(x.shape, generator=generator, dtype=x.dtype)
