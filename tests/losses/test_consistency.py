"""Consistency losses: a mean over samples and classes for predictions, a sum over pairs for similarities."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from samekind.losses.consistency import similarity_consistency, softmax_mse

CERTAIN = torch.tensor([[100.0, 0.0], [0.0, 100.0]])


def logits(seed: int, n: int = 4, width: int = 2) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_two_opposite_certain_predictions_have_an_error_of_one() -> None:
    assert softmax_mse(CERTAIN[:1], CERTAIN[1:]).item() == pytest.approx(1.0)


def test_the_squared_error_is_a_mean_over_samples_and_classes() -> None:
    # (3/4, 1/4) against (1/2, 1/2): two squares of 1/16; the second sample is equal
    one = torch.tensor([[math.log(3.0), 0.0], [1.0, 1.0]])
    assert softmax_mse(one, torch.zeros(2, 2)).item() == pytest.approx(2 / 16 / 4)


def test_more_classes_make_the_mean_error_smaller() -> None:
    one, other = torch.zeros(1, 10), torch.zeros(1, 10)
    one[0, 0], other[0, 1] = 100.0, 100.0
    assert softmax_mse(one, other).item() == pytest.approx(2 / 10)


def test_a_constant_added_to_all_logits_does_not_matter() -> None:
    assert softmax_mse(logits(0), logits(0) + 7.0).item() == pytest.approx(0.0, abs=1e-15)


def test_two_opposite_certain_similarities_have_an_error_of_two() -> None:
    assert similarity_consistency(CERTAIN[:1], CERTAIN[1:]).item() == pytest.approx(2.0)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**16))
def test_the_consistency_of_a_pair_is_twice_the_squared_difference_of_w(seed: int) -> None:
    phi, teacher = logits(seed), logits(seed + 1)
    W, teacher_W = torch.softmax(phi, dim=1)[:, 0], torch.softmax(teacher, dim=1)[:, 0]
    torch.testing.assert_close(similarity_consistency(phi, teacher), (2 * (W - teacher_W) ** 2).sum())


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**16))
def test_consistency_is_equation_10_over_both_outputs(seed: int) -> None:
    phi, teacher = logits(seed), logits(seed + 1)
    both = (torch.softmax(phi, dim=1) - torch.softmax(teacher, dim=1)).square().sum()
    torch.testing.assert_close(similarity_consistency(phi, teacher), both)


def test_weights_scale_each_pair() -> None:
    phi, teacher = torch.cat([CERTAIN, CERTAIN]), torch.zeros(4, 2)  # each pair: 2 (1/2)^2
    weight = torch.tensor([1.0, 0.0, 3.0, 0.5])
    assert similarity_consistency(phi, teacher).item() == pytest.approx(4 * 0.5)
    assert similarity_consistency(phi, teacher, weight).item() == pytest.approx(4.5 * 0.5)


def test_gradients_are_those_of_finite_differences() -> None:
    one, other = logits(0).requires_grad_(), logits(1).requires_grad_()
    weight = torch.rand(4, generator=torch.Generator().manual_seed(2), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(softmax_mse, (one, other))
    assert torch.autograd.gradcheck(similarity_consistency, (one, other))
    assert torch.autograd.gradcheck(similarity_consistency, (one, other, weight))
