"""Step plan: the number of steps of a stage, the progress of each, and how a plan becomes shorter during training."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from samekind.errors import CheckpointError
from samekind.io import atomic_write, parse_json, read_regular

NAME = "step_plan.json"
Revision = tuple[int, int]  # (steps done, steps in all from then on)


class StepPlan:
    """Number of steps of a stage. `shorten` compresses what is left of the schedules into fewer steps; no plan gets longer.

    Progress is linear in the steps between two revisions. The last step always has the progress that the last planned step
    would have had, so that learning-rate decay and ramps end where they would have ended.
    """

    def __init__(self, planned: int) -> None:
        self.planned = planned
        self.revisions: list[Revision] = []

    @property
    def steps(self) -> int:
        """Return the number of steps in all."""
        return self.revisions[-1][1] if self.revisions else self.planned

    def remaining(self, start: int) -> Iterator[int]:
        """Yield the steps from `start` on; the plan may be shortened meanwhile."""
        while start < self.steps:
            yield start
            start += 1

    def progress(self, step: int) -> float:
        """Return the fraction of training done before a step, in [0, 1)."""
        return self._progress(step, len(self.revisions))

    def step_at(self, fraction: float) -> float:
        """Return the number of steps after which this fraction of training is done."""
        if not self.revisions:
            return fraction * self.planned
        known = [done - 1 for done, _ in self.revisions]
        knots = [(0.0, 0.0), *((step, self.progress(step)) for step in [*known, self.steps - 1]), (self.steps, 1.0)]
        for (step, reached), (next_step, next_reached) in pairwise(knots):
            if fraction <= next_reached and next_reached > reached:
                return step + (fraction - reached) / (next_reached - reached) * (next_step - step)
        return float(self.steps)

    def shorten(self, done: int, steps: int) -> None:
        """Plan `steps` steps in all from now on, after `done` steps; raise ValueError unless that is shorter."""
        earliest = self.revisions[-1][0] + 1 if self.revisions else 1
        if not earliest <= done < steps < self.steps:
            raise ValueError(f"a plan of {self.steps} steps cannot have {steps} from step {done} on")
        self.revisions.append((done, steps))

    def load(self, revisions: Sequence[Sequence[int]]) -> None:
        """Set the revisions; raise ValueError if they are not those of a plan of this length."""
        self.revisions = []
        for done, steps in revisions:
            self.shorten(done, steps)

    def _progress(self, step: int, n_revisions: int) -> float:
        while n_revisions and self.revisions[n_revisions - 1][0] > step:
            n_revisions -= 1
        if not n_revisions:
            return step / self.planned
        done, steps = self.revisions[n_revisions - 1]
        before, last = self._progress(done - 1, n_revisions - 1), (self.planned - 1) / self.planned
        return before + (last - before) * (step - done + 1) / (steps - done)


def load_revisions(folder: Path, planned: int) -> list[Revision]:
    """Return the revisions of a plan of `planned` steps in a checkpoint directory; none if they are of another plan."""
    plan = StepPlan(planned)
    with suppress(OSError, ValueError, KeyError, TypeError):
        saved = parse_json(read_regular(folder / NAME))
        if saved["planned"] == planned:
            plan.load([(int(done), int(steps)) for done, steps in saved["revisions"]])
            return plan.revisions
    return []


def save_revisions(folder: Path, plan: StepPlan, done: int, steps: int) -> None:
    """Write the revisions and the next one before it takes effect, so that a resumed run makes the same steps."""
    content = {"planned": plan.planned, "revisions": [*plan.revisions, (done, steps)]}
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / NAME, json.dumps(content).encode(), CheckpointError)
