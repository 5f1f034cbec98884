"""The presets of the paper's tables: complete, consistent with the paper, and described correctly by their docstrings."""

from __future__ import annotations

import importlib
import math
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from samekind.bench.presets.lookup import PRESETS, TABLES, find_preset, presets_in_table
from samekind.bench.presets.paper_preset import Augmentation, NetSpec, OptimizerSpec, PaperPreset, PublishedError, ScheduleSpec
from samekind.bench.running.paper_scale import (
    PaperRunOptions,
    build_schedule,
    count_step_flops,
    method_settings,
    missing_requirement,
    prepare_run,
)
from samekind.data.hub.catalogue import find_dataset
from samekind.data.splits import draw_split
from samekind.errors import SettingError
from samekind.methods import config_defaults
from samekind.training.schedules import OptimizerConfig

OURS = "learned_graph"
N_PRESETS = {
    "svhn": 24,
    "svhn_randaugment": 14,
    "cifar10": 29,
    "cifar10_randaugment": 18,
    "cifar100": 5,  # counted in the paper
    "ablation": 6,  # 4 in the paper, and 2 that it promises
}
# methods whose step cannot run on meta tensors
NOT_COUNTED = ("cclp", "gscnn", "ict", "lpdssl", "lpdssl+mean_teacher", "mixmatch", "remixmatch")


@pytest.mark.parametrize(("number", "table"), list(enumerate(N_PRESETS, start=1)))
def test_every_cell_of_a_table_has_one_preset(number: int, table: str) -> None:
    presets = presets_in_table(number)
    assert presets == presets_in_table(table) == TABLES[table]
    assert len(presets) == len({preset.name for preset in presets}) == N_PRESETS[table]


def test_a_preset_is_found_by_its_name() -> None:
    chosen = find_preset("cifar10/learned_graph/4000")
    assert (chosen.data, chosen.labels, str(chosen.published)) == ("cifar10", 4000, "10.78 ± 0.24")
    assert str(find_preset("svhn/lpdssl/250").published) == "18.45"


def test_the_error_for_an_unknown_name_suggests_the_nearest_one() -> None:
    with pytest.raises(SettingError, match="did you mean 'cifar10/learned_graph/4000'"):
        find_preset("cifar10/learned-graph/4000")
    with pytest.raises(SettingError, match="did you mean 'cifar10'"):
        presets_in_table("cifar-10")
    with pytest.raises(SettingError, match="no table 7; expected 1 to 6"):
        presets_in_table(7)


@pytest.mark.parametrize(
    ("name", "lambda1", "lambda2"),
    [
        ("svhn/learned_graph/250", 0.027301, 0.013651),
        ("svhn_randaugment/learned_graph/1000", 0.109205, 0.054602),
        ("cifar10/learned_graph/4000", 0.24, 0.24),
        ("cifar10_randaugment/learned_graph/500", 0.06, 0.03),
        ("cifar10_randaugment/learned_graph/1000", 0.06, 0.03),
        ("cifar10_randaugment/learned_graph/4000", 0.24, 0.12),
        ("cifar100/learned_graph/10000", 0.3, 0.15),
    ],
)
def test_the_weights_of_the_graph_terms_are_those_of_the_paper(name: str, lambda1: float, lambda2: float) -> None:
    chosen = find_preset(name)
    fraction = chosen.labels / sum(find_dataset(chosen.data).train.class_counts)
    assert chosen.settings["k1"] * fraction == pytest.approx(lambda1, rel=1e-4)
    assert chosen.settings["k2"] * fraction == pytest.approx(lambda2, rel=1e-4)


@pytest.mark.parametrize("chosen", [p for p in PRESETS.values() if p.method == OURS], ids=lambda p: p.name)
def test_all_presets_of_learned_graph_have_the_common_settings_of_the_paper(chosen: PaperPreset) -> None:
    svhn, strong = chosen.data == "svhn", chosen.table.endswith("randaugment") or chosen.data == "cifar100"
    assert (chosen.batch_unlabelled, chosen.batch_labelled) == (100, 20)
    assert chosen.schedule.epochs == (500 if svhn else 600)
    assert chosen.schedule.epoch == sum(find_dataset(chosen.data).train.class_counts) // 100
    assert chosen.settings["rampup"] * chosen.schedule.epochs == pytest.approx(80)
    assert chosen.settings["graph_start"] * chosen.schedule.epochs == pytest.approx(100)
    assert chosen.settings["graph_rampup"] * chosen.schedule.epochs == pytest.approx(50)
    assert (chosen.settings["beta"], chosen.settings["lambda3"]) == (1.5 if svhn else 3.0, _lambda3(chosen))
    assert chosen.augmentation == Augmentation(2, not svhn, 0.15 if svhn else 0.0, "randaugment" if strong else "none")
    assert chosen.normalization == ("per_image" if svhn else "per_channel")
    assert (chosen.settings["dropout"], chosen.net.dropout) == ((0.0, 0.0) if strong and not svhn else (0.2, 0.5))


def _lambda3(chosen: PaperPreset) -> float:
    if chosen.variant == "no L_cons":
        return 0.0
    return 0.05 if chosen.data == "svhn" or chosen.table == "cifar10_randaugment" else 0.15


def test_the_learning_rate_of_svhn_ramps_up_for_80_epochs_with_the_smaller_beta2() -> None:
    schedule = build_schedule(find_preset("svhn/learned_graph/500").optimizer, find_preset("svhn/learned_graph/500").schedule)
    assert schedule.lr(40 / 500) == pytest.approx(0.003 * 0.2865, rel=1e-3)
    assert [schedule.betas(epoch / 500)[1] for epoch in (79, 81)] == [0.99, 0.999]
    assert schedule.lr(449 / 500) == 0.003 and schedule.lr(451 / 500) < 0.003


def test_without_decay_the_learning_rate_is_constant() -> None:
    schedule = build_schedule(OptimizerSpec(lr=0.002), ScheduleSpec(100, 10, decay="none", rampdown=50))
    assert [schedule.lr(progress) for progress in (0.0, 0.5, 0.99)] == [0.002] * 3


def test_the_decay_of_the_baselines_is_scaled_to_their_runs() -> None:
    # VAT: the last 16,000 of 48,000 updates; LPDSSL: 180 epochs of a cosine of 210; CCLP: two milestones
    linear, cosine, stairs = (
        build_schedule(chosen.optimizer, chosen.schedule)
        for chosen in (find_preset("svhn/vat/1000"), find_preset("cifar10/lpdssl/4000"), find_preset("cifar10/cclp/4000"))
    )
    assert [linear.lr(step / 48_000) for step in (0, 32_000, 40_000, 48_000)] == pytest.approx([0.001, 0.001, 0.0005, 0.0])
    assert cosine.lr(1.0) == pytest.approx(0.05 * (math.cos(math.pi * 180 / 210) + 1) / 2)
    assert [stairs.lr(step / 75_000) for step in (0, 40_000, 55_000, 75_000)] == pytest.approx([3e-4, 1e-4, 3e-5, 3e-5])


def test_a_preset_is_trained_with_its_optimizer() -> None:
    chosen = find_preset("cifar10/lpdssl/4000")
    x = np.random.default_rng(0).integers(0, 256, (4100, 32, 32, 3), dtype=np.uint8)
    split = draw_split(np.arange(4100) % 10, 4000, seed=0)
    config = prepare_run(chosen, x, split, 10, PaperRunOptions(steps=1, width=0.05)).config
    assert config.optimizer == OptimizerConfig("sgd", momentum=0.9, weight_decay=2e-4)
    mixmatch = prepare_run(find_preset("cifar10/mixmatch/4000"), x, split, 10, PaperRunOptions(steps=1, width=0.05)).config
    assert mixmatch.optimizer == OptimizerConfig("adam", momentum=0.0, weight_decay=0.02)


@pytest.mark.parametrize("table", N_PRESETS)
def test_the_docstring_of_a_table_has_command_cost_and_expected_errors(table: str) -> None:
    text = importlib.import_module(f"samekind.bench.presets.{table}").__doc__ or ""
    ours = [p for p in presets_in_table(table) if p.method == OURS]
    command = re.search(r"samekind bench (\S+) --scale paper --methods (\S+) --labels (\d+)", text)
    assert command and command[1] == table.replace("_", "-") and find_preset(f"{table}/{command[2]}/{command[3]}") in ours
    assert f"    samekind bench {command[1]}\n" in text
    joined = " ".join(text.split()).replace(",", "")
    for one in (p for p in ours if p.published is not None):
        assert re.search(rf"\b{one.labels}( labels)?\b", joined) and str(one.published) in joined
    for chosen in ours:
        flops = count_step_flops(chosen, len(find_dataset(chosen.data).train.class_counts))
        assert flops is not None
        assert f"costs {flops / 1e12:.4f} TFLOP per step and {flops * chosen.schedule.steps:.2e} FLOP per run" in joined


@pytest.mark.parametrize("chosen", list(PRESETS.values()), ids=lambda p: p.name)
def test_every_preset_can_run_and_its_flops_are_counted(chosen: PaperPreset) -> None:
    assert missing_requirement(chosen) is None
    flops = count_step_flops(chosen, len(find_dataset(chosen.data).train.class_counts))
    assert chosen.method in NOT_COUNTED if flops is None else flops > 0


def fewest_labels() -> list[PaperPreset]:
    """Return, for every method and network, the preset with the fewest labels."""
    chosen: dict[tuple[str, str], PaperPreset] = {}
    for one in sorted(PRESETS.values(), key=lambda p: p.labels):
        chosen.setdefault((one.method, one.net.kind), one)
    return list(chosen.values())


@pytest.mark.parametrize("chosen", fewest_labels(), ids=lambda p: p.name)
def test_every_method_trains_two_steps_of_its_preset_on_a_narrow_network(chosen: PaperPreset) -> None:
    n_classes = len(find_dataset(chosen.data).train.class_counts)
    n = chosen.labels + 200
    x = np.random.default_rng(0).integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
    prepared = prepare_run(
        chosen, x, draw_split(np.arange(n) % n_classes, chosen.labels, 0), n_classes, PaperRunOptions(steps=2, width=0.05)
    )
    trained = prepared.train()
    assert trained.cost["steps"] == 2 and trained.cost["flops"] > 0
    assert all(torch.isfinite(p).all() for p in trained.predictor.parameters())


@pytest.mark.parametrize("chosen", list(PRESETS.values()), ids=lambda p: p.name)
def test_every_setting_of_a_preset_is_a_setting_of_its_method(chosen: PaperPreset) -> None:
    assert set(method_settings(chosen)) <= set(config_defaults(chosen.method))


LPDSSL_PRESETS = [name for name, one in PRESETS.items() if one.method.startswith("lpdssl")]


@pytest.mark.parametrize("name", LPDSSL_PRESETS)
def test_lpdssl_trains_180_epochs_without_a_graph_and_then_180_with_one(name: str) -> None:
    chosen = find_preset(name)
    n_classes = len(find_dataset(chosen.data).train.class_counts)
    n = chosen.labels + 200
    x, split = np.zeros((n, 32, 32, 3), dtype=np.uint8), draw_split(np.arange(n) % n_classes, chosen.labels, 0)
    first, second = prepare_run(chosen, x, split, n_classes, PaperRunOptions(width=0.05)).stages
    assert first.config.steps == second.config.steps == 180 * chosen.schedule.epoch
    assert first.config.schedule == second.config.schedule  # the learning rate starts again
    assert first.name == ("mean_teacher" if "mean_teacher" in chosen.method else "supervised")
    batches = [(stage.config.n_labelled, stage.config.n_unlabelled) for stage in (first, second)]
    sizes = (chosen.batch_labelled, chosen.batch_unlabelled)
    assert batches == [sizes if "mean_teacher" in chosen.method else (100, 50), sizes]
    method: Any = second.build()
    assert method.propagated.first_step == 0  # pseudo-labels from the first step of the second stage on


def test_presets_with_standard_augmentation_can_run() -> None:
    methods = {"pi_model", "mean_teacher", OURS}
    standard = [p for p in PRESETS.values() if p.method in methods and p.augmentation.strong == "none"]
    assert Counter(p.table for p in standard) == {"svhn": 9, "cifar10": 9, "cifar100": 1, "ablation": 4}
    assert [p.name for p in standard if missing_requirement(p) is not None] == []


def test_strong_augmentation_is_a_setting_of_the_method() -> None:
    assert method_settings(find_preset("cifar100/learned_graph/10000"))["strong_view"] is True
    assert "strong_view" not in method_settings(find_preset("cifar10/learned_graph/4000"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"betta": 1.0}}, "did you mean 'beta'"),
        ({"method": "mean_teachers"}, "did you mean 'mean_teacher'"),
    ],
)
def test_a_missing_requirement_is_named(changes: dict[str, Any], message: str) -> None:
    reason = missing_requirement(replace(find_preset("cifar10/learned_graph/4000"), **changes))
    assert reason is not None and message in reason


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "cifar"}, "there is no dataset 'cifar'"),
        ({"labels": 9}, "labels is 9; expected a number from 10, one label per class of cifar10, to 50000"),
        ({"batch_labelled": 0}, "batch_labelled is 0"),
        ({"normalization": "zcaa"}, "did you mean 'zca'"),
    ],
)
def test_an_impossible_preset_is_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        replace(find_preset("cifar10/learned_graph/4000"), **changes)


def test_impossible_parts_of_a_preset_are_errors() -> None:
    with pytest.raises(SettingError, match="dropout is 1"):
        NetSpec(dropout=1.0)
    with pytest.raises(SettingError, match="channel_dropout is -1"):
        NetSpec(kind="cclp", channel_dropout=-1.0)
    with pytest.raises(SettingError, match="noise is -1"):
        Augmentation(noise=-1.0)
    with pytest.raises(SettingError, match="lr is 0"):
        OptimizerSpec(lr=0.0)
    with pytest.raises(SettingError, match="a ramp-up not longer than the run"):
        ScheduleSpec(steps=10, epoch=5, rampup=11)
    with pytest.raises(SettingError, match="from 0 to 100 percent"):
        PublishedError(101.0)
