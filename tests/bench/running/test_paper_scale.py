"""Training of presets, on a network with few channels and images of 16 x 16 pixels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from samekind.bench.presets.lookup import find_preset
from samekind.bench.presets.paper_preset import PaperPreset
from samekind.bench.running.paper_scale import (
    PaperRunOptions,
    build_views,
    count_step_flops,
    predict_classes,
    prepare_run,
    train_preset,
    train_split,
)
from samekind.data.augment.normalize import NormalizePerImage
from samekind.data.hub.loaders import BenchmarkData
from samekind.data.splits import draw_split
from samekind.errors import DataError, SettingError
from samekind.evaluation.metrics import error_rate
from samekind.nets.conv13 import WeightNormUnit
from samekind.nets.net_cost import count_parameters

SMALL = PaperRunOptions(steps=2, width=1 / 32)
N = 240
GENERATOR = torch.Generator().manual_seed(0)


def images(n: int, seed: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return noisy images with a different brightness for each of ten classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 10
    x = np.clip(20 * y[:, None, None, None] + rng.normal(30, 10, (n, 16, 16, 3)), 0, 255).astype(np.uint8)
    return x, y


@pytest.fixture(scope="module")
def data() -> BenchmarkData:
    x, y = images(N, 0)
    x_test, y_test = images(60, 1)
    return BenchmarkData("toy", x, y, x_test, y_test, tuple("0123456789"))


def small(name: str, **changes: object) -> PaperPreset:
    return replace(find_preset(name), labels=20, batch_labelled=4, batch_unlabelled=12, **changes)  # type: ignore[arg-type]


NAMES = ["svhn/learned_graph/250", "cifar10/learned_graph/4000", "cifar10/mean_teacher/1000", "svhn/pi_model/500"]


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_trained_and_evaluated(name: str, data: BenchmarkData, tmp_path: Path) -> None:
    outcome = train_preset(small(name, normalization="per_image"), data, seed=3, options=replace(SMALL, out=tmp_path / "run"))
    predictions = predict_classes(outcome.trained.predictor, data.x_test, NormalizePerImage())
    assert outcome.test_error == error_rate(predictions, data.y_test) and outcome.validation_error is None
    assert [record["step"] for record in outcome.trained.history] == [0, 1]
    record = json.loads(json.dumps(outcome.record(find_preset(name))))
    assert record["split"]["hash"] == draw_split(data.y, 20, 3).hash
    published = find_preset(name).published
    assert published is not None and record["published"] == published.error
    assert record["cost"]["steps"] == 2
    again = train_preset(small(name, normalization="per_image"), data, seed=3, options=replace(SMALL, out=tmp_path / "run"))
    assert again.trained.cost["seconds"] == outcome.trained.cost["seconds"]  # already finished, so not repeated
    assert again.test_error == outcome.test_error


@pytest.mark.parametrize("kind", ["wrong", "out of range"])
def test_hidden_labels_do_not_change_the_weights(kind: str, data: BenchmarkData) -> None:
    split = draw_split(data.y, 20, seed=0)
    poison = (data.y + 1) % 10 if kind == "wrong" else np.full(N, 10**6)
    poison[split.labelled] = data.y[split.labelled]
    chosen = small("cifar10/learned_graph/4000")
    clean = train_split(chosen, data, split, options=SMALL).trained
    other = train_split(chosen, replace(data, y=poison), split, options=SMALL).trained
    weights, other_weights = clean.predictor.state_dict(), other.predictor.state_dict()
    assert all(torch.equal(weights[name], other_weights[name]) for name in weights)
    assert clean.history == other.history


def test_validation_samples_are_not_in_the_training_set_and_are_evaluated(data: BenchmarkData) -> None:
    chosen = small("cifar10/learned_graph/4000")
    split = draw_split(data.y, 20, seed=0, n_validation=40)
    assert len(prepare_run(chosen, data.x, split, 10, SMALL).dataset) == N - 40
    outcome = train_split(chosen, data, split, options=SMALL)
    wrong = replace(data, y=(data.y + 1) % 10)
    assert outcome.validation_error is not None
    right = 100.0 - outcome.validation_error
    mistaken = train_split(chosen, wrong, split, options=SMALL).validation_error
    assert mistaken is not None and mistaken >= right  # a correct prediction is wrong for the shifted labels


def test_the_training_set_has_only_the_labels_of_the_split(data: BenchmarkData) -> None:
    split = draw_split(data.y, 20, seed=0)
    dataset = prepare_run(small("cifar10/learned_graph/4000"), data.x, split, 10, SMALL).dataset
    assert len(dataset.labelled) == 20 and int((dataset.y == -1).sum()) == N - 20


def test_a_short_run_keeps_the_fractions_of_the_schedule(data: BenchmarkData) -> None:
    split = draw_split(data.y, 20, seed=0)
    config = prepare_run(small("svhn/learned_graph/250"), data.x, split, 10, SMALL).config
    assert config.steps == 2
    assert (config.schedule.rampup, config.schedule.rampdown) == (80 / 500, 50 / 500)
    assert (config.schedule.beta2_start, config.schedule.beta2) == (0.99, 0.999)


def test_svhn_is_normalized_before_shift_and_noise_and_cifar_is_flipped() -> None:
    x = torch.randint(0, 256, (200, 3, 8, 8), generator=GENERATOR, dtype=torch.uint8)
    indices = torch.arange(200)
    svhn = build_views(find_preset("svhn/learned_graph/250"), NormalizePerImage())["weak"](
        x, indices, torch.Generator().manual_seed(1)
    )
    assert svhn.dtype == torch.float32
    inner = (svhn - NormalizePerImage()(x)).abs().flatten(1).amax(1)
    still = inner < 1.0  # 1 of 25 images is not shifted and has only noise
    assert 1 <= int(still.sum()) <= 24
    assert float((svhn - NormalizePerImage()(x))[still].std()) == pytest.approx(0.15, rel=0.15)
    cifar = build_views(find_preset("cifar10/learned_graph/4000"), NormalizePerImage())["weak"](
        x, indices, torch.Generator().manual_seed(1)
    )
    mirrored = (cifar - NormalizePerImage()(x).flip(3)).abs().flatten(1).amax(1) < 1e-6
    assert int(mirrored.sum()) >= 1 and not bool((svhn - NormalizePerImage()(x).flip(3)).abs().flatten(1).amax(1).min() < 1.0)


def test_strong_augmentation_is_applied_to_uint8_images_before_normalization() -> None:
    x = torch.randint(0, 256, (50, 3, 16, 16), generator=GENERATOR, dtype=torch.uint8)
    views = build_views(find_preset("cifar10_randaugment/learned_graph/250"), NormalizePerImage())
    strong = views["strong"](x, torch.arange(50), torch.Generator().manual_seed(0))
    assert strong.shape == x.shape and strong.dtype == torch.float32 and bool(torch.isfinite(strong).all())
    assert not torch.equal(strong, views["weak"](x, torch.arange(50), torch.Generator().manual_seed(0)))


def test_variant_a_has_a_data_dependent_initialization(data: BenchmarkData) -> None:
    split = draw_split(data.y, 20, seed=0)
    prepared = prepare_run(small("svhn/pi_model/500"), data.x, split, 10, SMALL)
    units = [module for module in prepared.stages[-1].build().modules() if isinstance(module, WeightNormUnit)]
    assert len(units) == 10 and all(float(unit.norm.running_mean.abs().sum()) > 0 for unit in units)


def test_at_full_width_the_network_has_the_size_of_the_paper(data: BenchmarkData) -> None:
    chosen = find_preset("cifar10/learned_graph/4000")
    prepared = prepare_run(replace(chosen, labels=20), data.x, draw_split(data.y, 20, 0), 10, PaperRunOptions(steps=1))
    method = prepared.stages[-1].build()
    assert count_parameters(method.student) == 3_125_908
    phi = 468_290
    assert sum(p.numel() for p in method.parameters() if p.requires_grad) == 3_125_908 + phi


def test_the_flops_of_a_step_match_a_count_by_hand() -> None:
    # 220 images through student and teacher; Phi's first layer on all 220 and the rest on 160 pairs, in both networks
    forward, first, rest = 2 * 731_383_040, 2 * 256 * 512, 2 * (512 * 512 + 512 * 128 + 128 * 64 + 64 * 2)
    images_through = 220 * (4 * forward - 2 * 3_538_944)
    assert count_step_flops(find_preset("cifar10/learned_graph/4000"), 10) == images_through + 4 * (220 * first + 160 * rest)


def test_a_preset_of_an_unknown_method_is_an_error_with_the_reason(data: BenchmarkData) -> None:
    with pytest.raises(SettingError, match="cannot run: no method is called 'no_such'"):
        train_preset(small("cifar10/learned_graph/4000", method="no_such"), data, seed=0, options=SMALL)


def test_images_that_are_not_uint8_are_an_error(data: BenchmarkData) -> None:
    with pytest.raises(DataError, match="expected uint8 images"):
        train_preset(small("cifar10/learned_graph/4000"), replace(data, x=data.x.astype(np.float32)), seed=0, options=SMALL)
