"""Entropy minimization: the entropy term by hand, and its ramp-up."""

from __future__ import annotations

import math

import pytest
import torch
from tests.methods.by_hand import linear, weight

from samekind.data.dataset import Batch
from samekind.methods.base import Task
from samekind.methods.entropy_minimization import EntropyMinimization, EntropyMinimizationConfig

TASK = Task(n_classes=2, n_labelled=2, n_samples=100, steps=100)
LN3 = math.log(3.0)


def batch() -> Batch:
    """Return unlabelled samples at (1/2, 1/2) and (3/4, 1/4), and two labelled ones at (3/4, 1/4)."""
    x_l = torch.tensor([[LN3, 0.0], [LN3, 0.0]])
    return Batch((x_l,), torch.tensor([0, 1]), (torch.tensor([[0.0, 0.0], [LN3, 0.0]]),), torch.arange(2))


@pytest.mark.parametrize(("progress", "fraction"), [(0.0, 0.0), (0.1, 0.25), (0.4, 1.0), (1.0, 1.0)])
def test_the_entropy_is_a_mean_over_samples_and_ramps_up(progress: float, fraction: float) -> None:
    terms = EntropyMinimization(linear(), TASK, EntropyMinimizationConfig(w_max=2.0)).losses(batch(), progress)
    entropies = math.log(2), 2 * math.log(2) - 0.75 * LN3
    assert terms["entropy"].item() == pytest.approx(2.0 * fraction * sum(entropies) / 2)
    assert terms["supervised"].item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)


def test_the_entropy_makes_a_prediction_more_confident() -> None:
    method = EntropyMinimization(linear(), TASK)
    torch.autograd.backward(method.losses(batch(), progress=1.0)["entropy"])
    gradient = weight(method.student).grad
    assert gradient is not None
    assert gradient[0, 0] < 0 < gradient[1, 0]  # a step against it raises the logit of the more probable class
