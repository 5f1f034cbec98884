"""Mean Teacher: the target is the teacher's, only the student gets a gradient, and the teacher is an EMA."""

from __future__ import annotations

import math

import pytest
import torch
from tests.methods.by_hand import linear, weight
from torch import nn

from samekind.data.dataset import Batch
from samekind.errors import SettingError
from samekind.methods.base import Task
from samekind.methods.mean_teacher import MeanTeacher, MeanTeacherConfig, ema_decay_for
from samekind.methods.predictors import DeepPredictor

TASK = Task(n_classes=2, n_labelled=2, n_samples=100, steps=100)
LN3 = math.log(3.0)


def batch() -> Batch:
    """Return unlabelled samples, the first as (3/4, 1/4) and (1/2, 1/2), and two labelled ones at (3/4, 1/4)."""
    x_a = torch.tensor([[LN3, 0.0], [1.0, 1.0], [2.0, 2.0]])
    x_b = torch.tensor([[0.0, 0.0], [3.0, 3.0], [0.0, 0.0]])
    return Batch((torch.tensor([[LN3, 0.0], [LN3, 0.0]]),), torch.tensor([0, 1]), (x_a, x_b), torch.arange(3))


def test_labels_are_divided_by_the_whole_batch() -> None:
    loss = MeanTeacher(linear(), TASK).losses(batch(), progress=0.0)["supervised"]
    assert loss.item() == pytest.approx((math.log(4 / 3) + math.log(4)) / (3 + 2))


def test_disagreement_with_the_teacher_is_a_mean_over_samples_and_classes() -> None:
    loss = MeanTeacher(linear(), TASK, MeanTeacherConfig(w_max=8.0)).losses(batch(), progress=1.0)["consistency"]
    assert loss.item() == pytest.approx(8.0 * 2 * 0.25**2 / (3 * 2))


def test_the_target_is_the_teacher_s_prediction_for_the_second_view() -> None:
    method = MeanTeacher(linear(), TASK, MeanTeacherConfig(w_max=1.0))
    weight(method.teacher).data.zero_()  # undecided about everything
    loss = method.losses(batch(), progress=1.0)["consistency"]
    weight(method.student).data.zero_()
    agreed = method.losses(batch(), progress=1.0)["consistency"]
    assert loss.item() == pytest.approx(2 * 0.25**2 / 6)
    assert agreed.item() == 0.0


@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.00674), (0.25, 0.2865), (0.5, 1.0), (1.0, 1.0)])
def test_the_weight_of_consistency_rises_over_its_ramp(progress: float, share: float) -> None:
    method = MeanTeacher(linear(), TASK, MeanTeacherConfig(w_max=8.0, rampup=0.5))
    full, now = (method.losses(batch(), progress=p)["consistency"].item() for p in (1.0, progress))
    assert now / full == pytest.approx(share, abs=5e-5)


def test_the_weight_by_rule_reaches_the_loss() -> None:
    loss = MeanTeacher(linear(), TASK).losses(batch(), progress=1.0)["consistency"]
    assert loss.item() == pytest.approx((100 * 2 / 100) * 2 * 0.25**2 / 6)


def test_consistency_moves_the_student_and_only_the_student() -> None:
    method, seen = MeanTeacher(linear(), TASK), batch()
    second = seen.x_u[1].requires_grad_()
    torch.autograd.backward(method.losses(seen, progress=1.0)["consistency"])
    moved = weight(method.student).grad
    assert moved is not None
    assert moved.abs().sum() > 0
    assert weight(method.teacher).grad is None
    assert second.grad is None


def test_the_teacher_starts_as_a_copy_that_wants_no_gradient() -> None:
    method = MeanTeacher(linear(), TASK)
    assert torch.equal(weight(method.teacher), weight(method.student))
    assert [p.requires_grad for p in method.teacher.parameters()] == [False]
    assert weight(method.teacher).data_ptr() != weight(method.student).data_ptr()


def test_after_a_step_the_teacher_keeps_ema_decay_of_itself() -> None:
    method = MeanTeacher(linear(), TASK, MeanTeacherConfig(ema_decay=0.25))
    weight(method.student).data.add_(4.0)
    method.after_step()
    torch.testing.assert_close(weight(method.teacher), torch.eye(2) + 3.0)


def test_at_first_the_teacher_is_the_true_average_of_all_students() -> None:
    method = MeanTeacher(linear(), TASK, MeanTeacherConfig(ema_decay=0.999))
    for factor in (3.0, 5.0, 11.0):
        weight(method.student).data.copy_(factor * torch.eye(2))
        method.after_step()
    torch.testing.assert_close(weight(method.teacher), (1 + 3 + 5 + 11) / 4 * torch.eye(2))


def test_during_the_ramp_up_the_teacher_has_the_decay_ema_decay_start() -> None:
    method = MeanTeacher(linear(), TASK, MeanTeacherConfig(ema_decay=0.25, ema_decay_start=0.0, rampup=2 / TASK.steps))
    for factor, expected in ((3.0, 3.0), (5.0, 5.0), (9.0, 0.25 * 5.0 + 0.75 * 9.0)):
        weight(method.student).data.copy_(factor * torch.eye(2))
        method.after_step()
        torch.testing.assert_close(weight(method.teacher), expected * torch.eye(2))


def test_an_alpha_start_out_of_range_is_refused() -> None:
    with pytest.raises(SettingError, match=r"ema_decay_start is 1\.5; expected a number from 0 to 1"):
        MeanTeacherConfig(ema_decay_start=1.5)


@pytest.mark.parametrize(("steps", "alpha"), [(1, 0.0), (50, 0.0), (100, 0.5), (1000, 0.95), (50_000, 0.999), (300_000, 0.999)])
def test_the_average_spans_2_per_cent_of_the_run_and_at_most_1000_steps(steps: int, alpha: float) -> None:
    assert ema_decay_for(None, Task(2, 2, 100, steps=steps)) == pytest.approx(alpha)


def test_an_alpha_that_is_given_is_used() -> None:
    assert ema_decay_for(0.9, TASK) == 0.9
    assert ema_decay_for(0.0, TASK) == 0.0


def test_the_teacher_s_batch_norm_keeps_statistics_of_what_it_saw() -> None:
    net = linear()
    net.features = nn.BatchNorm1d(2)
    method, seen = MeanTeacher(net, TASK), batch()
    seen.x_u[1].add_(100.0)
    method.losses(seen, progress=0.0)
    method.after_step()
    norms = [c.features for c in (method.student, method.teacher)]
    means = [n.running_mean for n in norms if isinstance(n, nn.BatchNorm1d) and n.running_mean is not None]
    torch.testing.assert_close(means[0], 0.1 * torch.cat([seen.x_u[0], seen.x_l[0]]).mean(0))
    torch.testing.assert_close(means[1], 0.1 * seen.x_u[1].mean(0))


def test_the_teacher_predicts_in_the_end() -> None:
    method = MeanTeacher(linear(), TASK)
    weight(method.student).data.zero_()
    predictor = method.predictor()
    assert isinstance(predictor, DeepPredictor)
    torch.testing.assert_close(predictor.probabilities(torch.tensor([[LN3, 0.0]])), torch.tensor([[0.75, 0.25]]))


def test_with_the_strong_view_the_student_gets_the_strong_and_the_teacher_the_weak_view() -> None:
    method = MeanTeacher(linear(), TASK, MeanTeacherConfig(strong_view=True))
    assert method.unlabelled_views == ("strong", "weak")
