"""Plan: choose an encoder and an image size by the number of images and the time."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from samekind.nets.encoders.efficientnet import LITE0, LITE2


@dataclass(frozen=True)
class PlannedEncoder:
    """Encoder with an image size, and the billions of floating-point operations (GFLOP) that one image costs."""

    net: str
    side: int
    gflop: float

    @property
    def name(self) -> str:
        """Return the name with which `resolve_encoder` builds this encoder."""
        return f"{self.net}@{self.side}"

    def seconds(self, n_images: int) -> float:
        """Return the expected seconds for encoding this many images on this machine."""
        return n_images * self.gflop / (GFLOP_PER_SECOND * _cores())


# in order of accuracy, best first; docs/encoders.md gives the errors
PLANS = (
    PlannedEncoder(LITE2.name, 260, 1.72),
    PlannedEncoder(LITE2.name, 224, 1.28),
    PlannedEncoder(LITE0.name, 192, 0.57),
    PlannedEncoder(LITE0.name, 160, 0.40),
    PlannedEncoder(LITE0.name, 128, 0.25),
    PlannedEncoder(LITE0.name, 64, 0.07),
)
DEFAULT_SIDE = 128  # image size if no encoder encodes the images within DEFAULT_SECONDS
# speed of one core; a constant and not measured, so that the same images get the same encoder in every run
GFLOP_PER_SECOND = 25.0
SMALLEST_ENCODED = 24  # least side of images that are encoded, in pixels
DEFAULT_SECONDS = 60.0  # seconds that encoding may take if the fit has no time limit
FRACTION = 0.5  # fraction of the minutes of a fit that encoding may take
# largest factor by which images are enlarged: images of 32 pixels gain accuracy up to 224, and not enough beyond
LARGEST_ENLARGEMENT = 7.0


def plan_encoder(n_images: int, image_side: int | None = None, minutes: float | None = None) -> PlannedEncoder | None:
    """Return the most accurate encoder that encodes these images within a minute, or within half of `minutes`.

    Without `minutes`, an encoder is returned even if very many images take longer. With `minutes`, None means that no encoder
    is fast enough. `image_side` is the shorter side of the images in pixels, if it is known.
    """
    allowed = DEFAULT_SECONDS if minutes is None else 60.0 * FRACTION * minutes
    found = plan_within(allowed, n_images, image_side)
    if found is None and minutes is None:
        return min(_useful(image_side), key=lambda plan: abs(plan.side - DEFAULT_SIDE))
    return found


def plan_within(
    seconds: float, n_images: int, image_side: int | None = None, *, slowdown: float = 1.0, below: float = math.inf
) -> PlannedEncoder | None:
    """Return the most accurate encoder that encodes these images in time; None if there is none.

    `slowdown` is the measured time of an image over the planned time. An encoder must cost less than `below` GFLOP an image.
    """
    plans = (plan for plan in _useful(image_side) if plan.gflop < below)
    return next((plan for plan in plans if slowdown * plan.seconds(n_images) <= seconds), None)


def find_plan(name: str) -> PlannedEncoder:
    """Return the planned encoder with this name."""
    return next(plan for plan in PLANS if plan.name == name)


def _useful(image_side: int | None) -> list[PlannedEncoder]:
    """Return the encoders that do not enlarge images of this side too much."""
    return [p for p in PLANS if image_side is None or p.side <= LARGEST_ENLARGEMENT * image_side] or list(PLANS[-1:])


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
