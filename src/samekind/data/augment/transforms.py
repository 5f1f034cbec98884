"""Views: ways of looking at a row that leave its class alone. A view is a function (x, rows, generator) -> x."""

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
# by name: "labelled_only" needs nothing but the row itself, "weak" may use the pool, "strong" may all but hide what the row is
Views = Mapping[str, Transform]


def identity(x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """The row as it is."""
    return x


@dataclass(frozen=True)
class GaussianNoise:
    """x + sigma * N(0, 1)."""

    sigma: float

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        return x + self.sigma * _normal(x, generator)


@dataclass(frozen=True)
class RandomWalk:
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
class RandomShift:
    """Images (n, C, H, W) moved by up to `pixels` in each direction, drawn per image, edges reflected; then noise."""

    pixels: int
    flip: bool = False
    sigma: float = 0.0

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        n, channels, height, width = x.shape
        lines, columns = _windows(height, self.pixels), _windows(width, self.pixels)
        top = torch.randint(len(lines) // 2, (n,), generator=generator)
        left = torch.randint(len(columns) // 2, (n,), generator=generator)
        if self.flip:
            left = torch.where(torch.rand(n, generator=generator) < 0.5, left + len(columns) // 2, left)
        places = (width * lines).index_select(0, top)[:, :, None] + columns.index_select(0, left)[:, None, :]
        moved = x.flatten(2).gather(2, places.view(n, 1, -1).expand(-1, channels, -1)).view(x.shape)
        return moved + self.sigma * _normal(x, generator) if self.sigma > 0 else moved


@dataclass(frozen=True)
class RandomAffine:
    """Images turned, stretched and slanted a little, each by its own draw from [-degrees, degrees], 1 ± stretch and ± slant."""

    degrees: float = 10.0
    stretch: float = 0.1
    slant: float = 0.1

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        n = len(x)
        turn, stretch, slant = 2.0 * torch.rand((3, n), generator=generator, dtype=x.dtype) - 1.0
        angle = turn * math.radians(self.degrees)
        size = 1.0 + stretch * self.stretch
        cosine, sine = size * torch.cos(angle), size * torch.sin(angle)
        along_lines = torch.stack([cosine, sine], dim=1)  # (n, 2): where one step to the right leads
        along_columns = torch.stack([slant * self.slant - sine, cosine], dim=1)
        grid = _grid(along_lines, along_columns, x.shape[2], x.shape[3])
        return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


@dataclass(frozen=True)
class Compose:
    """One view, then another of what it gave."""

    first: Transform
    then: Transform

    @property
    def accepts_uint8(self) -> bool:
        return takes_uint8(self.first)

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        return self.then(self.first(x, rows, generator), rows, generator)


@dataclass(frozen=True)
class NormalizeAfter:
    """Apply a transform to uint8 images (n, C, H, W), then normalize the result (data/augment/normalize.py)."""

    accepts_uint8: ClassVar[bool] = True
    view: Transform
    normalise: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        return self.normalise(self.view(x, rows, generator))


@dataclass(frozen=True)
class Uint8Adapter:
    """A view of bytes for images that are floats: each channel's range in the pool becomes 0 to 255, and is undone after."""

    view: Transform
    low: Tensor  # (C, 1, 1)
    high: Tensor

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        step = (self.high - self.low).clamp_min(torch.finfo(x.dtype).tiny) / 255.0
        stored = ((x - self.low) / step).round().clamp(0.0, 255.0).to(torch.uint8)
        return self.view(stored, rows, generator).to(x.dtype) * step + self.low


def takes_uint8(view: Transform) -> bool:
    """Whether a view looks at images as they are stored."""
    return bool(getattr(view, "accepts_uint8", False))


def _grid(along_lines: Tensor, along_columns: Tensor, height: int, width: int) -> Tensor:
    """(n, height, width, 2): F.affine_grid without a shift, but for its last bit, in a third of its time.

    A place is x times one vector and y times another, and there are as few different x as the image has columns.
    """
    across = along_lines[:, None, :] * _centres(width, along_lines.dtype)[:, None]
    down = along_columns[:, None, :] * _centres(height, along_columns.dtype)[:, None]
    return across[:, None] + down[:, :, None]


@cache
def _centres(size: int, dtype: torch.dtype) -> Tensor:
    """Where the pixels of a line are when it goes from -1 to 1, as torch has it."""
    line = F.affine_grid(torch.eye(2, 3, dtype=dtype)[None], [1, 1, 1, size], align_corners=False)
    return line[0, 0, :, 0].clone()


@cache
def _windows(size: int, pixels: int) -> Tensor:
    """Where a row of pixels comes from when moved by -pixels to pixels, reflected at both ends; then all of these mirrored."""
    reach = min(pixels, size - 1)  # more than that cannot be reflected
    place = torch.arange(-reach, reach + 1)[:, None] + torch.arange(size)
    reflected = size - 1 - (size - 1 - place.abs()).abs()
    return torch.cat([reflected, reflected.flip(1)])


def _normal(x: Tensor, generator: torch.Generator) -> Tensor:
    if not x.is_floating_point():
        raise DataError(
            f"found a row of {x.dtype}; noise needs floats. Normalise images before noise: NormalizeAfter, then Noise."
        )
    return torch.randn(x.shape, generator=generator, dtype=x.dtype)
