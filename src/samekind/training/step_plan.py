"""Step plan: the number of steps of a training stage, the progress at each step, and how a running stage is shortened."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from samekind.errors import CheckpointError
from samekind.files.io import atomic_write, parse_json, read_regular

NAME = "step_plan.json"
Revision = tuple[int, int]  # (number of steps done when the plan changed, new number of steps of the stage)


class StepPlan:
    """Number of steps of one training stage, which `shorten` can reduce while the stage runs.

    Learning rate and ramps depend on the progress, which goes from 0 to 1 over the stage. After the plan is shortened, the
    progress grows faster, by the same amount in each step. The last step has the progress that the last planned step would have
    had, so that a shortened stage ends with the same learning rate as a full one. A plan never gets longer.
    """

    def __init__(self, planned: int) -> None:
        self.planned = planned
        self.revisions: list[Revision] = []

    @property
    def steps(self) -> int:
        """Return the number of steps of the stage, by the plan as it is now."""
        return self.revisions[-1][1] if self.revisions else self.planned

    def remaining(self, start: int) -> Iterator[int]:
        """Yield the numbers of the steps from `start` to the last step; the plan may be shortened during the iteration."""
        while start < self.steps:
            yield start
            start += 1

    def progress(self, step: int) -> float:
        """Return the progress at the beginning of a step: the fraction of the stage that is done, in [0, 1)."""
        return self._progress(step, len(self.revisions))

    def step_at(self, fraction: float) -> float:
        """Return the number of steps, possibly fractional, after which the progress reaches `fraction`."""
        if not self.revisions:
            return fraction * self.planned
        known = [done - 1 for done, _ in self.revisions]
        knots = [(0.0, 0.0), *((step, self.progress(step)) for step in [*known, self.steps - 1]), (self.steps, 1.0)]
        for (step, reached), (next_step, next_reached) in pairwise(knots):
            if fraction <= next_reached and next_reached > reached:
                return step + (fraction - reached) / (next_reached - reached) * (next_step - step)
        return float(self.steps)

    def shorten(self, done: int, steps: int) -> None:
        """Reduce the stage to `steps` steps; `done` of them are already done.

        ValueError is raised unless done < steps and `steps` is below the present number of steps.
        """
        earliest = self.revisions[-1][0] + 1 if self.revisions else 1
        if not earliest <= done < steps < self.steps:
            raise ValueError(f"a plan of {self.steps} steps cannot be shortened to {steps} steps at step {done}")
        self.revisions.append((done, steps))

    def load(self, revisions: Sequence[Sequence[int]]) -> None:
        """Replace the revisions of this plan by saved ones; raise ValueError if they do not shorten a plan of this length."""
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
    """Return the revisions saved in a checkpoint directory; an empty list if they belong to a plan of another length."""
    plan = StepPlan(planned)
    with suppress(OSError, ValueError, KeyError, TypeError):
        saved = parse_json(read_regular(folder / NAME))
        if saved["planned"] == planned:
            plan.load([(int(done), int(steps)) for done, steps in saved["revisions"]])
            return plan.revisions
    return []


def save_revisions(folder: Path, plan: StepPlan, done: int, steps: int) -> None:
    """Write the revisions of the plan together with the next one, (done, steps).

    This is called before the next revision takes effect, so that a run that resumes makes the same steps.
    """
    content = {"planned": plan.planned, "revisions": [*plan.revisions, (done, steps)]}
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / NAME, json.dumps(content).encode(), CheckpointError)
