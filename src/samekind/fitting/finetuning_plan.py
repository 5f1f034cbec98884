"""Plan of a fine-tuning: which blocks are trained, on how many strong views, for how many steps, and until when."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from samekind.clock import Clock
from samekind.nets.encoders.efficientnet import EfficientNetLite

Blocks = Literal["last", "all"]
MOST_VIEWS = 4  # stored strong views of each image
MOST_BYTES = 3 * 2**30  # of stored maps; for more images there are fewer views
VIEWS_PART = 0.4  # part of the time that is left for computing stored views
LEAST_VIEWS = 2  # with less time than for these views, finetune="auto" does not fine-tune
FITS, FIT_SECONDS_PER_SAMPLE = 7, 0.001  # fits of the ensemble during a fine-tuning, and their time on a slow core
STEPS, REFERENCE_SAMPLES = 150, 2000  # steps of a round for this many samples; the number grows with the square root
LEAST_STEPS, MOST_STEPS = 60, 600
END_PART = 0.9  # part of the time limit after which the features of the fine-tuned encoder are computed; the last fit follows
WHOLE_PASS = 1.3  # time of the whole encoder over that of its first blocks


@dataclass(frozen=True)
class FinetuningPlan:
    """Blocks to train, steps of each of the two rounds, and when the rounds must end, in minutes since the fit began."""

    blocks: Blocks
    n_trained: int
    n_blocks: int
    steps: int
    ends_at: float | None = None

    def end_of_round(self, number: int, clock: Clock) -> float | None:
        """Return the minutes since the fit began at which round 1 or 2 must end: round 1 has half of the time that is left."""
        if self.ends_at is None or number == 2:
            return self.ends_at
        now = clock.seconds() / 60.0
        return now + max(0.0, self.ends_at - now) / 2

    def __str__(self) -> str:
        part = f"last {self.n_trained} of {self.n_blocks} blocks" if self.blocks == "last" else "all blocks"
        return f"{part}, at most 2 x {self.steps} steps"


def affordable_views(n_samples: int, bytes_per_sample: int, seconds_per_image: float, seconds_left: float | None) -> int:
    """Return how many strong views of each image can be stored and computed, at most MOST_VIEWS; 0 if there is no time.

    `seconds_per_image` is the time to compute the maps of one image; the maps of the images themselves are needed too.
    """
    stored = max(1, MOST_BYTES // (n_samples * bytes_per_sample) - 1)
    if seconds_left is None:
        return min(MOST_VIEWS, stored)
    left = seconds_left - (FITS * FIT_SECONDS_PER_SAMPLE + WHOLE_PASS * seconds_per_image) * n_samples
    in_time = int(VIEWS_PART * max(0.0, left) / (seconds_per_image * n_samples)) - 1
    return max(0, min(MOST_VIEWS, stored, in_time))


def views_end_at(began: float, rounds_end: float) -> float:
    """Return the second after which no further view is computed: half of the time until the rounds must end is then over."""
    return began + max(0.0, rounds_end - began) / 2


def rounds_end_at(minutes: float | None, n_samples: int, seconds_per_image: float) -> float | None:
    """Return the minutes since the fit began at which the rounds must end, so that a pass over all images is still possible."""
    return None if minutes is None else END_PART * minutes - WHOLE_PASS * seconds_per_image * n_samples / 60.0


def plan_finetuning(
    encoder: EfficientNetLite, blocks: Blocks, n_frozen: int, n_samples: int, ends_at: float | None
) -> FinetuningPlan:
    """Return the plan for this many samples."""
    steps = round(STEPS * math.sqrt(n_samples / REFERENCE_SAMPLES))
    n_blocks = len(encoder.blocks)
    steps = min(MOST_STEPS, max(LEAST_STEPS, steps))
    return FinetuningPlan(blocks, n_blocks - n_frozen, n_blocks, steps, ends_at)
