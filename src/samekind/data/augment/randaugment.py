"""RandAugment: every image gets a few operations of its own, each at its own magnitude. Cubuk et al. 2019, arXiv:1909.13719.

A draw says which operation and how strong, from 0 to 1; `Ranges` say what that means in degrees, pixels or bits. Who draws is
free: `RandAugment` draws blindly, `CTAugment` prefers what the classifier still understands (Berthelot et al. 2019,
arXiv:1911.09785). All of this works on images of bytes, before they are normalised.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from samekind.data.augment.ops import OPERATIONS, Fill, Floats, Integers, operate, paint
from samekind.errors import SettingError, did_you_mean

GREY = 128  # the middle of 0..255


@dataclass(frozen=True)
class Range:
    """Magnitudes of an operation: from `low` at level 0 to `high` at level 1."""

    low: float
    high: float
    signed: bool = False  # with a random sign
    whole: bool = False  # the way from `low` is cut off to a whole number
    per: str = ""  # "height" or "width": a share of that


_ALL_OF_IT = Range(1.0, 1.0)
_FACTORS = ("Brightness", "Color", "Contrast", "Sharpness")
_SHEARS = ("ShearX", "ShearY")

Ranges = tuple[Range, ...]  # in the order of OPERATIONS


def magnitude_ranges(**by_name: Range) -> Ranges:
    """Ranges in the order of OPERATIONS; operations without one are done wholly."""
    for name in set(by_name) - set(OPERATIONS):
        raise SettingError(f"no operation is called {name!r}; {did_you_mean(name, OPERATIONS)}")
    return tuple(by_name.get(name, _ALL_OF_IT) for name in OPERATIONS)


# FixMatch's and AutoAugment's, where level 1 is their 10, which they never reach. Translations there: 10 pixels of 32.
GOOGLE = magnitude_ranges(
    **dict.fromkeys(_FACTORS, Range(0.1, 1.9)),
    **dict.fromkeys(_SHEARS, Range(0.0, 0.3, signed=True)),
    Rotate=Range(0.0, 30.0, signed=True),
    TranslateX=Range(0.0, 0.3125, signed=True, whole=True, per="width"),
    TranslateY=Range(0.0, 0.3125, signed=True, whole=True, per="height"),
    Posterize=Range(4.0, 0.0, whole=True),
    Solarize=Range(256.0, 0.0, whole=True),
)
# those of USB and of most implementations in PyTorch; factors only ever darken and dull
USB = magnitude_ranges(
    **dict.fromkeys(_FACTORS, Range(0.05, 0.95)),
    **dict.fromkeys(_SHEARS, Range(-0.3, 0.3)),
    Rotate=Range(-30.0, 30.0),
    TranslateX=Range(-0.3, 0.3, per="width"),
    TranslateY=Range(-0.3, 0.3, per="height"),
    Posterize=Range(4.0, 8.0, whole=True),
    Solarize=Range(0.0, 256.0),
)
# CTAugment's; here AutoContrast and Equalize too have a magnitude, the share of the way they go
CONTROLLED = magnitude_ranges(
    **dict.fromkeys(_FACTORS, Range(0.1, 2.0)),
    **dict.fromkeys(_SHEARS, Range(-0.3, 0.3)),
    **dict.fromkeys(("AutoContrast", "Equalize"), Range(0.0, 1.0)),
    Rotate=Range(-45.0, 45.0),
    TranslateX=Range(-0.3, 0.3, per="width"),
    TranslateY=Range(-0.3, 0.3, per="height"),
    Posterize=Range(1.0, 9.0, whole=True),
    Solarize=Range(0.0, 256.0, whole=True),
)


@dataclass(frozen=True)
class Draws:
    """What each image gets, one column for each turn: all (n, depth)."""

    operation: Integers  # place in OPERATIONS
    level: Floats  # from 0 to 1
    sign: Floats  # -1 or 1, where the range is signed


def magnitudes(draws: Draws, ranges: Ranges, height: int, width: int) -> Floats:
    """Levels in the units of their operations: low + (high - low) level."""
    sides = {"": 1, "height": height, "width": width}
    rows = [(r.low * sides[r.per], (r.high - r.low) * sides[r.per], r.whole, r.signed) for r in ranges]
    low, way, whole, signed = np.array(rows).T[:, draws.operation]
    way = way * draws.level
    found: Floats = (low + np.where(whole, np.trunc(way), way)) * np.where(signed, draws.sign, 1.0)
    return found


def applied(x: Tensor, draws: Draws, ranges: Ranges, fill: Fill = 0) -> Tensor:
    """Images of bytes (n, C, H, W) after their operations, turn by turn."""
    images, magnitude = x.numpy(), magnitudes(draws, ranges, *x.shape[2:])
    for turn in range(magnitude.shape[1]):
        images = operate(images, draws.operation[:, turn], magnitude[:, turn], fill)
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
    ranges: Ranges = GOOGLE
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
        return Draws(operation.numpy(), self._levels(n, generator).numpy(), _signs(n, self.depth, generator).numpy())

    def _levels(self, n: int, generator: torch.Generator) -> Tensor:
        if self.steps is None:
            return torch.rand((n, self.depth), generator=generator, dtype=torch.float64)
        return torch.randint(1, self.steps, (n, self.depth), generator=generator).double() / self.steps

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        out = applied(x, self.draw(len(x), generator), self.ranges, self.fill)
        return out if self.cutout is None else self.cutout(out, rows, generator)


PAPER = RandAugment()  # Wang, Tu & Zhou 2020: two different operations, random magnitude, nothing cut out
FIXMATCH = RandAugment(again=True, chance=0.5, steps=10, fill=GREY, cutout=Cutout())  # as its authors have it
FIXMATCH_USB = replace(FIXMATCH, depth=3, chance=1.0, steps=None, ranges=USB, fill=0, cutout=Cutout(0.0, 0.5))  # as USB has it


# ---------------------------------------------------------------- CTAugment

BINS = 17
BINS_OF = torch.tensor([8 if name == "Posterize" else BINS for name in OPERATIONS])


def bins_of(draws: Draws) -> Integers:
    """The bin of each level (n, depth)."""
    count = BINS_OF.numpy()[draws.operation]
    bins: Integers = np.minimum((draws.level * count).astype(np.int64), count - 1)
    return bins


def initial_rates() -> Tensor:
    """A rate of 1 for every operation and bin of magnitudes (14, 17): all may be used. Bins that do not exist have 0."""
    return (torch.arange(BINS, device=BINS_OF.device) < BINS_OF[:, None]).double()


@dataclass(frozen=True)
class CTAugment:
    """Operations at magnitudes that the classifier still understands.

    `rates` (14, 17) says for each operation and bin how well probes of it were classified. Images get bins whose rate is near
    the best of their operation; probes get any, and `learn` brings back how they fared. The rates are changed in place, so
    that a method can keep them among its own tensors and save them with everything else.
    """

    rates: Tensor = field(default_factory=initial_rates)
    depth: int = 2
    decay: float = 0.99  # share of itself that a rate keeps when a probe comes back
    threshold: float = 0.8  # bins below this share of the best rate are not used
    ranges: Ranges = CONTROLLED
    fill: Fill = 0
    cutout: Cutout | None = None

    def weights(self) -> Tensor:
        """The chance of every bin (14, 17), up to a factor: (rate + 1 - decay)/max, or 0 if below the threshold."""
        exists = torch.arange(BINS, device=BINS_OF.device) < BINS_OF[:, None]
        p = torch.where(exists, self.rates.double() + (1.0 - self.decay), 0.0)
        p = p / p.amax(1, keepdim=True)
        return torch.where(p < self.threshold, 0.0, p)

    def draw(self, n: int, weights: Tensor, generator: torch.Generator) -> Draws:
        """Operations all alike, bins by their weights (14, 17), and any place within the bin."""
        operation = torch.randint(len(OPERATIONS), (n, self.depth), generator=generator)
        bins = torch.multinomial(weights[operation].view(-1, BINS), 1, generator=generator).view(n, self.depth)
        within = torch.rand((n, self.depth), generator=generator, dtype=torch.float64)
        level = (bins + within) / BINS_OF[operation]
        return Draws(operation.numpy(), level.numpy(), _signs(n, self.depth, generator).numpy())

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        out = applied(x, self.draw(len(x), self.weights(), generator), self.ranges, self.fill)
        return out if self.cutout is None else self.cutout(out, rows, generator)

    def probe(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Draws]:
        """Labelled images at any magnitude, to be classified, and what they got, to be handed to `learn`."""
        draws = self.draw(len(x), initial_rates(), generator)
        return applied(x, draws, self.ranges, self.fill), draws

    def learn(self, draws: Draws, match: Tensor) -> None:
        """rate <- decay rate + (1 - decay) match, for each operation of each probe, one after another.

        match (n,) is 1 - sum_c |p_c - y_c|/2 of the probe's answer p and label y: the probability of the right class.
        """
        bins = bins_of(draws)
        rates = self.rates.tolist()
        for operations, places, found in zip(draws.operation.tolist(), bins.tolist(), match.tolist(), strict=True):
            for operation, place in zip(operations, places, strict=True):
                rates[operation][place] = self.decay * rates[operation][place] + (1.0 - self.decay) * found
        self.rates.copy_(torch.tensor(rates, dtype=torch.float64))


def _signs(n: int, depth: int, generator: torch.Generator) -> Tensor:
    return 2.0 * torch.randint(2, (n, depth), generator=generator).double() - 1.0
