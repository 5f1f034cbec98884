"""ICT: one mixup ratio for the whole batch, mixed probabilities, and an EMA teacher that makes the targets."""

from __future__ import annotations

import math

import pytest
import torch
from tests.methods.by_hand import linear, weight
from torch import nn

from samekind.data.dataset import Batch
from samekind.errors import SettingError
from samekind.methods.base import Task
from samekind.methods.ict import ICT, ICTConfig
from samekind.methods.predictors import DeepPredictor

TASK = Task(n_classes=2, n_labelled=2, n_samples=100, steps=100)
LN3 = math.log(3.0)


def batch() -> Batch:
    """Return unlabelled samples at (3/4, 1/4) and (1/4, 3/4), and labelled ones there, each with the other's class."""
    rows = torch.tensor([[LN3, 0.0], [0.0, LN3]])
    return Batch((rows,), torch.tensor([1, 0]), (rows.clone(),), torch.arange(2))


@pytest.fixture
def halfway(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mix every sample with the other one, in the ratio 3 to 1."""
    monkeypatch.setattr(torch, "randperm", lambda n, device: torch.arange(n - 1, -1, -1))
    monkeypatch.setattr(torch.distributions.Beta, "sample", lambda _, shape: torch.full(shape, 0.75))


@pytest.mark.usefixtures("halfway")
def test_labels_are_mixed_like_their_samples_and_divided_by_the_labelled_samples() -> None:
    # Sample (3/4 ln 3, 1/4 ln 3): q = sqrt 3/(1 + sqrt 3) for the first class; its own label has 3/4, the other 1/4
    loss = ICT(linear(), TASK).losses(batch(), progress=0.0)["supervised"]
    q = math.sqrt(3) / (1 + math.sqrt(3))
    assert loss.item() == pytest.approx(-0.75 * math.log(1 - q) - 0.25 * math.log(q))


@pytest.mark.usefixtures("halfway")
def test_the_target_of_a_mixture_is_the_mixture_of_the_targets() -> None:
    # Target 3/4 (3/4, 1/4) + 1/4 (1/4, 3/4) = (5/8, 3/8); both samples and both classes differ by the same
    loss = ICT(linear(), TASK, ICTConfig(w_max=8.0)).losses(batch(), progress=1.0)["consistency"]
    q = math.sqrt(3) / (1 + math.sqrt(3))
    assert loss.item() == pytest.approx(8.0 * (q - 5 / 8) ** 2, rel=1e-4)


@pytest.mark.usefixtures("halfway")
def test_with_logits_mixed_a_linear_net_is_always_right() -> None:
    loss = ICT(linear(), TASK, ICTConfig(mix_logits=True)).losses(batch(), progress=1.0)["consistency"]
    assert loss.item() == pytest.approx(0.0, abs=1e-12)


def test_one_ratio_is_drawn_for_a_whole_batch_and_is_not_folded() -> None:
    torch.manual_seed(0)
    method = ICT(linear(), TASK)
    drawn = [method._draw_mixup(torch.zeros(5, 2)) for _ in range(50)]
    assert all(lam.shape == (1,) and sorted(order.tolist()) == list(range(5)) for order, lam in drawn)
    assert min(lam.item() for _, lam in drawn) < 0.2


@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.00674), (0.125, 0.2865), (0.25, 1.0), (1.0, 1.0)])
def test_the_weight_rises_over_a_quarter_of_the_run(progress: float, share: float) -> None:
    found = []
    for when in (1.0, progress):
        torch.manual_seed(0)
        found.append(ICT(linear(), TASK).losses(batch(), progress=when)["consistency"].item())
    assert found[1] / found[0] == pytest.approx(share, abs=5e-5)


def test_consistency_moves_the_student_and_only_the_student() -> None:
    torch.manual_seed(0)
    method = ICT(linear(), TASK)
    torch.autograd.backward(method.losses(batch(), progress=1.0)["consistency"])
    moved = weight(method.student).grad
    assert moved is not None and moved.any()
    assert weight(method.teacher).grad is None


def test_the_target_is_the_teacher_s() -> None:
    method = ICT(linear(), TASK, ICTConfig(w_max=1.0))
    weight(method.teacher).data.zero_()
    weight(method.student).data.zero_()  # both undecided
    assert method.losses(batch(), progress=1.0)["consistency"].item() == 0.0


def test_after_a_step_the_ema_keeps_ema_decay_of_itself_and_predicts_in_the_end() -> None:
    method = ICT(linear(), TASK, ICTConfig(ema_decay=0.25))
    weight(method.student).data.add_(4.0)
    method.after_step()
    torch.testing.assert_close(weight(method.teacher), torch.eye(2) + 3.0)
    predictor = method.predictor()
    assert isinstance(predictor, DeepPredictor) and predictor.classifier is method.teacher


def test_the_ema_keeps_batch_norm_statistics_of_what_it_saw() -> None:
    net = linear()
    net.features = nn.BatchNorm1d(2)
    method, seen = ICT(net, TASK), batch()
    seen.x_u[0].add_(100.0)
    method.losses(seen, progress=0.0)
    method.after_step()
    torch.testing.assert_close(method.teacher.features.get_buffer("running_mean"), 0.1 * seen.x_u[0].mean(0))


def test_a_mixup_alpha_of_zero_is_refused() -> None:
    with pytest.raises(SettingError, match="mixup_alpha is 0; expected a number above 0"):
        ICTConfig(mixup_alpha=0)
