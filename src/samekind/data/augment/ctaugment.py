"""Strong views that learn: CTAugment in the place of RandAugment, and probes that come back with what was done to them."""

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

# CTAugment's; here AutoContrast and Equalize too have a magnitude, the share of the way they go
CONTROLLED = magnitude_ranges(
    **dict.fromkeys(FACTOR_OPS, MagnitudeRange(0.1, 2.0)),
    **dict.fromkeys(SHEAR_OPS, MagnitudeRange(-0.3, 0.3)),
    **dict.fromkeys(("AutoContrast", "Equalize"), MagnitudeRange(0.0, 1.0)),
    Rotate=MagnitudeRange(-45.0, 45.0),
    TranslateX=MagnitudeRange(-0.3, 0.3, per="width"),
    TranslateY=MagnitudeRange(-0.3, 0.3, per="height"),
    Posterize=MagnitudeRange(1.0, 9.0, whole=True),
    Solarize=MagnitudeRange(0.0, 256.0, whole=True),
)

BINS = 17
BINS_OF = torch.tensor([8 if name == "Posterize" else BINS for name in OPERATIONS])


def level_bins(draws: Draws) -> Integers:
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
    ranges: MagnitudeRanges = CONTROLLED
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
        return Draws(operation.numpy(), level.numpy(), random_signs(n, self.depth, generator).numpy())

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        out = apply_draws(x, self.draw(len(x), self.weights(), generator), self.ranges, self.fill)
        return out if self.cutout is None else self.cutout(out, rows, generator)

    def probe(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Draws]:
        """Labelled images at any magnitude, to be classified, and what they got, to be handed to `learn`."""
        draws = self.draw(len(x), initial_rates(), generator)
        return apply_draws(x, draws, self.ranges, self.fill), draws

    def learn(self, draws: Draws, match: Tensor) -> None:
        """rate <- decay rate + (1 - decay) match, for each operation of each probe, one after another.

        match (n,) is 1 - sum_c |p_c - y_c|/2 of the probe's answer p and label y: the probability of the right class.
        """
        bins = level_bins(draws)
        rates = self.rates.tolist()
        for operations, places, found in zip(draws.operation.tolist(), bins.tolist(), match.tolist(), strict=True):
            for operation, place in zip(operations, places, strict=True):
                rates[operation][place] = self.decay * rates[operation][place] + (1.0 - self.decay) * found
        self.rates.copy_(torch.tensor(rates, dtype=torch.float64))


class Probe:
    """Two views that belong together: `draws` says what is to be done to each image, and the next call does it.

    So what was drawn travels in the batch beside the images, is cut into parts with them, and nothing is kept in between.
    """

    def __init__(self, augment: CTAugment) -> None:
        self._augment = augment
        self._drawn = augment.draw(0, initial_rates(), torch.Generator())

    def draws(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        """(n, depth, 2): operation and level, any level of any operation."""
        self._drawn = self._augment.draw(len(x), initial_rates(), generator)
        return torch.stack([torch.from_numpy(self._drawn.operation).double(), torch.from_numpy(self._drawn.level)], dim=-1)

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        return apply_draws(x, self._drawn, self._augment.ranges, self._augment.fill)


def draws_from_tensor(drawn: Tensor) -> Draws:
    """What `Probe.draws` wrote down; the signs are lost, as CTAugment's ranges have none."""
    operation, level = drawn.cpu().unbind(dim=-1)
    return Draws(operation.long().numpy(), level.numpy(), torch.ones_like(level).numpy())


def with_ctaugment(views: Views, augment: CTAugment) -> Views:
    """The views with CTAugment in "strong", and two more that probe it: "draws", then "probe"."""
    if "strong" not in views:
        raise SettingError(f"CTAugment needs a view called 'strong'; there are only {', '.join(sorted(views))}. Give one.")
    probe, strong = Probe(augment), views["strong"]
    if not _holds_randaugment(strong):
        raise SettingError(
            f"the strong view is {type(strong).__name__}, in which there is no RandAugment for CTAugment to stand in for. "
            "Build it with RandAugment, or keep it as it is with the setting augment='given'."
        )
    return {**views, "strong": _put_in(strong, augment), "draws": probe.draws, "probe": _put_in(strong, probe)}


def _holds_randaugment(view: Any) -> bool:
    return isinstance(view, RandAugment) or any(_holds_randaugment(part) for part in _parts(view).values())


def _put_in(view: Any, policy: Transform) -> Transform:
    """The same view with `policy` where RandAugment was."""
    if isinstance(view, RandAugment):
        return policy
    changed = {name: _put_in(part, policy) for name, part in _parts(view).items() if _holds_randaugment(part)}
    made: Transform = replace(view, **changed)
    return made


def _parts(view: Any) -> dict[str, Any]:
    """The fields of a view that is a dataclass, as those of data/augment/transforms.py are."""
    if not is_dataclass(view) or isinstance(view, type):
        return {}
    return {field.name: getattr(view, field.name) for field in fields(view)}
