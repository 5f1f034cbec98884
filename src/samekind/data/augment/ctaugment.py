"""Strong views that learn: CTAugment in the place of RandAugment, and probes that come back with what was done to them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from samekind.data.augment.randaugment import CTAugment, Draws, RandAugment, applied, initial_rates
from samekind.data.augment.transforms import Transform, Views
from samekind.errors import SettingError


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
        return applied(x, self._drawn, self._augment.ranges, self._augment.fill)


def draws_from_tensor(drawn: Tensor) -> Draws:
    """What `Probe.draws` wrote down; the signs are lost, as CTAugment's ranges have none."""
    operation, level = drawn.cpu().unbind(dim=-1)
    return Draws(operation.long().numpy(), level.numpy(), torch.ones_like(level).numpy())


def controlled(views: Views, augment: CTAugment) -> Views:
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
