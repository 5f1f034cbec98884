"""RandAugment: a few random operations for each image, each at a random magnitude. Cubuk et al. 2019, arXiv:1909.13719.

A draw holds an operation and a level from 0 to 1. A `MagnitudeRange` translates the level into degrees, pixels or bits.
Everything here takes uint8 images, before normalization.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from samekind.data.augment.ops import OPERATIONS, Fill, Floats, Integers, apply_ops, fill_values
from samekind.errors import SettingError, did_you_mean

GREY = 128  # the middle of 0..255


@dataclass(frozen=True)
class MagnitudeRange:
    """Magnitudes of an operation: from `low` at level 0 to `high` at level 1."""

    low: float
    high: float
    signed: bool = False  # with a random sign
    truncated: bool = False  # (high - low) * level is rounded towards 0
    relative_to: str = ""  # "height" or "width": `low` and `high` are fractions of that side of the image


_FULL = MagnitudeRange(1.0, 1.0)
FACTOR_OPS = ("Brightness", "Color", "Contrast", "Sharpness")
SHEAR_OPS = ("ShearX", "ShearY")

MagnitudeRanges = tuple[MagnitudeRange, ...]  # in the order of OPERATIONS


def magnitude_ranges(**by_name: MagnitudeRange) -> MagnitudeRanges:
    """Return the ranges in the order of OPERATIONS; an operation without a range is applied at full strength."""
    for name in set(by_name) - set(OPERATIONS):
        raise SettingError(f"no operation is called {name!r}; {did_you_mean(name, OPERATIONS)}")
    return tuple(by_name.get(name, _FULL) for name in OPERATIONS)


# ranges of FixMatch and AutoAugment: level 1 is their magnitude 10, which FixMatch never draws
GOOGLE = magnitude_ranges(
    **dict.fromkeys(FACTOR_OPS, MagnitudeRange(0.1, 1.9)),
    **dict.fromkeys(SHEAR_OPS, MagnitudeRange(0.0, 0.3, signed=True)),
    Rotate=MagnitudeRange(0.0, 30.0, signed=True),
    TranslateX=MagnitudeRange(0.0, 0.3125, signed=True, truncated=True, relative_to="width"),
    TranslateY=MagnitudeRange(0.0, 0.3125, signed=True, truncated=True, relative_to="height"),
    Posterize=MagnitudeRange(4.0, 0.0, truncated=True),
    Solarize=MagnitudeRange(256.0, 0.0, truncated=True),
)
# ranges of USB and most PyTorch implementations: all factors are below 1, so brightness, colour and contrast only decrease
USB = magnitude_ranges(
    **dict.fromkeys(FACTOR_OPS, MagnitudeRange(0.05, 0.95)),
    **dict.fromkeys(SHEAR_OPS, MagnitudeRange(-0.3, 0.3)),
    Rotate=MagnitudeRange(-30.0, 30.0),
    TranslateX=MagnitudeRange(-0.3, 0.3, relative_to="width"),
    TranslateY=MagnitudeRange(-0.3, 0.3, relative_to="height"),
    Posterize=MagnitudeRange(4.0, 8.0, truncated=True),
    Solarize=MagnitudeRange(0.0, 256.0),
)


@dataclass(frozen=True)
class Draws:
    """Sampled operations: arrays (n, depth), one column for each operation that an image gets."""

    operation: Integers  # index in OPERATIONS
    level: Floats  # from 0 to 1
    sign: Floats  # -1 or 1, where the range is signed


def magnitudes(draws: Draws, ranges: MagnitudeRanges, height: int, width: int) -> Floats:
    """Return the magnitudes (n, depth) in the units of the operations: low + (high - low) level."""
    size = {"": 1, "height": height, "width": width}
    table = [(r.low * size[r.relative_to], (r.high - r.low) * size[r.relative_to], r.truncated, r.signed) for r in ranges]
    low, span, truncated, signed = np.array(table).T[:, draws.operation]
    span = span * draws.level
    found: Floats = (low + np.where(truncated, np.trunc(span), span)) * np.where(signed, draws.sign, 1.0)
    return found


def apply_draws(x: Tensor, draws: Draws, ranges: MagnitudeRanges, fill: Fill = 0) -> Tensor:
    """Return uint8 images (n, C, H, W) after their operations, in the order of the columns of `draws`."""
    images, magnitude = x.numpy(), magnitudes(draws, ranges, *x.shape[2:])
    for step in range(magnitude.shape[1]):
        images = apply_ops(images, draws.operation[:, step], magnitude[:, step], fill)
    return torch.from_numpy(images)


@dataclass(frozen=True)
class Cutout:
    """Fill a square around a random pixel of each image. DeVries & Taylor 2017, arXiv:1708.04552.

    The side is a random fraction of the shorter side of the image, rounded down to an even number of pixels.
    """

    min_fraction: float = 0.5
    max_fraction: float = 0.5
    fill: Fill = GREY

    def __call__(self, x: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
        n, channels, height, width = x.shape
        fraction = self.min_fraction + (self.max_fraction - self.min_fraction) * torch.rand((n, 1), generator=generator)
        half = (fraction * min(height, width)).long() // 2
        dy = torch.arange(height) - torch.randint(height, (n, 1), generator=generator)
        dx = torch.arange(width) - torch.randint(width, (n, 1), generator=generator)
        rows, columns = ((-half <= dy) & (dy < half)).to(x.dtype), ((-half <= dx) & (dx < half)).to(x.dtype)
        covered = (rows[:, :, None] * columns[:, None, :])[:, None]
        return (
            x * (1 - covered) + torch.from_numpy(fill_values(self.fill, channels)).to(x.dtype) * covered
        )  # faster than torch.where


@dataclass(frozen=True)
class RandAugment:
    """Apply `depth` random operations to each image. The default settings make the strong view of the method learned_graph."""

    depth: int = 2
    replacement: bool = False  # draw with replacement: an image may get one operation twice
    probability: float = 1.0  # probability that a drawn operation is applied
    steps: int | None = None  # draw levels 1/steps, 2/steps, ... below 1; None draws from [0, 1)
    ranges: MagnitudeRanges = GOOGLE
    fill: Fill = 0
    cutout: Cutout | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.depth <= len(OPERATIONS):
            raise SettingError(f"depth is {self.depth}; expected 1 to {len(OPERATIONS)} operations for each image")
        if self.steps is not None and self.steps < 2:
            raise SettingError(f"steps is {self.steps}; expected 2 or more, or None for any magnitude")

    def draw(self, n: int, generator: torch.Generator) -> Draws:
        """Draw the operations of n images."""
        n_ops = len(OPERATIONS)
        if self.replacement:
            operation = torch.randint(n_ops, (n, self.depth), generator=generator)
        else:
            operation = torch.rand((n, n_ops), generator=generator).argsort(1)[:, : self.depth].contiguous()
        if self.probability < 1.0:
            done = torch.rand((n, self.depth), generator=generator) < self.probability
            operation = torch.where(done, operation, OPERATIONS.index("Identity"))
        return Draws(operation.numpy(), self._levels(n, generator).numpy(), random_signs(n, self.depth, generator).numpy())

    def _levels(self, n: int, generator: torch.Generator) -> Tensor:
        if self.steps is None:
            return torch.rand((n, self.depth), generator=generator, dtype=torch.float64)
        return torch.randint(1, self.steps, (n, self.depth), generator=generator).double() / self.steps

    def __call__(self, x: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
        out = apply_draws(x, self.draw(len(x), generator), self.ranges, self.fill)
        return out if self.cutout is None else self.cutout(out, index, generator)


PAPER = RandAugment()  # Wang, Tu & Zhou 2020: two different operations, random magnitude, no cutout
FIXMATCH = RandAugment(replacement=True, probability=0.5, steps=10, fill=GREY, cutout=Cutout())  # the authors' code
FIXMATCH_USB = replace(
    FIXMATCH, depth=3, probability=1.0, steps=None, ranges=USB, fill=0, cutout=Cutout(0.0, 0.5)
)  # USB's code


def random_signs(n: int, depth: int, generator: torch.Generator) -> Tensor:
    """Draw random signs (n, depth), each -1 or 1."""
    return 2.0 * torch.randint(2, (n, depth), generator=generator).double() - 1.0
