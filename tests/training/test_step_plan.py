"""Plans that become shorter: progress, the end of the schedules, and the revisions in a checkpoint directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from samekind.training.schedules import Schedule
from samekind.training.step_plan import NAME, StepPlan, load_revisions, save_revisions


def shortened(*revisions: tuple[int, int]) -> StepPlan:
    plan = StepPlan(100)
    plan.load(revisions)
    return plan


def test_progress_is_linear_without_revisions() -> None:
    assert [StepPlan(7).progress(step) for step in range(7)] == [step / 7 for step in range(7)]
    assert StepPlan(7).step_at(0.3) == 0.3 * 7


def test_a_revision_changes_no_earlier_step_and_the_schedule_ends_where_it_would_have() -> None:
    plan = shortened((50, 60), (55, 57))
    progress = [plan.progress(step) for step in plan.remaining(0)]
    assert progress[:50] == [step / 100 for step in range(50)]
    assert progress[50:55] == pytest.approx([0.54, 0.59, 0.64, 0.69, 0.74])  # ten steps from 0.49 to 0.99
    assert progress[55:] == pytest.approx([0.865, 0.99])
    schedule = Schedule(decay="linear", rampdown=1.0)
    assert schedule.lr(progress[-1]) == pytest.approx(schedule.lr(99 / 100))


def test_a_single_step_that_is_left_has_the_end_of_the_schedule() -> None:
    assert shortened((50, 51)).progress(50) == 0.99


@pytest.mark.parametrize("fraction", [0.0, 0.2, 0.49, 0.6, 0.74, 0.9, 0.99])
def test_the_step_at_a_fraction_is_the_inverse_of_the_progress(fraction: float) -> None:
    plan = shortened((50, 60), (55, 57))
    at = plan.step_at(fraction)
    low, high = int(at), min(int(at) + 1, 56)
    between = plan.progress(low) + (at - low) * (plan.progress(high) - plan.progress(low))
    assert between == pytest.approx(fraction)
    assert plan.step_at(1.0) == 57


@pytest.mark.parametrize("revision", [(50, 100), (50, 120), (50, 50), (0, 50)])
def test_a_plan_never_becomes_longer_nor_ends_without_a_further_step(revision: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="a plan of 100 steps cannot be shortened to"):
        StepPlan(100).shorten(*revision)


def test_revisions_are_read_for_the_same_plan_only(tmp_path: Path) -> None:
    save_revisions(tmp_path, shortened((50, 60)), 55, 57)
    assert load_revisions(tmp_path, 100) == [(50, 60), (55, 57)]
    assert load_revisions(tmp_path, 200) == []
    for damaged in ("[", '{"planned": 100, "revisions": [[50, 60], [40, 50]]}', '{"planned": 100, "revisions": [[5]]}'):
        (tmp_path / NAME).write_text(damaged)
        assert load_revisions(tmp_path, 100) == []
