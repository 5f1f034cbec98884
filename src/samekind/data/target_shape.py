"""Target shape of decoded images: given by the user, or chosen from the headers of all files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, Literal

from samekind.data.readers.image_decoder import ImageHeader
from samekind.errors import SettingError

Shape = tuple[int, int, int]  # (height, width, channels)
Channels = Literal[1, 3, "auto"]

SIDE, SMALL_SIDE = 64, 32
SMALL_BELOW = 48  # images are decoded to SMALL_SIDE if the median of their shorter sides is below this, in pixels
NATIVE_SIDE = 96  # images of one common size keep this size if their longer side has at most this many pixels
COMMON_FRACTION = 0.9  # a size is common if at least this fraction of all images has it


@dataclass(frozen=True)
class PreferredSide:
    """Image side, in pixels, that an encoder prefers.

    If almost all images have the same size, and it is smaller, they are decoded at their own size, and the encoder enlarges
    them.
    """

    side: int


@dataclass(frozen=True)
class PlannedSide:
    """Image side that is chosen for the images: plan(number of images, median of their shorter sides).

    If `plan` returns None, the default size is used. `name` describes the plan, and is a part of the cache key.
    """

    name: str
    plan: Callable[[int, int], int | None] = field(repr=False, compare=False)


Size = int | tuple[int, int] | PreferredSide | PlannedSide | Literal["auto"]


@dataclass(frozen=True)
class TargetShape:
    """Rule by which the shape of all decoded images is chosen.

    `choose` returns the shape for the headers of all files. If `needs_headers` is False, no header is read, and `choose` gets
    an empty list. `name` describes the rule, and is a part of the cache key.
    """

    name: str
    choose: Callable[[Sequence[ImageHeader]], Shape]
    needs_headers: bool = True


def target_shape(size: Size, channels: Channels) -> TargetShape:
    """Return the rule for a given size and number of channels. "auto" is decided from the headers of all files."""
    sides: tuple[Any, ...] = size if isinstance(size, tuple) else (size, size)
    from_headers = isinstance(size, (PreferredSide, PlannedSide)) or size == "auto"
    if not from_headers and not (len(sides) == 2 and all(isinstance(side, int) and side > 0 for side in sides)):
        raise SettingError(f"size is {size!r}; expected 'auto', a number of pixels, or (height, width)")
    if channels not in ("auto", 1, 3):
        raise SettingError(f"channels is {channels!r}; expected 'auto', 1 for grey or 3 for colour")
    name = f"{sides[0]} {sides[1]} {channels}"
    return TargetShape(name, partial(_choose, size, channels), from_headers or channels == "auto")


def fixed_shape(shape: Shape) -> TargetShape:
    """Return the rule for images that are always decoded to `shape`, and not cached."""
    return TargetShape("", lambda _: shape, needs_headers=False)


def _choose(size: Size, channels: Channels, headers: Sequence[ImageHeader]) -> Shape:
    if channels == "auto":
        channels = 1 if headers and all(header.grey for header in headers) else 3
    if isinstance(size, int):
        return size, size, channels
    if isinstance(size, tuple):
        return *size, channels
    preferred = size.side if isinstance(size, PreferredSide) else None
    if isinstance(size, PlannedSide):
        preferred = size.plan(len(headers), int(median(min(one.height, one.width) for one in headers))) if headers else None
    if not headers:
        return preferred or SIDE, preferred or SIDE, channels
    (common, n_common), *_ = Counter((header.height, header.width) for header in headers).most_common(1)
    if max(common) <= (preferred or NATIVE_SIDE) and n_common >= COMMON_FRACTION * len(headers):
        return *common, channels
    small = median(min(header.height, header.width) for header in headers) < SMALL_BELOW
    side = preferred or (SMALL_SIDE if small else SIDE)
    return side, side, channels
