"""OptimizerConfig by hand: Adam, SGD with Nesterov's correction, and weight decay of weights alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from samekind.errors import SettingError
from samekind.training.schedules import OptimizerConfig, Schedule


def parameters() -> list[nn.Parameter]:
    """A matrix, a bias, and one that is not trained."""
    return [nn.Parameter(torch.full((1, 1), 2.0)), nn.Parameter(torch.full((1,), 2.0)), nn.Parameter(torch.ones(1), False)]


def moved(by: OptimizerConfig, gradients: list[float], lr: float = 0.1) -> tuple[float, float]:
    """Where a weight and a bias of 2 are after a step along each of these gradients."""
    weight, bias, still = parameters()
    optimizer = by.build([weight, bias, still])
    for gradient in gradients:
        Schedule(lr_max=lr, rampup=0.0, rampdown=0.0).apply(optimizer, 0.5)
        weight.grad, bias.grad = torch.full((1, 1), gradient), torch.full((1,), gradient)
        optimizer.step()
    assert still.item() == 1.0
    return weight.item(), bias.item()


def test_sgd_takes_nesterov_s_step() -> None:
    """v <- 0.9 v + g; p <- p - lr (g + 0.9 v): by 1.9 lr first, then by (1 + 0.9 * 1.9) lr."""
    assert moved(OptimizerConfig("sgd"), [1.0]) == pytest.approx((2 - 0.19, 2 - 0.19))
    assert moved(OptimizerConfig("sgd"), [1.0, 1.0]) == pytest.approx((2 - 0.19 - 0.271, 2 - 0.19 - 0.271))
    assert moved(OptimizerConfig("sgd", momentum=0.0), [1.0, 1.0]) == pytest.approx((1.8, 1.8))


def test_adam_takes_a_step_as_long_as_the_rate() -> None:
    assert moved(OptimizerConfig(), [7.0]) == pytest.approx((1.9, 1.9))


def test_weights_shrink_and_biases_do_not() -> None:
    """SGD: 0.5 * 2 more gradient, times 1.9 lr. Adam: by lr * 0.5 of itself."""
    assert moved(OptimizerConfig("sgd", weight_decay=0.5), [0.0]) == pytest.approx((2 - 0.19, 2.0))
    assert moved(OptimizerConfig("adam", weight_decay=0.5), [0.0]) == pytest.approx((2 - 0.1 * 0.5 * 2, 2.0))


@pytest.mark.parametrize("wrong", [{"kind": "lion"}, {"momentum": 1.0}, {"weight_decay": -1.0}])
def test_steps_that_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingError, match=f"{next(iter(wrong))} (is )?"):
        OptimizerConfig(**wrong)  # type: ignore[arg-type]
