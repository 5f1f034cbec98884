"""Schedules over a run of 600 epochs, as in Mean Teacher and Temporal Ensembling; and optimizer steps by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from samekind.errors import SettingError
from samekind.methods.base import LearningRateCycles
from samekind.training.schedules import Decay, OptimizerConfig, Schedule


@pytest.mark.parametrize(
    ("epoch", "share"),
    [(0, 0.00674), (40, 0.2865), (80, 1.0), (300, 1.0), (550, 1.0), (575, math.exp(-12.5 / 4)), (600, 3.727e-6)],
)
def test_the_rate_rises_over_80_epochs_and_falls_over_the_last_50(epoch: float, share: float) -> None:
    assert Schedule(lr_max=2.0).lr(epoch / 600) == pytest.approx(2.0 * share, rel=1e-3)


def test_the_highest_rate_is_mean_teacher_s_unless_it_is_given() -> None:
    assert Schedule().lr(0.5) == 0.003


@pytest.mark.parametrize(("epoch", "beta1"), [(0, 0.9), (550, 0.9), (575, 0.5 + 0.4 * math.exp(-12.5 / 4)), (600, 0.5)])
def test_beta1_goes_from_09_to_05_as_the_rate_falls(epoch: float, beta1: float) -> None:
    assert Schedule().betas(epoch / 600)[0] == pytest.approx(beta1, abs=1e-5)


def test_beta2_may_start_lower_during_the_ramp_up() -> None:
    svhn = Schedule(beta2_start=0.99, rampup=0.2)
    assert [svhn.betas(p)[1] for p in (0.0, 0.1999, 0.2, 1.0)] == [0.99, 0.99, 0.999, 0.999]
    assert [Schedule().betas(p)[1] for p in (0.0, 1.0)] == [0.999, 0.999]


def test_a_schedule_without_ramps_is_constant() -> None:
    flat = Schedule(lr_max=0.1, rampup=0.0, rampdown=0.0)
    assert [flat.lr(p) for p in (0.0, 0.5, 1.0)] == [0.1, 0.1, 0.1]
    assert flat.betas(1.0) == (0.9, 0.999)


def test_applying_sets_rate_and_betas_of_every_group() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.Adam([{"params": [p]} for p in parameters], lr=7.0)
    schedule = Schedule()
    schedule.apply(optimizer, progress=575 / 600)
    for group in optimizer.param_groups:
        assert group["lr"] == schedule.lr(575 / 600)
        assert group["betas"] == schedule.betas(575 / 600)


@pytest.mark.parametrize(
    ("epoch", "at"), [(0, 0), (100, 100), (179, 179), (180, 150), (195, 165), (209, 179), (215, 155), (779, 179)]
)
def test_with_cycles_the_rate_falls_along_a_cosine_and_then_replays_the_last_30_epochs(epoch: float, at: float) -> None:
    # fast-SWA on CIFAR-100: 180 epochs of a cosine of length 210, then 20 cycles of 30
    schedule = Schedule(lr_max=2.0, rampup=0.0, cycles=LearningRateCycles(180 / 780, 30 / 780, 210 / 780))
    assert schedule.lr(epoch / 780) == pytest.approx(math.cos(math.pi * at / 210) + 1, rel=1e-6)


def test_with_cycles_there_is_no_decay_at_the_end() -> None:
    schedule = Schedule(lr_max=2.0, cycles=LearningRateCycles(0.5, 0.25, 0.6))
    assert schedule.betas(0.999) == (0.9, 0.999)


# ---------------------------------------------------------------- other falls, and parts of a run


@pytest.mark.parametrize(("t", "share"), [(0.0, 1.0), (0.75, 1.0), (0.875, 0.5), (1.0, 0.0)])
def test_a_line_falls_over_the_last_part(t: float, share: float) -> None:
    schedule = Schedule(lr_max=2.0, rampup=0.0, rampdown=0.25, decay="linear")
    assert schedule.lr(t) == pytest.approx(2.0 * share)
    assert schedule.betas(t)[0] == pytest.approx(0.9 * share + 0.5 * (1 - share))


@pytest.mark.parametrize("t", [0.0, 0.4, 1.0])
def test_a_cosine_falls_from_the_start_on_and_may_be_longer_than_the_run(t: float) -> None:
    # LPDSSL: 180 epochs of a cosine of 210
    schedule = Schedule(lr_max=0.05, rampup=0.0, rampdown=210 / 180, decay="cosine")
    assert schedule.lr(t) == pytest.approx(0.05 * (math.cos(math.pi * t * 180 / 210) + 1) / 2)


def test_stairs_go_down_at_their_places_and_a_rate_that_does_not_fall_stays() -> None:
    stairs = Schedule(lr_max=3.0, rampup=0.0, decay="multistep", milestones=((0.5, 1 / 3), (0.75, 0.1)))
    assert [stairs.lr(t) for t in (0.0, 0.49, 0.5, 0.74, 0.75, 1.0)] == pytest.approx([3.0, 3.0, 1.0, 1.0, 0.3, 0.3])
    assert Schedule(lr_max=2.0, decay="none").lr(1.0) == 2.0
    with pytest.raises(SettingError, match="decay is 'steps'"):
        Schedule(decay="steps")  # type: ignore[arg-type]


@pytest.mark.parametrize("decay", ["linear", "cosine", "multistep", "none"])
def test_the_two_parts_of_a_split_schedule_have_the_rates_of_the_whole(decay: Decay) -> None:
    whole = Schedule(rampup=0.3, rampdown=0.8, decay=decay, milestones=((0.6, 0.5),))
    before, after = whole.split(0.4)
    for t in (0.0, 0.2, 0.5, 0.9, 1.0):
        assert before.lr(t) == pytest.approx(whole.lr(0.4 * t))
        assert after.lr(t) == pytest.approx(whole.lr(0.4 + 0.6 * t))
        assert after.betas(t) == pytest.approx(whole.betas(0.4 + 0.6 * t))


def test_sigmoids_are_those_of_the_second_part() -> None:
    before, after = Schedule().split(0.4)
    assert after == Schedule()
    assert [before.lr(t) for t in (0.0, 0.5, 1.0)] == pytest.approx([0.003 * 0.00674, 0.003, 0.003], rel=1e-3)


# ---------------------------------------------------------------- optimizers


def parameters() -> list[nn.Parameter]:
    """Return a matrix, a bias, and a parameter that is not trained."""
    return [nn.Parameter(torch.full((1, 1), 2.0)), nn.Parameter(torch.full((1,), 2.0)), nn.Parameter(torch.ones(1), False)]


def moved(by: OptimizerConfig, gradients: list[float], lr: float = 0.1) -> tuple[float, float]:
    """Return a weight and a bias, both 2 at the start, after a step with each of these gradients."""
    weight, bias, still = parameters()
    optimizer = by.build([weight, bias, still])
    for gradient in gradients:
        Schedule(lr_max=lr, rampup=0.0, rampdown=0.0).apply(optimizer, 0.5)
        weight.grad, bias.grad = torch.full((1, 1), gradient), torch.full((1,), gradient)
        optimizer.step()
    assert still.item() == 1.0
    return weight.item(), bias.item()


def test_sgd_takes_nesterov_s_step() -> None:
    # v <- 0.9 v + g; p <- p - lr (g + 0.9 v): by 1.9 lr first, then by (1 + 0.9 * 1.9) lr
    assert moved(OptimizerConfig("sgd"), [1.0]) == pytest.approx((2 - 0.19, 2 - 0.19))
    assert moved(OptimizerConfig("sgd"), [1.0, 1.0]) == pytest.approx((2 - 0.19 - 0.271, 2 - 0.19 - 0.271))
    assert moved(OptimizerConfig("sgd", momentum=0.0), [1.0, 1.0]) == pytest.approx((1.8, 1.8))


def test_adam_takes_a_step_as_long_as_the_rate() -> None:
    assert moved(OptimizerConfig(), [7.0]) == pytest.approx((1.9, 1.9))


def test_weights_shrink_and_biases_do_not() -> None:
    # SGD: 0.5 * 2 more gradient, times 1.9 lr. Adam: by lr * 0.5 of itself
    assert moved(OptimizerConfig("sgd", weight_decay=0.5), [0.0]) == pytest.approx((2 - 0.19, 2.0))
    assert moved(OptimizerConfig("adam", weight_decay=0.5), [0.0]) == pytest.approx((2 - 0.1 * 0.5 * 2, 2.0))


@pytest.mark.parametrize("wrong", [{"kind": "lion"}, {"momentum": 1.0}, {"weight_decay": -1.0}])
def test_steps_that_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingError, match=f"{next(iter(wrong))} (is )?"):
        OptimizerConfig(**wrong)  # type: ignore[arg-type]
