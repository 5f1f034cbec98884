"""A run planned in minutes: as many steps as fit, and the same again by its epochs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from samekind import SemiSupervisedClassifier, fitting
from samekind.errors import SettingError
from samekind.training import time_budget
from samekind.training.determinism import thread_count
from samekind.training.time_budget import (
    TIMED,
    WARM,
    faster_thread_count,
    load_step_budget,
    load_thread_count,
    save_step_budget,
    save_thread_count,
)


@pytest.fixture
def images() -> tuple[np.ndarray, np.ndarray]:
    """Return small colour images with enough labels for a supervised warm-up."""
    rng = np.random.default_rng(0)
    y = np.arange(540) % 2
    x = rng.integers(0, 200, (540, 24, 24, 3), dtype=np.uint8) + 50 * y[:, None, None, None].astype(np.uint8)
    y[510:] = -1
    return x, y


def clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[float]:
    """Replace the clock by one that advances by `seconds` at each reading; return the readings."""
    readings = [0.0]

    def now() -> float:
        readings.append(readings[-1] + seconds)
        return readings[-1]

    monkeypatch.setattr(time_budget, "perf_counter", now)
    return readings


def test_as_many_steps_as_the_minutes_hold(images: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = images
    readings = clock(monkeypatch, 2.0)
    model = SemiSupervisedClassifier(minutes=2.5, random_state=0, batch_size=(4, 4)).fit(x, y)
    assert len(readings) - 1 == 2 * (WARM + TIMED) + 4, "steps of both stages, an inference pass, and the whole"
    assert readings[-1] - readings[1] == 66.0
    assert model.n_iter_ == 39, "150 seconds without those and 4.2 for inference on 540 samples, 2 for each step"
    assert model.epochs_ == 39 * 4 / len(x)


def test_the_final_inference_pass_leaves_half_of_the_minutes(
    images: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock(monkeypatch, 0.3)
    monkeypatch.setattr(fitting, "time_inference", lambda *_: 600.0)
    assert SemiSupervisedClassifier(minutes=0.2, random_state=0, batch_size=(4, 4)).fit(*images).n_iter_ == 20


def test_inference_is_timed_as_it_will_be_made(images: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    # on the image and its flip, which takes twice as long, and for all samples of the dataset
    seen: list[int] = []

    def recorded(forward: Callable[[Tensor], Tensor], some: Tensor, n: int) -> float:
        assert not torch.equal(some, some.flip(-1))
        torch.testing.assert_close(forward(some), forward(some.flip(-1)))
        seen.append(n)
        return 0.0

    monkeypatch.setattr(fitting, "time_inference", recorded)
    SemiSupervisedClassifier(minutes=0.01, random_state=0, batch_size=(4, 4)).fit(*images)
    assert seen == [540]


def test_the_same_model_by_its_epochs(images: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = images
    clock(monkeypatch, 3.0)
    planned = SemiSupervisedClassifier(minutes=0.5, random_state=0, batch_size=(4, 4)).fit(x, y)
    again = SemiSupervisedClassifier(epochs=planned.epochs_, random_state=0, batch_size=(4, 4)).fit(x, y)
    assert again.n_iter_ == planned.n_iter_ == 5
    np.testing.assert_array_equal(again.predict_proba(x), planned.predict_proba(x))


def test_a_resumed_run_keeps_its_number_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    y = np.where(np.arange(60) < 10, np.arange(60) % 2, -1)

    def model() -> SemiSupervisedClassifier:
        return SemiSupervisedClassifier("mean_teacher", minutes=0.1, random_state=0, checkpoint=tmp_path)

    clock(monkeypatch, 1.0)
    first = model().fit(x, y)
    readings = clock(monkeypatch, 0.1)  # a machine ten times as fast
    second = model().fit(x, y)
    assert (first.n_iter_, second.n_iter_, len(readings)) == (3, 3, 2), "the clock was started, and not asked again"
    np.testing.assert_array_equal(first.predict_proba(x), second.predict_proba(x))


def test_the_step_budget_of_other_minutes_is_not_used(tmp_path: Path) -> None:
    assert load_step_budget(tmp_path, 1.0) is None
    save_step_budget(tmp_path / "run", 1.0, 500)
    assert load_step_budget(tmp_path / "run", 1.0) == 500
    assert load_step_budget(tmp_path / "run", 2.0) is None
    (tmp_path / "run" / time_budget.NAME).write_text("[")
    assert load_step_budget(tmp_path / "run", 1.0) is None


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
    monkeypatch.setattr(fitting, "WORTH_TIMING", 5)
    monkeypatch.setattr(fitting, "time_step", lambda *_, **__: 2.0 if torch.get_num_threads() == slow else 1.0)

    def fitted() -> SemiSupervisedClassifier:
        with thread_count(2):
            return SemiSupervisedClassifier("supervised", epochs=5, random_state=0, checkpoint=tmp_path).fit(images, y)

    faster = 3 - slow
    first = fitted()
    assert (first.n_iter_, first.cost_["threads"]) == (5, faster)
    monkeypatch.setattr(fitting, "time_step", lambda *_, **__: 1.0)
    again = fitted()
    assert again.cost_["threads"] == load_thread_count(tmp_path) == faster
    np.testing.assert_array_equal(again.predict_proba(images), first.predict_proba(images))


def test_a_short_training_is_not_worth_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "time_step", lambda *_, **__: pytest.fail("timed"))
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
