"""Pi model: the student predicts both views, and gradient flows through both."""

from __future__ import annotations

import math

import pytest
import torch
from tests.methods.by_hand import linear
from torch import nn

from samekind.data.dataset import Batch, Dataset
from samekind.errors import SettingError
from samekind.methods.base import Task
from samekind.methods.pi_model import PiModel, PiModelConfig, consistency_weight
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier

TASK = Task(n_classes=2, n_labelled=2, n_samples=100, steps=100)
LN3 = math.log(3.0)


def batch() -> Batch:
    """Return unlabelled samples, the first as (3/4, 1/4) and (1/2, 1/2), and two labelled ones at (3/4, 1/4)."""
    x_a = torch.tensor([[LN3, 0.0], [1.0, 1.0], [2.0, 2.0]])
    x_b = torch.tensor([[0.0, 0.0], [3.0, 3.0], [0.0, 0.0]])
    return Batch((torch.tensor([[LN3, 0.0], [LN3, 0.0]]),), torch.tensor([0, 1]), (x_a, x_b), torch.arange(3))


def test_labels_are_divided_by_the_whole_batch() -> None:
    loss = PiModel(linear(), TASK).losses(batch(), progress=0.0)["supervised"]
    assert loss.item() == pytest.approx((math.log(4 / 3) + math.log(4)) / (3 + 2))


def test_disagreement_is_a_mean_over_samples_and_classes() -> None:
    loss = PiModel(linear(), TASK, PiModelConfig(w_max=8.0)).losses(batch(), progress=1.0)["consistency"]
    assert loss.item() == pytest.approx(8.0 * 2 * 0.25**2 / (3 * 2))


@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.00674), (0.25, 0.2865), (0.5, 1.0), (1.0, 1.0)])
def test_the_weight_of_consistency_rises_over_its_ramp(progress: float, share: float) -> None:
    method = PiModel(linear(), TASK, PiModelConfig(w_max=8.0, rampup=0.5))
    full, now = (method.losses(batch(), progress=p)["consistency"].item() for p in (1.0, progress))
    assert now / full == pytest.approx(share, abs=5e-5)


def test_the_supervised_term_does_not_rise() -> None:
    method = PiModel(linear(), TASK)
    early, late = (method.losses(batch(), progress=p)["supervised"] for p in (0.0, 1.0))
    assert torch.equal(early, late)


def test_the_weight_follows_the_fraction_of_labels_unless_it_is_given() -> None:
    assert consistency_weight(None, Task(10, n_labelled=1000, n_samples=50_000, steps=1)) == pytest.approx(2.0)
    assert consistency_weight(None, Task(10, n_labelled=4000, n_samples=50_000, steps=1)) == pytest.approx(8.0)
    assert consistency_weight(5.0, TASK) == 5.0
    assert consistency_weight(0.0, TASK) == 0.0


def test_the_weight_by_rule_reaches_the_loss() -> None:
    loss = PiModel(linear(), TASK).losses(batch(), progress=1.0)["consistency"]
    assert loss.item() == pytest.approx((100 * 2 / 100) * 2 * 0.25**2 / 6)


def test_consistency_moves_the_student_through_both_views() -> None:
    seen = batch()
    first, second = (x.requires_grad_() for x in seen.x_u)
    torch.autograd.backward(PiModel(linear(), TASK).losses(seen, progress=1.0)["consistency"])
    assert first.grad is not None
    assert second.grad is not None
    assert first.grad[0].abs().sum() > 0
    assert second.grad[0].abs().sum() > 0


def test_all_samples_go_through_the_student_in_one_forward() -> None:
    net = linear()
    net.features = nn.BatchNorm1d(2)
    PiModel(net, TASK).losses(batch(), progress=0.0)
    assert net.features.num_batches_tracked is not None
    assert net.features.num_batches_tracked.item() == 1


def test_there_is_no_teacher_and_the_student_predicts() -> None:
    method = PiModel(linear(), TASK)
    weight = method.student.head.get_parameter("weight")
    before = weight.clone()
    method.after_step()
    predictor = method.predictor()
    assert method.teacher is None
    assert torch.equal(weight, before)
    assert isinstance(predictor, DeepPredictor)
    torch.testing.assert_close(predictor.probabilities(torch.tensor([[LN3, 0.0]])), torch.tensor([[0.75, 0.25]]))


def test_diagnostics_hold_the_mean_prediction_of_the_dataset() -> None:
    method = PiModel(linear(), TASK)
    method.losses(batch(), progress=0.0)
    torch.testing.assert_close(method.diagnostics["mean_f"], torch.tensor([1.75, 1.25]) / 3)


# ---------------------------------------------------------------- both views flipped together


def image_classifier() -> Classifier:
    """Return a net whose logits are the two pixels of an image of one line."""
    head = nn.Linear(2, 2, bias=False)
    head.weight.data.copy_(torch.eye(2))
    return Classifier(nn.Flatten(), 2, 2, head=head)


def views(second: list[float]) -> Batch:
    """Return sixty-four images (ln 3, 0) with the given second views."""
    x_a = torch.tensor([LN3, 0.0]).view(1, 1, 1, 2).repeat(64, 1, 1, 1)
    x_b = torch.tensor(second).view(1, 1, 1, 2).repeat(64, 1, 1, 1)
    return Batch((x_a[:8],), torch.zeros(8, dtype=torch.long), (x_a, x_b), torch.arange(64))


def test_both_views_of_an_image_are_flipped_together_or_not_at_all() -> None:
    torch.manual_seed(0)
    method = PiModel(image_classifier(), TASK, PiModelConfig(w_max=1.0, random_flip=True))
    assert method.losses(views([LN3, 0.0]), progress=1.0)["consistency"].item() == 0.0
    f = method.diagnostics["mean_f"][0].item()
    assert 0.25 < f < 0.75  # some were mirrored, some were not
    opposite = method.losses(views([0.0, LN3]), progress=1.0)["consistency"]
    assert opposite.item() == pytest.approx(0.5**2)


def test_without_the_setting_nothing_is_flipped() -> None:
    method = PiModel(image_classifier(), TASK)
    method.losses(views([LN3, 0.0]), progress=1.0)
    assert method.diagnostics["mean_f"][0].item() == pytest.approx(0.75)


def test_vectors_cannot_be_mirrored() -> None:
    dataset = Dataset(torch.zeros(4, 2), torch.tensor([0, 1, -1, -1]), 2)
    PiModel(linear(), TASK).refresh(dataset)
    with pytest.raises(SettingError, match=r"samples of shape \(2,\) cannot be flipped"):
        PiModel(linear(), TASK, PiModelConfig(random_flip=True)).refresh(dataset)
