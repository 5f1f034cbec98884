"""EMA teacher: what it keeps of itself, and which batch-norm statistics it uses."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from samekind.nets.conv13 import MeanOnlyNorm
from samekind.nets.ema import ema_copy, layers_with_running_statistics, recompute_norm_statistics, update_ema, warmed_up_decay


def constant_norm(value: float) -> nn.BatchNorm1d:
    """Return a batch norm of one channel whose parameters and running statistics all are `value`."""
    norm = nn.BatchNorm1d(1)
    for tensor in (norm.weight.data, norm.bias.data, *norm.buffers()):
        tensor.fill_(value)
    return norm


def test_after_a_step_the_teacher_keeps_the_decay_of_itself() -> None:
    student, teacher = nn.Linear(3, 2), nn.Linear(3, 2)
    before = teacher.weight.detach().clone()
    update_ema(teacher, student, decay=0.9)
    torch.testing.assert_close(teacher.weight, 0.9 * before + 0.1 * student.weight)


def test_the_student_does_not_change() -> None:
    student, teacher = nn.Linear(3, 2), nn.Linear(3, 2)
    before = student.weight.detach().clone()
    update_ema(teacher, student, decay=0.9)
    assert torch.equal(student.weight, before)


def test_a_decay_of_zero_makes_the_teacher_the_student() -> None:
    student, teacher = nn.Linear(3, 2), nn.Linear(3, 2)
    update_ema(teacher, student, decay=0.0)
    assert torch.equal(teacher.weight, student.weight)
    assert torch.equal(teacher.bias, student.bias)


@pytest.mark.parametrize(("statistics", "expected"), [("own", 1.0), ("copy", 3.0), ("ema", 1.5)])
def test_running_statistics_are_kept_copied_or_averaged(statistics: str, expected: float) -> None:
    student, teacher = constant_norm(3.0), constant_norm(1.0)
    update_ema(teacher, student, decay=0.75, statistics=statistics)  # type: ignore[arg-type]
    assert teacher.weight.item() == 1.5
    assert teacher.running_mean is not None and teacher.running_mean.item() == expected
    assert teacher.running_var is not None and teacher.running_var.item() == expected


@pytest.mark.parametrize(("statistics", "expected"), [("own", 1), ("copy", 3), ("ema", 3)])
def test_the_count_of_batches_is_copied_where_it_cannot_be_averaged(statistics: str, expected: int) -> None:
    student, teacher = constant_norm(3.0), constant_norm(1.0)
    update_ema(teacher, student, decay=0.75, statistics=statistics)  # type: ignore[arg-type]
    assert teacher.num_batches_tracked is not None and teacher.num_batches_tracked.item() == expected


def test_a_teacher_that_forwards_training_data_gathers_its_own_statistics() -> None:
    student = nn.BatchNorm1d(1)
    teacher = ema_copy(student)
    teacher(torch.tensor([[10.0], [12.0]]))
    update_ema(teacher, student, decay=0.5)
    assert teacher.running_mean is not None and teacher.running_mean.item() == pytest.approx(0.1 * 11.0)
    assert student.running_mean is not None and student.running_mean.item() == 0.0


def test_an_ema_copy_gets_no_gradient() -> None:
    student = nn.Linear(3, 2)
    teacher = ema_copy(student)
    x = torch.ones(1, 3)
    (student(x) * teacher(x)).sum().backward()
    assert student.weight.grad is not None
    assert teacher.weight.grad is None
    assert not any(p.requires_grad for p in teacher.parameters())


def test_an_ema_copy_starts_equal_and_shares_nothing() -> None:
    student = nn.Linear(3, 2)
    teacher = ema_copy(student)
    before = teacher.weight.clone()
    assert torch.equal(teacher.weight, student.weight)
    student.weight.data.add_(1.0)
    assert torch.equal(teacher.weight, before)


def test_the_warm_up_is_a_plain_average_until_the_decay_is_reached() -> None:
    assert warmed_up_decay(0.99, step=0) == 0.0
    assert warmed_up_decay(0.99, step=1) == 0.5
    assert warmed_up_decay(0.99, step=98) == pytest.approx(98 / 99)
    assert warmed_up_decay(0.99, step=1000) == 0.99


def test_a_warmed_up_teacher_is_the_mean_of_all_students_so_far() -> None:
    student, teacher = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    for step, value in enumerate([4.0, 1.0, 7.0]):
        student.weight.data.fill_(value)
        update_ema(teacher, student, warmed_up_decay(0.999, step))
    assert teacher.weight.item() == pytest.approx((4.0 + 1.0 + 7.0) / 3)


def test_recomputed_statistics_are_the_mean_over_the_batches() -> None:
    # batches (0, 2) and (4, 10): means 1 and 7, variances (with n - 1) 2 and 18; the old statistics are forgotten
    net = nn.Sequential(nn.Dropout(0.9), constant_norm(5.0))
    recompute_norm_statistics(net.train(), [torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0], [10.0]])])
    norm = net[1]
    assert norm.get_buffer("running_mean").item() == pytest.approx(4.0)
    assert norm.get_buffer("running_var").item() == pytest.approx(10.0)


def test_recomputing_statistics_keeps_modes_momentum_and_random_state() -> None:
    net = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(1), nn.BatchNorm1d(1, momentum=0.3))
    net[1].eval()
    rng_state = torch.get_rng_state()
    recompute_norm_statistics(net, [torch.randn(4, 1, generator=torch.Generator().manual_seed(0))])
    assert [part.training for part in net] == [True, False, True]
    assert [getattr(part, "momentum", None) for part in net] == [None, 0.1, 0.3]
    assert torch.equal(torch.get_rng_state(), rng_state)


def test_statistics_of_mean_only_norms_are_recomputed_too() -> None:
    norm = MeanOnlyNorm(1)
    recompute_norm_statistics(norm, [torch.tensor([[[[1.0]]], [[[3.0]]]]), torch.tensor([[[[8.0]]]])])
    assert norm.running_mean.item() == pytest.approx(5.0)


def test_a_norm_without_running_statistics_is_skipped() -> None:
    assert layers_with_running_statistics(nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1, track_running_stats=False))) == []
    assert len(layers_with_running_statistics(nn.Sequential(nn.BatchNorm1d(1), nn.ReLU()))) == 1
