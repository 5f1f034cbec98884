"""Defaults of `auto`: scaling, networks, supervised warm-up, random-walk augmentation and optimizer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from samekind import SemiSupervisedClassifier, defaults
from samekind.data.augment.transforms import Compose, GaussianNoise
from samekind.data.dataset import Dataset
from samekind.defaults import (
    BatchSizes,
    choose_scaler,
    classes_are_characters,
    default_batch_sizes,
    default_n_neighbors,
    net_for,
    supervised_warmup_for,
    view_defaults,
)
from samekind.errors import SettingError
from samekind.graphs.nearest_neighbors import nearest_neighbors
from samekind.graphs.random_walks import label_consistent_levels, random_walk_graph
from samekind.nets.compact import CompactNet
from samekind.nets.conv13 import Conv13
from samekind.nets.small_conv import SmallConv
from samekind.training.schedules import OptimizerConfig, Schedule


def three_classes(n: int = 300, per_class: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Return the classes of all samples, the labels of a few, and two columns of noise."""
    truth = torch.arange(n) % 3
    shown = torch.where(torch.arange(n) < 3 * per_class, truth, -1)
    return truth, shown, torch.randn(n, 2, generator=torch.Generator().manual_seed(0))


def wide_vectors() -> tuple[Tensor, Tensor, Tensor]:
    """Return samples of three classes that differ in 6 of 200 columns."""
    generator = torch.Generator().manual_seed(0)
    truth, shown, _ = three_classes()
    centers = torch.zeros(3, 200)
    centers[:, :6] = 1.8 * torch.randn(3, 6, generator=generator)
    return centers[truth] + torch.randn(300, 200, generator=generator), truth, shown


def test_columns_of_different_scales_are_standardized() -> None:
    truth, shown, noise = three_classes()
    x = torch.stack([5.0 * truth + noise[:, 0], 1000.0 * noise[:, 1]], dim=1)
    scaler = choose_scaler(x, shown)
    torch.testing.assert_close(scaler(x).std(0, unbiased=False), torch.ones(2))


def test_columns_keep_their_variances_if_the_labels_favour_it() -> None:
    # the column of largest variance separates the classes; standardised, the noise of the others would hide it
    truth, shown, _ = three_classes()
    noise = torch.randn(300, 16, generator=torch.Generator().manual_seed(2))
    x = torch.cat([5.0 * truth[:, None] + noise[:, :1], noise[:, 1:]], dim=1)
    assert len(set(choose_scaler(x, shown).scale.tolist())) == 1


def test_wide_vectors_are_reduced_to_the_components_above_noise() -> None:
    x, _, shown = wide_vectors()
    assert choose_scaler(x, shown).shape_after((200,))[0] < 20
    assert choose_scaler(x, shown, keep_columns=True).shape_after((200,)) == (200,)


def test_a_model_of_reduced_vectors_predicts_and_loads(tmp_path: Path) -> None:
    x, truth, shown = wide_vectors()
    model = SemiSupervisedClassifier(random_state=0, epochs=20).fit(x.numpy(), shown.numpy())
    assert (model.transduction_ == truth.numpy()).mean() > 0.9
    assert model.n_features_in_ == 200
    model.save(tmp_path / "model")
    again = SemiSupervisedClassifier.load(tmp_path / "model")
    assert (again.predict_proba(x.numpy()) == model.predict_proba(x.numpy())).all()


def test_images_are_scaled_by_channel_independently_of_the_labels() -> None:
    images = torch.rand(20, 3, 8, 8)
    scaler = choose_scaler(images, torch.full((20,), -1))
    assert scaler.basis is None and len(scaler.scale) == 3


def test_without_two_labels_per_class_columns_are_standardized() -> None:
    x, _, _ = wide_vectors()
    shown = torch.full((300,), -1)
    shown[:3] = torch.arange(3)
    assert choose_scaler(x, shown).basis is None


# ---------------------------------------------------------------- networks and supervised warm-up


def test_colour_images_get_the_compact_net_and_others_the_small_one() -> None:
    assert isinstance(net_for((3, 32, 32), 10).features, CompactNet)
    assert isinstance(net_for((1, 28, 28), 10).features, SmallConv)
    assert isinstance(net_for((3, 8, 8), 10).features, SmallConv)
    assert isinstance(net_for((1, 28, 28), 10, "conv13").features, Conv13)


def test_an_unknown_net_is_refused_with_the_closest_name() -> None:
    with pytest.raises(SettingError, match="did you mean 'compact'"):
        net_for((3, 32, 32), 10, "compakt")
    with pytest.raises(SettingError, match="the samples are vectors"):
        net_for((5,), 10, "compact")


def test_classes_named_by_characters_are_not_mirrored() -> None:
    assert classes_are_characters(["0", "1", "7"])
    assert classes_are_characters(["a", "B"])
    assert not classes_are_characters(["cat", "dog"])
    assert not classes_are_characters([0, 1])  # integers do not tell what they stand for


def test_colour_images_with_hundreds_of_labels_have_a_supervised_warmup() -> None:
    fractions = [supervised_warmup_for(n, color=True) for n in (40_000, 4000, 1000, 250)]
    assert fractions == pytest.approx([0.4, 0.4, 0.2, 0.1])
    assert supervised_warmup_for(4000) == supervised_warmup_for(4000, color=True, paper=True) == 0.0
    assert default_batch_sizes(1000, color=True) == BatchSizes(32, 32)
    assert default_batch_sizes(1000) == BatchSizes(20, 64)


def checkerboard() -> Dataset:
    """Return nine overlapping clusters in a 3 x 3 grid, of two alternating classes; 45 of 720 samples are labelled."""
    cell = torch.arange(720) % 9
    row, column = cell // 3, cell % 3
    x = 2.5 * torch.stack([row - 1.0, column - 1.0], dim=1) + torch.randn(720, 2, generator=torch.Generator().manual_seed(0))
    return Dataset(x, torch.where(torch.arange(720) < 45, (row + column) % 2, -1), 2)


def test_walks_that_contradict_labels_are_used_if_they_beat_the_linear_baseline() -> None:
    data = checkerboard()
    W = random_walk_graph(*nearest_neighbors(data.x, data.x, default_n_neighbors(720), exclude_self=True))
    consistency = label_consistent_levels(W, data.y.numpy())
    assert consistency.enough_evidence and consistency.confirmed == 0
    chosen = view_defaults(data, seed=0)
    assert chosen.unlabelled_weight == 1.0 and isinstance(chosen.views["weak"], Compose)


def test_walks_that_contradict_labels_are_not_used_if_the_linear_baseline_is_as_good() -> None:
    # one of twelve columns decides the class: neighbours have any class, and a linear classifier is nearly right
    x = torch.randn(720, 12, generator=torch.Generator().manual_seed(0))
    data = Dataset(x, torch.where(torch.arange(720) < 40, (x[:, 0] > 0).long(), -1), 2)
    chosen = view_defaults(data, seed=0)
    assert chosen.unlabelled_weight == 0.0 and isinstance(chosen.views["weak"], GaussianNoise)
    assert isinstance(view_defaults(data, seed=0, name="random_walk").views["weak"], Compose)


# ---------------------------------------------------------------- optimizer


def test_colour_images_use_sgd_and_other_data_adam() -> None:
    assert defaults.optimizer_for("auto", color=True) == "sgd"
    assert defaults.optimizer_for("auto") == "adam"
    assert defaults.optimizer_for("auto", color=True, paper=True) == "adam"
    assert defaults.optimizer_for("adam", color=True) == "adam"
    assert defaults.optimizer_for("sgd") == "sgd"
    with pytest.raises(SettingError, match="optimizer is 'lion'"):
        defaults.optimizer_for("lion")


def test_sgd_has_a_linear_decay_and_adam_the_ramps_of_the_paper() -> None:
    by, schedule = defaults.optimizer_and_schedule("sgd")
    assert (by.kind, by.weight_decay > 0) == ("sgd", True)
    assert [schedule.lr(t) for t in (0.1, 0.5, 1.0)] == pytest.approx([0.9 * 0.2, 0.5 * 0.2, 0.0])
    assert defaults.optimizer_and_schedule("adam") == (OptimizerConfig(), Schedule())
    assert defaults.optimizer_and_schedule("adam", 0.01)[1].lr_max == 0.01
    with pytest.raises(SettingError, match="learning_rate is 0"):
        defaults.optimizer_and_schedule("adam", 0)
