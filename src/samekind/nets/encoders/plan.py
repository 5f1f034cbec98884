"""Plan: which encoder and which image size fit the number of images and the time."""

from __future__ import annotations

import os
from dataclasses import dataclass

from samekind.nets.encoders.efficientnet import LITE0, LITE2


@dataclass(frozen=True)
class PlannedEncoder:
    """Encoder at a size, and its cost for one image."""

    net: str
    side: int
    gflop: float

    @property
    def name(self) -> str:
        """Return the name by which `resolve_encoder` builds it."""
        return f"{self.net}@{self.side}"

    def seconds(self, n_images: int) -> float:
        """Return the expected time for this many images on this machine."""
        return n_images * self.gflop / (GFLOP_PER_SECOND * _cores())


# the best first; docs/encoders.md gives the errors
PLANS = (
    PlannedEncoder(LITE2.name, 260, 1.72),
    PlannedEncoder(LITE2.name, 224, 1.28),
    PlannedEncoder(LITE0.name, 192, 0.57),
    PlannedEncoder(LITE0.name, 160, 0.40),
    PlannedEncoder(LITE0.name, 128, 0.25),
    PlannedEncoder(LITE0.name, 64, 0.07),
)
DEFAULT_SIDE = 128  # the smallest that is chosen without a time limit
GFLOP_PER_SECOND = 25.0  # of one core; a constant, so that the same images get the same encoder in every run
SMALLEST_ENCODED = 24  # pixels; smaller images are not encoded
DEFAULT_SECONDS = 60.0  # for encoding, without a time limit
FRACTION = 0.5  # of the minutes of a fit that encoding may take
LARGEST_ENLARGEMENT = 7.0  # an image of 32 pixels gains until 224, and costs more than it gains beyond


def plan_encoder(n_images: int, image_side: int | None = None, minutes: float | None = None) -> PlannedEncoder | None:
    """Return the best encoder for which these images take at most a minute, or half of `minutes`.

    Without `minutes`, very many images may take longer. With them, None means that no encoder is fast enough. `image_side` is
    the shorter side of the images, if it is known.
    """
    allowed = DEFAULT_SECONDS if minutes is None else 60.0 * FRACTION * minutes
    useful = [p for p in PLANS if image_side is None or p.side <= LARGEST_ENLARGEMENT * image_side] or list(PLANS[-1:])
    for plan in useful:
        if plan.seconds(n_images) <= allowed:
            return plan
    return None if minutes is not None else min(useful, key=lambda plan: abs(plan.side - DEFAULT_SIDE))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
