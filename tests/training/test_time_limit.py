"""Training within a time limit, on a machine whose speed is given by a clock that the test turns."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from tests.training import tiny
from torch import Tensor

from samekind.data.augment.transforms import Views
from samekind.errors import CheckpointWarning
from samekind.training.engine import LocalEngine
from samekind.training.step_plan import StepPlan, load_revisions
from samekind.training.time_limit import PlanShortener, StageTime, TimeLimit
from samekind.training.trainer import TrainResult, train

Speed = Callable[[int, float], float]  # (step, seconds passed) -> seconds of the step


@dataclass
class Simulated:
    """Stage of 1,000 planned steps in 100 s on a machine of some speed."""

    speed: Speed
    planned: int = 1000
    seconds: float = 0.0
    starts: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    def run(self) -> StepPlan:
        plan = StepPlan(self.planned)
        time = StageTime(TimeLimit(100.0, lambda: self.seconds))
        shortener = PlanShortener(plan, time, LocalEngine(), None, 0)
        for step in plan.remaining(0):
            self.starts.append(self.seconds)
            self.seconds += self.speed(step, self.seconds)
            shortener.after_step(step + 1)
            self.lengths.append(plan.steps)
        return plan


@pytest.mark.parametrize("factor", [2.0, 10.0, 40.0])
@pytest.mark.parametrize("since", [0.0, 10.0, 50.0, 90.0])
def test_a_stage_ends_in_time_on_a_machine_that_becomes_slower(since: float, factor: float) -> None:
    machine = Simulated(lambda step, now: 0.1 if now < since else 0.1 * factor)
    plan = machine.run()
    assert 90.0 < machine.seconds <= 100.0 + 0.1 * factor
    assert plan.progress(plan.steps - 1) == pytest.approx(0.999)


def test_a_steady_machine_makes_the_planned_steps() -> None:
    assert Simulated(lambda step, now: 0.1).run().revisions == []
    assert Simulated(lambda step, now: 0.05).run().revisions == []  # a faster one does not make more


def test_a_machine_of_changing_speed_makes_nearly_the_planned_steps() -> None:
    luck = random.Random(0)
    assert Simulated(lambda step, now: luck.choice([0.05, 0.15])).run().steps >= 950
    assert Simulated(lambda step, now: 0.1 + 5.0 * (step == 300)).run().steps >= 890  # one pause of 5 s


def test_no_revision_makes_a_plan_longer() -> None:
    machine = Simulated(lambda step, now: 1.0 if 20.0 < now < 40.0 or now > 90.0 else 0.1)
    machine.run()
    assert machine.lengths == sorted(machine.lengths, reverse=True)
    assert len(set(machine.lengths)) > 2


def test_steps_longer_than_the_time_left_end_a_stage_with_one_last_step() -> None:
    machine = Simulated(lambda step, now: 60.0)
    assert machine.run().revisions == [(1, 2)]


# ---------------------------------------------------------------- a run


class Machine:
    """Clock that advances by the seconds of a step whenever a batch is drawn; stops the run at a step, if asked to."""

    def __init__(self, speed: Speed, stop_at: int | None = None) -> None:
        self.seconds, self.drawn, self.speed, self.stop_at = 0.0, 0, speed, stop_at

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        if self.drawn == self.stop_at:
            raise KeyboardInterrupt
        self.seconds += self.speed(self.drawn, self.seconds)
        self.drawn += 1
        return x + 0.1 * torch.randn(x.shape, generator=generator)

    def train(self, folder: Path | None, *, save_every: float = 0.0, method: str = "supervised") -> TrainResult:
        limit = TimeLimit(40.0, lambda: self.seconds)
        config = replace(tiny.plan(folder, save_every=save_every), time=StageTime(limit))
        views: Views = {**tiny.views(), "labelled_only": self, "weak": self}
        return train(tiny.method(method), tiny.dataset(), views, config)


def slow_from_20(step: int, now: float) -> float:
    return 1.0 if now < 20.0 else 5.0


def test_a_run_ends_in_time_with_its_shorter_plan() -> None:
    machine = Machine(slow_from_20)
    result = machine.train(None)
    assert result.cost["steps"] == machine.drawn < tiny.STEPS
    assert result.history[-1]["step"] == machine.drawn - 1
    assert machine.seconds <= 40.0 + 5.0


@pytest.mark.parametrize("save_every", [0.0, 1e9])  # resumed from a checkpoint, or replayed from the first step
def test_a_run_killed_after_a_revision_resumes_to_the_same_bits(tmp_path: Path, save_every: float) -> None:
    whole = Machine(slow_from_20).train(tmp_path / "whole")
    recorded = load_revisions(tmp_path / "whole", tiny.STEPS)
    assert len(recorded) > 1
    with pytest.raises(KeyboardInterrupt):
        Machine(slow_from_20, stop_at=recorded[-1][0]).train(tmp_path / "killed", save_every=save_every)
    assert load_revisions(tmp_path / "killed", tiny.STEPS) == recorded
    resumed = Machine(lambda step, now: 0.1).train(tmp_path / "killed", save_every=save_every)  # now the machine is fast
    assert resumed.cost["steps"] == whole.cost["steps"]
    assert tiny.digest(resumed.method.state_dict()) == tiny.digest(whole.method.state_dict())
    assert [record["step"] for record in resumed.history] == [record["step"] for record in whole.history]


def test_a_resumed_run_may_become_shorter_still(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        Machine(slow_from_20, stop_at=21).train(tmp_path)
    before = load_revisions(tmp_path, tiny.STEPS)
    machine = Machine(lambda step, now: 15.0)
    steps = machine.train(tmp_path).cost["steps"]
    assert before and steps == 21 + machine.drawn < before[-1][1]
    assert machine.seconds <= 40.0 + 15.0


def test_a_finished_run_with_a_shorter_plan_is_not_repeated(tmp_path: Path) -> None:
    whole = Machine(slow_from_20).train(tmp_path)
    again = (machine := Machine(slow_from_20)).train(tmp_path)
    assert (machine.drawn, again.cost) == (0, whole.cost)


def test_a_revision_that_cannot_be_saved_takes_effect_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "step_plan.json").mkdir()
    with pytest.warns(CheckpointWarning, match="the shorter plan of .* steps was not saved"):
        assert Machine(slow_from_20).train(tmp_path).cost["steps"] < tiny.STEPS


# ---------------------------------------------------------------- methods


def test_methods_move_their_own_numbers_of_steps_with_the_plan() -> None:
    plan = StepPlan(tiny.STEPS)
    plan.shorten(4, 22)  # a tenth of the training is done; the rest becomes half as long
    mean_teacher, lpdssl = tiny.method("mean_teacher"), tiny.method("lpdssl+mean_teacher")
    for method in (mean_teacher, lpdssl):
        method.replan(plan.step_at)
    for schedule in (mean_teacher.ema_schedule, lpdssl.base.ema_schedule):
        assert schedule.rampup_steps == plan.step_at(mean_teacher.config.rampup)
    assert lpdssl.propagated.first_step == math.ceil(plan.step_at(lpdssl.config.start)) < tiny.STEPS * lpdssl.config.start


def test_fast_swa_averages_the_weights_of_the_last_step_of_a_shorter_plan() -> None:
    plan, method = StepPlan(tiny.STEPS), tiny.method("mean_teacher+fast_swa")
    for _ in range(4):
        method.after_step()
    plan.shorten(4, 6)
    method.replan(plan.step_at)
    method.after_step()
    before = int(method.n_averaged)
    method.after_step()
    assert int(method.n_averaged) == before + 1
