"""Limit of the time for encoding: a fit with `minutes` gives up an encoder that is too slow on a busy machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from samekind.clock import Clock
from samekind.nets.encoders.plan import FRACTION, PlannedEncoder

TIMED_IMAGES = 32  # then the speed is known; the images of the first batch do not count, since they load the encoder
LEAST_FRACTION = 0.25  # of the minutes: a net that is trained from scratch in this time is worse than the fastest encoder


class EncodingTooSlow(Exception):
    """Stops an encoding that would not end in time. `slowdown` is the time of an image over the planned time."""

    def __init__(self, slowdown: float) -> None:
        super().__init__(f"encoding takes {slowdown:.1f} times as long as planned")
        self.slowdown = slowdown


@dataclass(frozen=True)
class EncodingLimit:
    """Time of a fit: its clock, which runs since the fit began, and its minutes."""

    clock: Clock
    minutes: float

    def seconds_left(self) -> float:
        """Return the seconds that encoding may still take: at least a quarter of the minutes, even if reading took long."""
        left = 60.0 * FRACTION * self.minutes - self.clock.seconds()
        return max(left, 60.0 * LEAST_FRACTION * self.minutes)

    def is_half_over(self) -> bool:
        """Return whether the part of the time is over that encoding may take."""
        return self.clock.seconds() >= 60.0 * FRACTION * self.minutes

    def has_room_for(self, seconds: float) -> bool:
        """Return whether this many seconds are left until the end of the fit."""
        return self.clock.seconds() + seconds <= 60.0 * self.minutes

    def watch(self, plan: PlannedEncoder, n_images: int) -> Callable[[int, int], None]:
        """Return a callback `(done, total)` that raises EncodingTooSlow if the encoding of `n_images` would not end in time."""
        first: list[tuple[float, int]] = []  # time and number of images after the first batch

        def on_samples(done: int, total: int) -> None:
            now = self.clock.seconds()
            if not first:
                first.append((now, done))
            began, n_before = first[0]
            if done - n_before >= TIMED_IMAGES:
                each = (now - began) / (done - n_before)
                if each * (n_images - done) > self.seconds_left():
                    raise EncodingTooSlow(each / plan.seconds(1))

        return on_samples
