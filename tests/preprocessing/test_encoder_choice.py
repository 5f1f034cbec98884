"""What encoder="auto" chooses: by the number of images, their size, the time, and held-out labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from torch import Tensor, nn

from samekind import SemiSupervisedClassifier
from samekind.clock import Clock
from samekind.data.resize import ReducedImages
from samekind.fitting.fit_options import FitOptions
from samekind.nets.encoders.names import ENCODERS
from samekind.nets.encoders.plan import PLANS, find_plan, plan_encoder
from samekind.preprocessing.encoder_choice import choose_encoder, encoder_without_labels
from samekind.preprocessing.encoding_limit import EncodingLimit
from samekind.preprocessing.preprocessor import Preprocessor

Array = npt.NDArray[Any]


def striped(n: int = 60, side: int = 32, channels: int = 3) -> tuple[Array, Array, Array]:
    """Return images that are bright in the upper or in the lower half, their classes, and labels for 5 of each class."""
    rng = np.random.default_rng(0)
    classes = np.arange(n) % 2
    images = rng.integers(0, 80, (n, side, side, channels))
    images[classes == 0, : side // 2] += 150
    images[classes == 1, side // 2 :] += 150
    return images.astype(np.uint8), classes, np.where(np.arange(n) < 10, classes, -1)


def no_features(name: str, images: Array) -> Any:
    return np.random.default_rng(1).normal(size=(len(images), 8)).astype(np.float32)


def class_features(name: str, images: Array) -> Any:
    halves = images.shape[1] // 2
    means = [images[:, :halves].mean(axis=(1, 2, 3)), images[:, halves:].mean(axis=(1, 2, 3))]
    return np.stack(means, axis=1).astype(np.float32)


def confused(n: int = 60, channels: int = 3) -> tuple[Array, Array]:
    """Return images of noise, which say nothing about their labels."""
    return striped(n, channels=channels)[0][np.random.default_rng(2).permutation(n)], striped(n)[2]


# ---------------------------------------------------------------- the plan


def test_more_images_get_a_faster_encoder() -> None:
    costs = [plan.gflop for n in (100, 3000, 10_000, 100_000) if (plan := plan_encoder(n))]
    assert costs == sorted(costs, reverse=True) and len(costs) == 4 and costs[0] > costs[-1]


def test_encoding_takes_at_most_half_of_the_minutes() -> None:
    assert plan_encoder(1000, 300, minutes=0.01) is None
    plan = plan_encoder(1000, 300, minutes=0.5)
    assert plan is not None and plan.seconds(1000) <= 15.0 and plan != PLANS[0]


def test_a_small_image_is_not_enlarged_without_limit() -> None:
    plan = plan_encoder(100, 24)
    assert plan is not None and plan.side <= 7 * 24


# ---------------------------------------------------------------- the choice


def test_held_out_labels_choose_the_encoder_and_its_features_are_kept() -> None:
    X, y = confused()
    features = np.stack([striped()[1], 1 - striped()[1]], axis=1).astype(np.float32)
    choice = choose_encoder(X, y, 2, None, lambda name, images: features)
    assert choice.encoder == PLANS[1].name and choice.features is features
    assert "60 images of 32 x 32" in str(choice) and "held-out labels: 0 % wrong" in str(choice)


@pytest.mark.parametrize(("side", "reduced"), [(32, None), (128, 64)])
def test_a_net_is_trained_from_scratch_if_pixels_predict_held_out_labels_better(side: int, reduced: int | None) -> None:
    X, _, y = striped(side=side)
    choice = choose_encoder(X, y, 2, None, no_features)
    assert (choice.encoder, choice.side) == (None, reduced)
    assert "none, a net is trained from scratch" in str(choice) and "0 % with features of the pixels" in str(choice)


def test_an_encoder_of_images_in_grey_must_be_far_better_than_their_pixels() -> None:
    X, _, y = striped(channels=1)
    assert choose_encoder(X, y, 2, None, no_features).encoder is None
    X, y = confused(channels=1)
    features = np.stack([striped()[1], 1 - striped()[1]], axis=1).astype(np.float32)
    assert choose_encoder(X, y, 2, None, lambda name, images: features).encoder is not None


def test_one_label_of_each_class_is_too_few_to_test_an_encoder() -> None:
    X, _, y = striped()
    y[2:] = -1
    assert "too few labels to test it" in choose_encoder(X, y, 2, None, no_features).reason
    assert choose_encoder(X[..., :1], y, 2, None, no_features).encoder is None


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        (np.zeros((4, 20, 30, 3), np.uint8), "20 x 30 are too small"),
        (np.zeros((4, 64)), "no images"),
        (np.zeros((4, 32, 32, 4), np.uint8), "no images in grey or colour"),
        (np.full((4, 32, 32, 3), 200.0), "neither bytes nor between 0 and 1"),
    ],
)
def test_samples_that_suit_no_encoder_get_none(images: Array, reason: str) -> None:
    choice = choose_encoder(images, np.array([0, 0, 1, 1]), 2, None, no_features)
    assert choice.encoder is None and reason in choice.reason
    assert encoder_without_labels(images) is None


def test_of_many_images_only_some_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samekind.preprocessing.encoder_choice.ALL_SAMPLES", 50)
    monkeypatch.setattr("samekind.preprocessing.encoder_choice.TRIAL_SAMPLES", 30)
    tried: list[int] = []
    X, _, y = striped()

    def encode(name: str, images: Array) -> Any:
        tried.append(len(images))
        return class_features(name, images)

    choice = choose_encoder(X, y, 2, None, encode)
    assert tried == [30] and choice.features is None


def test_an_unlabelled_project_of_colour_images_has_an_encoder_and_one_in_grey_has_none() -> None:
    assert encoder_without_labels(striped()[0]) == PLANS[1].name
    assert encoder_without_labels(striped(channels=1)[0]) is None


class Blind(nn.Module):
    """Encoder whose features say nothing about the image."""

    def __init__(self, side: int | None = None) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(1, 2, 3))[:, None].mul(1e6).frac().expand(-1, 2)


# ---------------------------------------------------------------- in a fit


@pytest.mark.parametrize(
    "options", [{"method": "mean_teacher"}, {"net": "compact"}, {"views": "shift"}, {"epochs": 3}, {"preset": "paper"}]
)
def test_options_of_a_net_for_images_train_from_scratch(options: dict[str, Any]) -> None:
    assert FitOptions(**{"method": "auto", "encoder": "auto", **options}).resolve_encoder().encoder is None


@pytest.mark.parametrize("options", [{"minutes": 3}, {"epochs": "quick"}, {"method": "lgc"}, {}])
def test_a_time_limit_keeps_the_encoder_and_its_ensemble(options: dict[str, Any]) -> None:
    resolved = FitOptions(**{"method": "auto", "encoder": "auto", **options}).resolve_encoder()
    assert resolved.encoder == "auto"
    assert resolved.resolve((8,)).method == options.get("method", "ensemble")


def test_a_fit_chooses_an_encoder_and_reports_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    X, classes, y = striped(24, side=24)
    model = SemiSupervisedClassifier(verbose=True).fit(X, y)
    assert model.model_.encoder is not None and "held-out labels" in capsys.readouterr().err
    assert (model.transduction_ == classes).mean() > 0.8
    model.save(tmp_path)
    np.testing.assert_allclose(SemiSupervisedClassifier.load(tmp_path).predict_proba(X), model.predict_proba(X), atol=1e-6)


def test_a_net_from_scratch_gets_reduced_images_and_is_saved_with_their_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in list(ENCODERS):
        monkeypatch.setitem(ENCODERS, name, Blind)
    # the encoder is tested, however busy this machine is
    monkeypatch.setattr(EncodingLimit, "is_half_over", lambda limit: False)
    monkeypatch.setattr(EncodingLimit, "has_room_for", lambda limit, seconds: True)
    X, _, y = striped(40, side=112)
    model = SemiSupervisedClassifier(minutes=0.03, random_state=0).fit(X, y)
    assert model.model_.encoder is None and model.model_.shape == (3, 64, 64)
    model.save(tmp_path)
    again = SemiSupervisedClassifier.load(tmp_path)
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=1e-6)


def test_images_are_reduced_when_they_are_read() -> None:
    X = striped(6, side=128)[0]
    samples = Preprocessor((3, 128, 128), True, side=64).samples(X)
    assert samples[:2].shape == (2, 64, 64, 3)
    np.testing.assert_allclose(samples[:6].mean(), X.mean(), rtol=0.01)
    assert ReducedImages(X, 200)[:3] is not None and ReducedImages(X, 200).in_memory().shape == X.shape


# ---------------------------------------------------------------- a busy machine


class SlowClock(Clock):
    """Clock that stands still except where a test moves it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def seconds(self) -> float:
        return self.now


def timed(clock: SlowClock, limit: EncodingLimit, n: int, seconds: Callable[[str], float], tried: list[str]) -> Any:
    """Return a function that encodes 32 images in `seconds(name)`."""

    def encode(name: str, images: Array) -> Any:
        tried.append(name)
        watch = limit.watch(find_plan(name), n)
        for done in range(32, n + 32, 32):
            clock.now += seconds(name)
            watch(min(done, n), n)
        return class_features(name, images)

    return encode


@pytest.mark.parametrize("slowdown", [1.0, 4.0, 10.0])
def test_on_a_busy_machine_a_faster_encoder_keeps_the_minutes(slowdown: float) -> None:
    n, minutes = 960, 1.0
    X, y = np.tile(striped(side=64)[0], (16, 1, 1, 1)), np.concatenate([striped()[2], np.full(900, -1)])
    clock, tried = SlowClock(), list[str]()
    limit = EncodingLimit(clock, minutes)
    encode = timed(clock, limit, n, lambda name: slowdown * find_plan(name).seconds(32), tried)
    choice = choose_encoder(X, y, 2, minutes, encode, limit)
    planned = plan_encoder(n, 64, minutes)
    assert planned is not None and tried[0] == planned.name and choice.encoder == tried[-1]
    assert (len(tried) == 1) == (slowdown == 1.0)
    assert clock.now <= 30.0


def test_a_fast_encoder_is_used_even_if_reading_the_images_took_the_time() -> None:
    n = 960
    X, y = np.tile(striped(side=64)[0], (16, 1, 1, 1)), np.concatenate([striped()[2], np.full(900, -1)])
    clock, tried = SlowClock(), list[str]()
    clock.now = 50.0
    limit = EncodingLimit(clock, 1.0)
    choice = choose_encoder(X, y, 2, 1.0, timed(clock, limit, n, lambda name: 4 * find_plan(name).seconds(32), tried), limit)
    assert choice.encoder == PLANS[-1].name and "too little time to test it" in choice.reason
    assert clock.now <= 75.0


def test_without_any_time_left_a_net_is_trained_from_scratch() -> None:
    n = 960
    X, y = np.tile(striped(side=64)[0], (16, 1, 1, 1)), np.concatenate([striped()[2], np.full(900, -1)])
    clock, tried = SlowClock(), list[str]()
    limit = EncodingLimit(clock, 1.0)
    choice = choose_encoder(X, y, 2, 1.0, timed(clock, limit, n, lambda name: 40.0, tried), limit)
    assert choice.encoder is None and "no encoder is fast enough" in choice.reason and len(tried) == 1


def test_an_encoder_is_not_tested_when_its_encoding_has_used_its_time() -> None:
    X, _, y = striped()
    clock = SlowClock()
    limit = EncodingLimit(clock, 1.0)

    def encode(name: str, images: Array) -> Any:
        clock.now = 31.0
        return no_features(name, images)

    choice = choose_encoder(X, y, 2, 1.0, encode, limit)
    assert choice.encoder is not None and "too little time to test it" in choice.reason
