"""CTAugment: augments images as strongly as the classifier can still recognize them. Berthelot et al. 2019, arXiv:1911.09785.

`with_ctaugment` replaces RandAugment in the strong view. It also adds two views for probes: labelled images that are augmented
at random magnitudes. From its predictions for the probes, the method learns which magnitudes the classifier recognizes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from samekind.data.augment.ops import OPERATIONS, Fill, Integers
from samekind.data.augment.randaugment import (
    FACTOR_OPS,
    SHEAR_OPS,
    Cutout,
    Draws,
    MagnitudeRange,
    MagnitudeRanges,
    RandAugment,
    apply_draws,
    magnitude_ranges,
    random_signs,
)
from samekind.data.augment.transforms import Transform, Views
from samekind.errors import SettingError

# In CTAugment, unlike in RandAugment, AutoContrast and Equalize have a magnitude: which fraction of their effect is applied.
CONTROLLED = magnitude_ranges(
    **dict.fromkeys(FACTOR_OPS, MagnitudeRange(0.1, 2.0)),
    **dict.fromkeys(SHEAR_OPS, MagnitudeRange(-0.3, 0.3)),
    **dict.fromkeys(("AutoContrast", "Equalize"), MagnitudeRange(0.0, 1.0)),
    Rotate=MagnitudeRange(-45.0, 45.0),
    TranslateX=MagnitudeRange(-0.3, 0.3, relative_to="width"),
    TranslateY=MagnitudeRange(-0.3, 0.3, relative_to="height"),
    Posterize=MagnitudeRange(1.0, 9.0, truncated=True),
    Solarize=MagnitudeRange(0.0, 256.0, truncated=True),
)

BINS = 17
BINS_PER_OP = torch.tensor([8 if name == "Posterize" else BINS for name in OPERATIONS])


def level_bins(draws: Draws) -> Integers:
    """Return the number of the magnitude bin (n, depth) for each drawn level in [0, 1]."""
    count = BINS_PER_OP.numpy()[draws.operation]
    bins: Integers = np.minimum((draws.level * count).astype(np.int64), count - 1)
    return bins


def initial_rates() -> Tensor:
    """Return the rates (14, 17) before training: 1 for every bin of an operation, and 0 where an operation has fewer bins."""
    return (torch.arange(BINS, device=BINS_PER_OP.device) < BINS_PER_OP[:, None]).double()


@dataclass(frozen=True)
class CTAugment:
    """Applies random operations, only at magnitudes at which the classifier still recognizes the images.

    A probe is a labelled image that was augmented at any magnitude. `rates` (14, 17) stores for each operation and magnitude
    bin how well the classifier predicted the labels of probes; `update` adds new predictions. Training images get only bins
    whose rate is close to the best rate of the operation. The rates are changed in place, so that a method can save them as one
    of its buffers.
    """

    rates: Tensor = field(default_factory=initial_rates)
    depth: int = 2
    decay: float = 0.99  # EMA decay of the rates
    threshold: float = 0.8  # a bin is not drawn if its weight is below this fraction of the operation's largest weight
    ranges: MagnitudeRanges = CONTROLLED
    fill: Fill = 0
    cutout: Cutout | None = None

    def weights(self) -> Tensor:
        """Return the weight of each bin (14, 17) in random draws: (rate + 1 - decay) / largest; 0 if that is below the
        threshold.
        """
        is_bin = torch.arange(BINS, device=BINS_PER_OP.device) < BINS_PER_OP[:, None]
        p = torch.where(is_bin, self.rates.double() + (1.0 - self.decay), 0.0)
        p = p / p.amax(1, keepdim=True)
        return torch.where(p < self.threshold, 0.0, p)

    def draw(self, n: int, weights: Tensor, generator: torch.Generator) -> Draws:
        """Draw operations for n images: uniformly, with bins by the weights (14, 17), and with a uniform level within
        each bin.
        """
        operation = torch.randint(len(OPERATIONS), (n, self.depth), generator=generator)
        bins = torch.multinomial(weights[operation].view(-1, BINS), 1, generator=generator).view(n, self.depth)
        offset = torch.rand((n, self.depth), generator=generator, dtype=torch.float64)
        level = (bins + offset) / BINS_PER_OP[operation]
        return Draws(operation.numpy(), level.numpy(), random_signs(n, self.depth, generator).numpy())

    def __call__(self, x: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
        out = apply_draws(x, self.draw(len(x), self.weights(), generator), self.ranges, self.fill)
        return out if self.cutout is None else self.cutout(out, index, generator)

    def probe(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Draws]:
        """Return labelled images after operations at any magnitude, and the operations that were drawn, for `update`."""
        draws = self.draw(len(x), initial_rates(), generator)
        return apply_draws(x, draws, self.ranges, self.fill), draws

    def update(self, draws: Draws, match: Tensor) -> None:
        """Update the rates of all operations of the probes: rate <- decay rate + (1 - decay) match.

        match (n,) is the predicted probability of the true class of each probe, which is 1 - sum_c |p_c - y_c|/2 for the
        prediction p and the one-hot label y.
        """
        bins = level_bins(draws)
        rates = self.rates.tolist()
        for operations, places, p in zip(draws.operation.tolist(), bins.tolist(), match.tolist(), strict=True):
            for operation, place in zip(operations, places, strict=True):
                rates[operation][place] = self.decay * rates[operation][place] + (1.0 - self.decay) * p
        self.rates.copy_(torch.tensor(rates, dtype=torch.float64))


class Probe:
    """The two views for probes: `draws` draws the operations for each image, and calling this object applies them.

    The drawn operations are a view themselves, so that they stay with their images when a batch is split.
    """

    def __init__(self, augment: CTAugment) -> None:
        self._augment = augment
        self._draws = augment.draw(0, initial_rates(), torch.Generator())

    def draws(self, x: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
        """Draw operations and levels uniformly for each image; return both in one tensor (n, depth, 2)."""
        self._draws = self._augment.draw(len(x), initial_rates(), generator)
        return torch.stack([torch.from_numpy(self._draws.operation).double(), torch.from_numpy(self._draws.level)], dim=-1)

    def __call__(self, x: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
        return apply_draws(x, self._draws, self._augment.ranges, self._augment.fill)


def draws_from_tensor(draws: Tensor) -> Draws:
    """Return the tensor from `Probe.draws` as Draws. All signs are +1, because CTAugment has no range with a random sign."""
    operation, level = draws.cpu().unbind(dim=-1)
    return Draws(operation.long().numpy(), level.numpy(), torch.ones_like(level).numpy())


def with_ctaugment(views: Views, augment: CTAugment) -> Views:
    """Return the views with CTAugment in the view "strong", and with two more views for probes.

    The view "draws" contains the operations, and the view "probe" the images.
    """
    if "strong" not in views:
        raise SettingError(
            f"CTAugment needs a view called 'strong'; there are only {', '.join(sorted(views))}. Add it to views."
        )
    probe, strong = Probe(augment), views["strong"]
    if not _contains_randaugment(strong):
        raise SettingError(
            f"the strong view is {type(strong).__name__} and contains no RandAugment that CTAugment could replace. "
            "Build it with RandAugment, or keep it as it is with the setting augment='given'."
        )
    return {
        **views,
        "strong": _replace_randaugment(strong, augment),
        "draws": probe.draws,
        "probe": _replace_randaugment(strong, probe),
    }


def _contains_randaugment(transform: Any) -> bool:
    return isinstance(transform, RandAugment) or any(_contains_randaugment(part) for part in _fields_of(transform).values())


def _replace_randaugment(transform: Any, policy: Transform) -> Transform:
    """Return a transform in which `policy` stands in place of RandAugment."""
    if isinstance(transform, RandAugment):
        return policy
    replaced = {
        name: _replace_randaugment(part, policy) for name, part in _fields_of(transform).items() if _contains_randaugment(part)
    }
    made: Transform = replace(transform, **replaced)
    return made


def _fields_of(transform: Any) -> dict[str, Any]:
    """Return {field: value} for a transform that is a dataclass, and an empty dict for any other transform."""
    if not is_dataclass(transform) or isinstance(transform, type):
        return {}
    return {field.name: getattr(transform, field.name) for field in fields(transform)}
