"""Time limit: watches the clock during training, and reduces the number of steps if they would take too long."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from samekind.errors import CheckpointError, CheckpointWarning
from samekind.training.engine import Engine
from samekind.training.step_plan import Revision, StepPlan, load_revisions, save_revisions

CHECKS = 50  # the speed is checked again after each fiftieth of the time left
TOLERANCE = 1.02  # the number of steps is reduced if the remaining ones need more than this multiple of the time left


class TimeLimit:
    """Countdown of the seconds that all training stages of a run may take together, over all sessions of the run."""

    def __init__(self, seconds: float, now: Callable[[], float]) -> None:
        self._now = now
        self._end = now() + seconds

    def left(self) -> float:
        """Return the seconds left; negative once the limit has passed."""
        return self._end - self._now()

    def spend(self, seconds: float) -> None:
        """Subtract the training seconds of earlier sessions of the run."""
        self._end -= seconds


@dataclass(frozen=True)
class StageTime:
    """Time of one stage: the time left of the limit, less the seconds reserved for later stages."""

    limit: TimeLimit
    reserved: float = 0.0

    def left(self) -> float:
        """Return the seconds left for this stage."""
        return self.limit.left() - self.reserved


class PlanShortener:
    """Shortens the plan of a stage whenever its remaining steps would take longer than the time left.

    At least one step is made after the plan is shortened, because the learning-rate decay ends in that step. So a stage can
    exceed its time by the step in progress; and if one step suddenly takes all the time left, by one more. With several
    processes, process 0 decides.

    A run that resumes first repeats the changes of plan that were saved, at the same steps, and only then measures its speed.
    """

    def __init__(self, plan: StepPlan, time: StageTime | None, engine: Engine, folder: Path | None, done: int) -> None:
        self._plan, self._time, self._engine, self._folder = plan, time, engine, folder
        self._recorded: dict[int, int] = {}
        self._saved: list[Revision] = []
        if time is None:
            return
        if folder is not None and engine.rank == 0:
            recorded = load_revisions(folder, plan.planned)
            if recorded[: len(plan.revisions)] == plan.revisions:
                self._saved = recorded
                self._recorded = {step: steps for step, steps in recorded if step > done}
        self._left = time.left()
        self._marks: list[tuple[float, int]] = []  # (seconds left, steps done) at each check of the speed
        self._assumed = 0.0  # seconds of a step according to the plan, used until the speed is measured

    def after_step(self, done: int) -> bool:
        """Shorten the plan if its steps do not fit into the time left; return whether it was shortened.

        `done` is the number of steps of the stage that are done.
        """
        if self._time is None:
            return False
        steps = self._choose(done, self._time.left()) if self._engine.rank == 0 else None
        (due,) = self._engine.any(steps is not None)
        if not due:
            return False
        steps = int(self._engine.share(str(steps).encode()))
        self._record(done, steps)
        self._plan.shorten(done, steps)
        return True

    def _choose(self, done: int, left: float) -> int | None:
        """Return the new number of steps of the stage; None to keep the plan as it is."""
        last_step, self._left = self._left - left, left
        if done + 1 >= self._plan.steps:
            return None
        if left <= last_step:
            self._recorded, self._saved = {}, []
            return done + 1
        if self._recorded:
            return self._recorded.pop(done, None)
        remaining = self._plan.steps - done
        if not self._marks:  # the first step of a session is slower than the others, so it is not measured
            self._marks, self._assumed = [(left, done)], left / remaining
            return None
        checked = self._marks[-1][0]
        if checked - left < checked / CHECKS:
            return None
        expected = self._steps_in(left, done)
        self._marks.append((left, done))
        return done + max(1, int(expected)) if remaining > max(TOLERANCE * expected, 1.0) else None

    def _steps_in(self, left: float, done: int) -> float:
        """Return how many steps are expected in the seconds left: as many as were made in an equally long time until now.

        If less time than that was measured, the planned speed is used for the rest. So a short pause early in training shortens
        the plan only a little; that matters because a plan can never be made longer again.
        """
        while len(self._marks) > 1 and self._marks[1][0] - left >= left:
            del self._marks[0]
        began, begun = self._marks[0]
        seen = began - left
        if seen >= left:
            return (done - begun) * left / seen
        return done - begun + (left - seen) / self._assumed

    def _record(self, done: int, steps: int) -> None:
        if self._folder is None or self._engine.rank != 0 or (done, steps) in self._saved:
            return
        try:
            save_revisions(self._folder, self._plan, done, steps)
        except (CheckpointError, OSError) as error:
            warnings.warn(
                f"the shorter plan of {steps} steps was not saved: {error}. A run that resumes from an earlier step may make "
                f"others. Make room in {self._folder}.",
                CheckpointWarning,
                stacklevel=4,
            )
