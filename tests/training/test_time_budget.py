"""A run planned in minutes: as many steps as fit, and the same again by its epochs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import samekind.clock
from samekind import SemiSupervisedClassifier
from samekind.data.augment.transforms import GaussianNoise, Views
from samekind.errors import SettingError
from samekind.fitting import training_run
from samekind.training import time_budget
from samekind.training.determinism import thread_count
from samekind.training.time_budget import (
    StepBudget,
    StepSeconds,
    faster_thread_count,
    load_step_budget,
    load_thread_count,
    plan_steps,
    save_step_budget,
    save_thread_count,
    time_inference,
)


@pytest.fixture
def images() -> tuple[np.ndarray, np.ndarray]:
    """Return small colour images with enough labels for a supervised warm-up."""
    rng = np.random.default_rng(0)
    y = np.arange(540) % 2
    x = rng.integers(0, 200, (540, 24, 24, 3), dtype=np.uint8) + 50 * y[:, None, None, None].astype(np.uint8)
    y[510:] = -1
    return x, y


class Machine:
    """Machine on which only the clock passes that a test turns: by `speed` seconds for each weak view of a batch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, speed: Callable[[float], float]) -> None:
        self.seconds, self.batches, self.speed = 0.0, 0, speed
        monkeypatch.setattr(samekind.clock, "perf_counter", lambda: self.seconds)

    def __call__(self, x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        self.seconds += self.speed(self.seconds)
        self.batches += 1
        return x + 0.01 * torch.randn(x.shape, generator=generator)

    def model(self, method: str = "supervised", **options: Any) -> SemiSupervisedClassifier:
        views: Views = {"labelled_only": self, "weak": self, "strong": GaussianNoise(0.1)}
        return SemiSupervisedClassifier(method, random_state=0, views=views, **options)


def vectors() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(60, 2))
    return x, np.where(np.arange(60) < 10, np.arange(60) % 2, -1)


def test_as_many_steps_as_the_minutes_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, lambda now: 0.25)
    model = machine.model(minutes=1.0).fit(*vectors())
    assert machine.batches == 10 + model.n_iter_, "steps are timed until 2.4 s have passed, 4 % of a minute"
    assert model.n_iter_ == model.cost_["planned_steps"] == 218, "95 % of what is left"
    assert machine.seconds == 57.0


@pytest.mark.parametrize("slow", [2.0, 10.0])
def test_a_fit_ends_in_time_on_a_machine_that_becomes_slower(slow: float, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, lambda now: 0.2 if now < 30.0 else 0.2 * slow)
    model = machine.model(minutes=1.0).fit(*vectors(), elapsed=10.0)
    assert 45.0 < machine.seconds <= 50.0 + 0.2 * slow, "ten seconds had passed before"
    assert model.n_iter_ == model.cost_["steps"] < model.cost_["planned_steps"]
    assert model.history_[-1]["step"] == model.n_iter_ - 1


def test_warmup_and_method_share_the_time_of_a_slower_machine(
    images: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, lambda now: 2.0 if now < 10.0 else 10.0)
    model = machine.model(minutes=2.0, batch_size=(4, 4), supervised_warmup=0.5).fit(*images)
    assert 2 < model.history_[-1]["step"] + 1 < model.n_iter_ - 2, "both stages made more than two steps"
    assert machine.seconds <= 120.0 + 2 * 20.0, "a step of `supervised` draws two views"


def test_slow_steps_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, lambda now: 10.0)
    model = machine.model(minutes=1.0).fit(*vectors())
    assert (machine.batches, model.n_iter_, machine.seconds) == (5, 4, 50.0)


def test_a_fit_that_has_no_time_left_trains_for_a_tenth_of_the_minutes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = Machine(monkeypatch, lambda now: 0.5).model(minutes=1.0).fit(*vectors(), elapsed=100.0)
    assert model.n_iter_ == 11
    assert "have passed before training, which gets 6 s more" in caplog.text


def test_the_final_inference_pass_leaves_half_of_the_minutes() -> None:
    budget = plan_steps(0.2, StepSeconds(0.5, 0.25, 0.2), spent=1.0, inference=600.0)
    assert (budget.seconds, budget.steps) == (5.0, 15)  # 0.3 s for a step
    assert budget.warmup_seconds == pytest.approx(16.67 * 0.2 * 0.5, abs=0.01)


def test_inference_is_timed_as_it_will_be_made(images: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    # on the image and its flip, which takes twice as long, and for all samples of the dataset
    seen: list[int] = []

    def recorded(forward: Callable[[Tensor], Tensor], some: Tensor, n: int, limit: float) -> float:
        assert not torch.equal(some, some.flip(-1))
        torch.testing.assert_close(forward(some), forward(some.flip(-1)))
        seen.append(n)
        return 0.0

    monkeypatch.setattr(training_run, "time_inference", recorded)
    SemiSupervisedClassifier(minutes=0.01, random_state=0, batch_size=(4, 4)).fit(*images)
    assert seen == [540]


@pytest.mark.parametrize(("limit", "sizes"), [(1.0, [16, 16]), (100.0, [16, 16, 64, 64])])
def test_slow_inference_is_timed_on_few_samples(limit: float, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    machine, passes = Machine(monkeypatch, lambda now: 0.0), []

    def forward(x: Tensor) -> Tensor:
        passes.append(len(x))
        machine.seconds += 0.1 * len(x)
        return x

    assert time_inference(forward, torch.zeros(64, 2), 1000, limit) == pytest.approx(100.0)
    assert passes == sizes


def test_the_same_model_by_its_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = vectors()
    planned = Machine(monkeypatch, lambda now: 1.0).model(minutes=0.5).fit(x, y)
    again = Machine(monkeypatch, lambda now: 1.0).model(epochs=planned.epochs_).fit(x, y)
    assert again.n_iter_ == planned.n_iter_ == planned.cost_["planned_steps"]
    np.testing.assert_array_equal(again.predict_proba(x), planned.predict_proba(x))


def test_a_resumed_run_keeps_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Machine(monkeypatch, lambda now: 1.0).model(minutes=0.5, checkpoint=tmp_path).fit(*vectors())
    machine = Machine(monkeypatch, lambda now: 0.1)  # a machine ten times as fast
    second = machine.model(minutes=0.5, checkpoint=tmp_path).fit(*vectors())
    assert (second.n_iter_, machine.batches) == (first.n_iter_, 0), "neither timed nor trained"
    np.testing.assert_array_equal(first.predict_proba(vectors()[0]), second.predict_proba(vectors()[0]))


def test_minutes_do_not_change_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    model = SemiSupervisedClassifier(minutes=0.5).fit(*vectors())
    assert model.n_iter_ == 0, "the ensemble, which makes no steps"


def test_the_step_budget_of_other_minutes_is_not_used(tmp_path: Path) -> None:
    budget = StepBudget(1.0, 500, 50.0, 10.0)
    assert load_step_budget(tmp_path, 1.0) is None
    save_step_budget(tmp_path / "run", budget)
    assert load_step_budget(tmp_path / "run", 1.0) == budget
    assert load_step_budget(tmp_path / "run", 2.0) is None
    (tmp_path / "run" / time_budget.NAME).write_text("[")
    assert load_step_budget(tmp_path / "run", 1.0) is None


@pytest.mark.parametrize(("minutes", "timed"), [(1.9, 0), (2.0, 2)])
def test_a_fit_in_few_minutes_does_not_time_its_threads(minutes: float, timed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def recorded(*_: Any, limit: float, **__: Any) -> float:
        limits.append(limit)
        return 1e6  # so slow that training makes one step

    monkeypatch.setattr(training_run, "time_step", recorded)
    x = np.random.default_rng(0).random((20, 4, 4))
    with thread_count(2):
        SemiSupervisedClassifier("supervised", minutes=minutes, random_state=0).fit(x, [0, 1, -1, -1] * 5)
    assert limits == [0.025 * 60 * minutes] * timed + [0.04 * 60 * minutes]


@pytest.mark.parametrize("given", [{"minutes": 0}, {"minutes": -1.0}, {"minutes": 1.0, "epochs": 3}])
def test_minutes_of_zero_or_less_and_minutes_with_epochs_are_refused(given: dict[str, Any]) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(SettingError, match="minutes is"):
        SemiSupervisedClassifier(**given).fit(x, np.where(np.arange(20) < 4, np.arange(20) % 2, -1))


@pytest.mark.parametrize(("one", "three", "chosen"), [(1.0, 0.5, 3), (1.0, 0.95, 1), (0.1, 1.4, 1)])
def test_more_threads_are_used_only_if_steps_are_clearly_faster_with_them(one: float, three: float, chosen: int) -> None:
    before = torch.get_num_threads()
    assert faster_thread_count(lambda: three if torch.get_num_threads() == 3 else one, 3) == chosen
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("slow", [1, 2])
def test_a_long_training_on_images_times_its_threads_and_a_resumed_one_keeps_them(
    slow: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = np.random.default_rng(0).random((40, 4, 4))
    y = np.where(np.arange(40) < 10, np.arange(40) % 2, -1)
    monkeypatch.setattr(training_run, "WORTH_TIMING", 5)
    monkeypatch.setattr(training_run, "time_step", lambda *_, **__: 2.0 if torch.get_num_threads() == slow else 1.0)

    def fitted() -> SemiSupervisedClassifier:
        with thread_count(2):
            return SemiSupervisedClassifier("supervised", epochs=5, random_state=0, checkpoint=tmp_path).fit(images, y)

    faster = 3 - slow
    first = fitted()
    assert (first.n_iter_, first.cost_["threads"]) == (5, faster)
    monkeypatch.setattr(training_run, "time_step", lambda *_, **__: 1.0)
    again = fitted()
    assert again.cost_["threads"] == load_thread_count(tmp_path) == faster
    np.testing.assert_array_equal(again.predict_proba(images), first.predict_proba(images))


def test_a_short_training_is_not_worth_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_run, "time_step", lambda *_, **__: pytest.fail("timed"))
    images = np.random.default_rng(0).random((20, 4, 4))
    with thread_count(2):
        model = SemiSupervisedClassifier("supervised", epochs=2, random_state=0).fit(images, [0, 1, -1, -1] * 5)
    assert model.cost_["threads"] == 2


def test_a_damaged_thread_count_is_not_used(tmp_path: Path) -> None:
    assert load_thread_count(tmp_path) is None
    save_thread_count(tmp_path, 3)
    assert load_thread_count(tmp_path) == 3
    (tmp_path / time_budget.THREADS_NAME).write_text('{"threads": -1}')
    assert load_thread_count(tmp_path) is None
