"""RandAugment: a few random operations for each image, each at a random magnitude. Cubuk et al. 2019, arXiv:1909.13719.

A draw is an operation and a level from 0 to 1. A `MagnitudeRange` converts the level to degrees, pixels or bits. All images
here are uint8, before normalization.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from samekind.data.augment.ops import OPERATIONS, Fill, Floats, Integers, apply_ops, fill_values
from samekind.errors import SettingError, did_you_mean

GREY = 128  # middle of the levels 0..255


@dataclass(frozen=True)
class MagnitudeRange:
    """Range of the magnitudes of an operation: `low` at level 0, `high` at level 1, and linear between them."""

    low: float
    high: float
    signed: bool = False  # True: the sign of the magnitude is random
    truncated: bool = False  # True: (high - low) * level is rounded towards 0
    relative_to: str = ""  # "height" or "width": `low` and `high` are fractions of this side of the image


_FULL = MagnitudeRange(1.0, 1.0)
FACTOR_OPS = ("Brightness", "Color", "Contrast", "Sharpness")
SHEAR_OPS = ("ShearX", "ShearY")

MagnitudeRanges = tuple[MagnitudeRange, ...]  # one range for each entry of OPERATIONS


def magnitude_ranges(**by_name: MagnitudeRange) -> MagnitudeRanges:
    """Return one range for each entry of OPERATIONS. An operation without a range is always applied at full strength."""
    for name in set(by_name) - set(OPERATIONS):
        raise SettingError(f"RandAugment has no operation {name!r}; {did_you_mean(name, OPERATIONS)}")
    return tuple(by_name.get(name, _FULL) for name in OPERATIONS)


# Ranges of FixMatch and AutoAugment. Level 1 is their magnitude 10, which FixMatch itself never draws.
GOOGLE = magnitude_ranges(
    **dict.fromkeys(FACTOR_OPS, MagnitudeRange(0.1, 1.9)),
    **dict.fromkeys(SHEAR_OPS, MagnitudeRange(0.0, 0.3, signed=True)),
    Rotate=MagnitudeRange(0.0, 30.0, signed=True),
    TranslateX=MagnitudeRange(0.0, 0.3125, signed=True, truncated=True, relative_to="width"),
    TranslateY=MagnitudeRange(0.0, 0.3125, signed=True, truncated=True, relative_to="height"),
    Posterize=MagnitudeRange(4.0, 0.0, truncated=True),
    Solarize=MagnitudeRange(256.0, 0.0, truncated=True),
)
# Ranges of USB and most PyTorch implementations. All factors are below 1, so brightness, colour and contrast are only reduced.
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
    """Random operations for n images: arrays (n, depth) with a column for each of the `depth` operations that an image gets."""

    operation: Integers  # index into OPERATIONS
    level: Floats  # levels from 0 to 1
    sign: Floats  # -1 or 1; used for operations whose range has a random sign


def magnitudes(draws: Draws, ranges: MagnitudeRanges, height: int, width: int) -> Floats:
    """Return the magnitudes (n, depth) of the drawn levels, in degrees, pixels, bits or factors: low + (high - low) level."""
    size = {"": 1, "height": height, "width": width}
    table = [(r.low * size[r.relative_to], (r.high - r.low) * size[r.relative_to], r.truncated, r.signed) for r in ranges]
    low, span, truncated, signed = np.array(table).T[:, draws.operation]
    span = span * draws.level
    found: Floats = (low + np.where(truncated, np.trunc(span), span)) * np.where(signed, draws.sign, 1.0)
    return found


def apply_draws(x: Tensor, draws: Draws, ranges: MagnitudeRanges, fill: Fill = 0) -> Tensor:
    """Return uint8 images (n, C, H, W) after the drawn operations, applied in the order of their columns."""
    images, magnitude = x.numpy(), magnitudes(draws, ranges, *x.shape[2:])
    for step in range(magnitude.shape[1]):
        images = apply_ops(images, draws.operation[:, step], magnitude[:, step], fill)
    return torch.from_numpy(images)


@dataclass(frozen=True)
class Cutout:
    """Fills a square around a random pixel of each image. DeVries & Taylor 2017, arXiv:1708.04552.

    The side of the square is a random fraction of the image's shorter side, rounded down to an even number of pixels.
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
        # products and a sum, because torch.where is slower
        return x * (1 - covered) + torch.from_numpy(fill_values(self.fill, channels)).to(x.dtype) * covered


@dataclass(frozen=True)
class RandAugment:
    """Applies `depth` random operations to each image. The defaults are the strong view of the method learned_graph."""

    depth: int = 2
    replacement: bool = False  # True: an image may get the same operation twice
    probability: float = 1.0  # probability that a drawn operation is applied
    steps: int | None = None  # only the levels 1/steps, 2/steps, ... below 1 are drawn; None: any level in [0, 1)
    ranges: MagnitudeRanges = GOOGLE
    fill: Fill = 0
    cutout: Cutout | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.depth <= len(OPERATIONS):
            raise SettingError(f"depth is {self.depth}; expected 1 to {len(OPERATIONS)} operations for each image")
        if self.steps is not None and self.steps < 2:
            raise SettingError(
                f"steps is {self.steps}; expected the number of levels of a magnitude, 2 or more, or None for any level"
            )

    def draw(self, n: int, generator: torch.Generator) -> Draws:
        """Draw the operations, levels and signs for n images."""
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


PAPER = RandAugment()  # Wang, Tu & Zhou 2020: two different operations, any magnitude, no cutout
# as in the code of FixMatch's authors
FIXMATCH = RandAugment(replacement=True, probability=0.5, steps=10, fill=GREY, cutout=Cutout())
FIXMATCH_USB = replace(
    FIXMATCH, depth=3, probability=1.0, steps=None, ranges=USB, fill=0, cutout=Cutout(0.0, 0.5)
)  # as in the code of USB


def random_signs(n: int, depth: int, generator: torch.Generator) -> Tensor:
    """Draw random signs (n, depth), each -1 or 1."""
    return 2.0 * torch.randint(2, (n, depth), generator=generator).double() - 1.0
