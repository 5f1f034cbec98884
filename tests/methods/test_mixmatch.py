"""MixMatch: the sharpened targets, the mixtures, and the denominators of the terms."""

from __future__ import annotations

import math

import pytest
import torch
from tests.methods.by_hand import linear, weight
from torch import Tensor, nn

from samekind.data.dataset import Batch
from samekind.errors import SettingError
from samekind.methods.base import Task
from samekind.methods.mixmatch import MixMatch, MixMatchConfig, mixup_batch
from samekind.methods.predictors import DeepPredictor

TASK = Task(n_classes=2, n_labelled=2, n_samples=100, steps=100)
LN3 = math.log(3.0)


def batch() -> Batch:
    """Return an unlabelled sample as (9/10, 1/10) and (6/10, 4/10), and two labelled ones at (3/4, 1/4)."""
    views = (torch.tensor([[math.log(9), 0.0]]), torch.tensor([[math.log(1.5), 0.0]]))
    return Batch((torch.tensor([[LN3, 0.0], [LN3, 0.0]]),), torch.tensor([0, 1]), views, torch.arange(1))


def plainly(**settings: float) -> dict[str, Tensor]:
    return MixMatch(linear(), TASK, MixMatchConfig(mixup=False, rampup=0.5, **settings)).losses(batch(), progress=1.0)  # type: ignore[arg-type]


def test_a_target_is_the_sharpened_mean_prediction_over_all_views() -> None:
    # Mean (3/4, 1/4), squared and normalized: (9/10, 1/10)
    torch.testing.assert_close(MixMatch(linear(), TASK)._sharpened_targets(batch().x_u), torch.tensor([[0.9, 0.1]]))


def test_without_mixup_labels_are_divided_by_the_labelled_samples_alone() -> None:
    assert plainly()["supervised"].item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)


def test_without_mixup_both_views_have_the_target_in_a_mean_over_views_and_classes() -> None:
    # The first view is there already; the second differs by 3/10 in both classes
    assert plainly(w_max=8.0)["consistency"].item() == pytest.approx(8.0 * 2 * 0.3**2 / (2 * 2))


def test_mixed_samples_and_targets_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each sample takes a quarter of the next one; the drawn ratio 1/4 is folded to 3/4
    monkeypatch.setattr(torch, "randperm", lambda n, device: (torch.arange(n) + 1) % n)
    monkeypatch.setattr(torch.distributions.Beta, "sample", lambda _, shape: torch.full(shape, 0.25))
    x, target = mixup_batch(torch.tensor([[0.0], [4.0], [8.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), 0.75)
    assert x.flatten().tolist() == [1.0, 5.0, 6.0]
    assert target.tolist() == [[0.75, 0.25], [0.125, 0.875], [0.625, 0.375]]


def test_a_mixture_is_always_nearer_to_its_own_sample_and_each_has_its_own_ratio() -> None:
    torch.manual_seed(0)
    rows = torch.eye(200)
    mixture, _ = mixup_batch(rows, rows, 0.75)
    own = mixture.diagonal()
    assert (own >= 0.5).all()
    assert len(set(own.tolist())) > 150


def test_labelled_and_unlabelled_samples_are_mixed_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # Samples 0, 1 are labelled, 2 and 3 the views; reversed, labelled sample 0 is mixed with the second view
    monkeypatch.setattr(torch, "randperm", lambda n, device: torch.arange(n - 1, -1, -1))
    monkeypatch.setattr(torch.distributions.Beta, "sample", lambda _, shape: torch.full(shape, 0.5))
    loss = MixMatch(linear(), TASK).losses(batch(), progress=1.0)["supervised"]
    # logits of the mixtures: ((ln 3 + ln 1.5)/2, 0) and ((ln 3 + ln 9)/2, 0); targets (0.95, 0.05) and (0.45, 0.55)
    first, second = math.sqrt(4.5), math.sqrt(27)
    expected = [math.log(1 + first) - 0.95 * math.log(first), math.log(1 + second) - 0.45 * math.log(second)]
    assert loss.item() == pytest.approx(sum(expected) / 2)


@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.0), (0.1, 0.5), (0.2, 1.0), (1.0, 1.0)])
def test_the_weight_rises_linearly(progress: float, share: float) -> None:
    method = MixMatch(linear(), TASK, MixMatchConfig(mixup=False, rampup=0.2))
    full, now = (method.losses(batch(), progress=p)["consistency"].item() for p in (1.0, progress))
    assert now == pytest.approx(share * full)


def test_by_default_it_rises_over_the_paper_s_steps_however_short_the_run() -> None:
    # A sixty-fourth of the paper's 2^20 steps; in 1,024 steps it gets to a sixteenth of its height
    assert MixMatch(linear(), Task(2, 2, 100, steps=2**20)).rampup == pytest.approx(1 / 64)
    short = MixMatch(linear(), Task(2, 2, 100, steps=1024), MixMatchConfig(mixup=False, w_max=16.0))
    assert short.losses(batch(), progress=1.0)["consistency"].item() == pytest.approx(2 * 0.3**2 / 4)


def test_both_terms_move_the_student_and_neither_the_ema_nor_the_target() -> None:
    for term in ("supervised", "consistency"):
        method = MixMatch(linear(), TASK)
        torch.autograd.backward(method.losses(batch(), progress=1.0)[term])
        moved = weight(method.student).grad
        assert moved is not None and moved.any()
        assert weight(method.ema).grad is None
    assert not method._sharpened_targets(batch().x_u).requires_grad


def test_the_student_makes_the_target_and_not_the_ema() -> None:
    method = MixMatch(linear(), TASK)
    weight(method.ema).data.zero_()
    torch.testing.assert_close(method._sharpened_targets(batch().x_u), torch.tensor([[0.9, 0.1]]))


def test_batch_norm_statistics_are_moved_once_and_by_samples_of_both_kinds() -> None:
    net = linear()
    net.features = nn.BatchNorm1d(2)
    low, high = torch.zeros(4, 2), torch.full((4, 2), 10.0)
    seen = Batch((low,), torch.tensor([0, 1, 0, 1]), (high, high.clone()), torch.arange(4))
    MixMatch(net, TASK, MixMatchConfig(mixup=False)).losses(seen, progress=1.0)
    # the first of three passes: samples 0, 3 (labelled), 6 and 9 (views) of 12
    torch.testing.assert_close(net.features.running_mean, 0.1 * torch.tensor([5.0, 5.0]))
    assert net.features.num_batches_tracked is not None and net.features.num_batches_tracked.item() == 1


def test_the_ema_takes_over_the_statistics_and_predicts_in_the_end() -> None:
    net = linear()
    net.features = nn.BatchNorm1d(2)
    method = MixMatch(net, TASK, MixMatchConfig(ema_decay=0.25))
    weight(method.student).data.add_(4.0)
    method.student.features.get_buffer("running_mean").fill_(7.0)
    method.after_step()
    torch.testing.assert_close(weight(method.ema), torch.eye(2) + 3.0)
    assert method.ema.features.get_buffer("running_mean").tolist() == [7.0, 7.0]
    predictor = method.predictor()
    assert isinstance(predictor, DeepPredictor) and predictor.classifier is method.ema


def test_a_batch_holds_as_many_views_as_are_set() -> None:
    assert MixMatch(linear(), TASK).unlabelled_views == ("weak", "weak")
    assert MixMatch(linear(), TASK, MixMatchConfig(K=3)).unlabelled_views == ("weak",) * 3


@pytest.mark.parametrize("name", ["K", "T", "mixup_alpha"])
def test_settings_that_mean_nothing_are_refused(name: str) -> None:
    expected = "a whole number, 1 or more" if name == "K" else "a number above 0"
    with pytest.raises(SettingError, match=f"{name} is 0; expected {expected}"):
        MixMatchConfig(**{name: 0})  # type: ignore[arg-type]
