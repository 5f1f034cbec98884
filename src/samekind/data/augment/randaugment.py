"""RandAugment: a few random operations for each image, each at a random magnitude. Cubuk et al. 2019, arXiv:1909.13719.

A draw holds an operation and a level from 0 to 1. A `MagnitudeRange` translates the level into degrees, pixels or bits.
Everything here takes uint8 images, before normalization.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from samekind.data.augment.ops import OPERATIONS, Fill, Floats, Integers, apply_ops, paint
from samekind.errors import SettingError, did_you_mean

GREY = 128  # the middle of 0..255


@dataclass(frozen=True)
class MagnitudeRange:
    """Magnitudes of an operation: from `low` at level 0 to `high` at level 1."""

    low: float
    high: float
    signed: bool = False  # with a random sign
    whole: bool = False  # the way from `low` is cut off to a whole number
    per: str = ""  # "height" or "width": a share of that


_ALL_OF_IT = MagnitudeRange(1.0, 1.0)
FACTOR_OPS = ("Brightness", "Color", "Contrast", "Sharpness")
SHEAR_OPS = ("ShearX", "ShearY")

MagnitudeRanges = tuple[MagnitudeRange, ...]  # in the order of OPERATIONS


def magnitude_ranges(**by_name: MagnitudeRange) -> MagnitudeRanges:
    """Ranges in the order of OPERATIONS; operations without one are done wholly."""
    for name in set(by_name) - set(OPERATIONS):
        raise SettingError(f"no operation is called {name!r}; {did_you_mean(name, OPERATIONS)}")
    return tuple(by_name.get(name, _ALL_OF_IT) for name in OPERATIONS)


# FixMatch's and AutoAugment's, where level 1 is their 10, which they never reach. Translations there: 10 pixels of 32.
GOOGLE = magnitude_ranges(
    **dict.fromkeys(FACTOR_OPS, MagnitudeRange(0.1, 1.9)),
    **dict.fromkeys(SHEAR_OPS, MagnitudeRange(0.0, 0.3, signed=True)),
    Rotate=MagnitudeRange(0.0, 30.0, signed=True),
    TranslateX=MagnitudeRange(0.0, 0.3125, signed=True, whole=True, per="width"),
    TranslateY=MagnitudeRange(0.0, 0.3125, signed=True, whole=True, per="height"),
    Posterize=MagnitudeRange(4.0, 0.0, whole=True),
    Solarize=MagnitudeRange(256.0, 0.0, whole=True),
)
# those of USB and of most implementations in PyTorch; factors only ever darken and dull
USB = magnitude_ranges(
    **dict.fromkeys(FACTOR_OPS, MagnitudeRange(0.05, 0.95)),
    **dict.fromkeys(SHEAR_OPS, MagnitudeRange(-0.3, 0.3)),
    Rotate=MagnitudeRange(-30.0, 30.0),
    TranslateX=MagnitudeRange(-0.3, 0.3, per="width"),
    TranslateY=MagnitudeRange(-0.3, 0.3, per="height"),
    Posterize=MagnitudeRange(4.0, 8.0, whole=True),
    Solarize=MagnitudeRange(0.0, 256.0),
)


@dataclass(frozen=True)
class Draws:
    """What each image gets, one column for each turn: all (n, depth)."""

    operation: Integers  # place in OPERATIONS
    level: Floats  # from 0 to 1
    sign: Floats  # -1 or 1, where the range is signed


def magnitudes(draws: Draws, ranges: MagnitudeRanges, height: int, width: int) -> Floats:
    """Levels in the units of their operations: low + (high - low) level."""
    sides = {"": 1, "height": height, "width": width}
    rows = [(r.low * sides[r.per], (r.high - r.low) * sides[r.per], r.whole, r.signed) for r in ranges]
    low, way, whole, signed = np.array(rows).T[:, draws.operation]
    way = way * draws.level
    found: Floats = (low + np.where(whole, np.trunc(way), way)) * np.where(signed, draws.sign, 1.0)
    return found


def apply_draws(x: Tensor, draws: Draws, ranges: MagnitudeRanges, fill: Fill = 0) -> Tensor:
    """Images of bytes (n, C, H, W) after their operations, turn by turn."""
    images, magnitude = x.numpy(), magnitudes(draws, ranges, *x.shape[2:])
    for turn in range(magnitude.shape[1]):
        images = apply_ops(images, draws.operation[:, turn], magnitude[:, turn], fill)
    return torch.from_numpy(images)


@dataclass(frozen=True)
class Cutout:
    """A square of each image painted over, its centre anywhere in the image. DeVries & Taylor 2017, arXiv:1708.04552.

    The side is a share of the shorter side, drawn from [least, most], in whole steps of two pixels.
    """

    least: float = 0.5
    most: float = 0.5
    fill: Fill = GREY

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        n, channels, height, width = x.shape
        share = self.least + (self.most - self.least) * torch.rand((n, 1), generator=generator)
        half = (share * min(height, width)).long() // 2
        down = torch.arange(height) - torch.randint(height, (n, 1), generator=generator)
        across = torch.arange(width) - torch.randint(width, (n, 1), generator=generator)
        lines, columns = ((-half <= down) & (down < half)).to(x.dtype), ((-half <= across) & (across < half)).to(x.dtype)
        covered = (lines[:, :, None] * columns[:, None, :])[:, None]
        return x * (1 - covered) + torch.from_numpy(paint(self.fill, channels)).to(x.dtype) * covered  # faster than a choice


@dataclass(frozen=True)
class RandAugment:
    """`depth` operations for each image, all alike, at any magnitude. The defaults are the learned graph's strong view."""

    depth: int = 2
    again: bool = False  # an image may get the same operation in two turns
    chance: float = 1.0  # that an operation is done at all
    steps: int | None = None  # levels 1/steps, 2/steps, ... below 1; None is any level
    ranges: MagnitudeRanges = GOOGLE
    fill: Fill = 0
    cutout: Cutout | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.depth <= len(OPERATIONS):
            raise SettingError(f"depth is {self.depth}; expected 1 to {len(OPERATIONS)} operations for each image")
        if self.steps is not None and self.steps < 2:
            raise SettingError(f"steps is {self.steps}; expected 2 or more, or None for any magnitude")

    def draw(self, n: int, generator: torch.Generator) -> Draws:
        """What n images get."""
        kinds = len(OPERATIONS)
        if self.again:
            operation = torch.randint(kinds, (n, self.depth), generator=generator)
        else:
            operation = torch.rand((n, kinds), generator=generator).argsort(1)[:, : self.depth].contiguous()
        if self.chance < 1.0:
            done = torch.rand((n, self.depth), generator=generator) < self.chance
            operation = torch.where(done, operation, OPERATIONS.index("Identity"))
        return Draws(operation.numpy(), self._levels(n, generator).numpy(), random_signs(n, self.depth, generator).numpy())

    def _levels(self, n: int, generator: torch.Generator) -> Tensor:
        if self.steps is None:
            return torch.rand((n, self.depth), generator=generator, dtype=torch.float64)
        return torch.randint(1, self.steps, (n, self.depth), generator=generator).double() / self.steps

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        out = apply_draws(x, self.draw(len(x), generator), self.ranges, self.fill)
        return out if self.cutout is None else self.cutout(out, rows, generator)


PAPER = RandAugment()  # Wang, Tu & Zhou 2020: two different operations, random magnitude, nothing cut out
FIXMATCH = RandAugment(again=True, chance=0.5, steps=10, fill=GREY, cutout=Cutout())  # as its authors have it
FIXMATCH_USB = replace(FIXMATCH, depth=3, chance=1.0, steps=None, ranges=USB, fill=0, cutout=Cutout(0.0, 0.5))  # as USB has it


def random_signs(n: int, depth: int, generator: torch.Generator) -> Tensor:
    return 2.0 * torch.randint(2, (n, depth), generator=generator).double() - 1.0
