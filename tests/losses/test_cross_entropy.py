"""Supervised losses of samples and pairs, in numbers that can be checked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from samekind.losses.cross_entropy import label_cross_entropy, label_hinge, pair_cross_entropy

SAME = torch.tensor([True, False, True, False])


def test_equal_logits_cost_ln_c_for_each_sample() -> None:
    loss = label_cross_entropy(torch.zeros(3, 4), torch.tensor([0, 1, 3]))
    assert loss.item() == pytest.approx(3 * math.log(4))


def test_the_cross_entropy_of_labels_is_a_sum_over_samples() -> None:
    logits = torch.tensor([[math.log(3.0), 0.0], [0.0, math.log(4.0)]])  # f = (3/4, 1/4) and (1/5, 4/5)
    loss = label_cross_entropy(logits, torch.tensor([0, 0]))
    assert loss.item() == pytest.approx(-math.log(3 / 4) - math.log(1 / 5))


def test_a_pair_costs_minus_ln_w_if_same_and_minus_ln_one_minus_w_if_not() -> None:
    logits = torch.tensor([[math.log(3.0), 0.0]])  # W = 3/4
    assert pair_cross_entropy(logits, torch.tensor([True])).item() == pytest.approx(-math.log(3 / 4))
    assert pair_cross_entropy(logits, torch.tensor([False])).item() == pytest.approx(-math.log(1 / 4))


def test_pairs_with_equal_logits_cost_ln_2_each() -> None:
    assert pair_cross_entropy(torch.zeros(4, 2), SAME).item() == pytest.approx(4 * math.log(2))


@settings(max_examples=25, deadline=None)
@given(values=st.lists(st.floats(-30, 30), min_size=8, max_size=8))
def test_the_cross_entropy_of_pairs_is_that_of_two_classes(values: list[float]) -> None:
    logits = torch.tensor(values, dtype=torch.float64).view(4, 2)
    expected = F.cross_entropy(logits, (~SAME).long(), reduction="sum")
    torch.testing.assert_close(pair_cross_entropy(logits, SAME), expected)


def test_weights_scale_each_pair() -> None:
    logits = torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0]])
    weight = torch.tensor([2.0, 0.5])
    loss = pair_cross_entropy(logits, torch.tensor([False, True]), weight)
    assert loss.item() == pytest.approx(2.0 * math.log(4) + 0.5 * math.log(2))


def test_weights_of_one_change_nothing() -> None:
    logits = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(pair_cross_entropy(logits, SAME, torch.ones(4)), pair_cross_entropy(logits, SAME))


def test_a_confident_error_has_a_large_but_finite_cost() -> None:
    logits = torch.tensor([[500.0, -500.0]])
    assert pair_cross_entropy(logits, torch.tensor([False])).item() == pytest.approx(1000.0)
    assert pair_cross_entropy(logits, torch.tensor([True])).item() == pytest.approx(0.0)


def test_gradients_are_those_of_finite_differences() -> None:
    logits = torch.randn(4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    weight = torch.rand(4, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 1, 1, 0])
    assert torch.autograd.gradcheck(lambda a: label_cross_entropy(a, y), (logits,))
    assert torch.autograd.gradcheck(lambda a, w: pair_cross_entropy(a, SAME, w), (logits, weight))


def test_the_hinge_loss_is_zero_beyond_a_margin_of_one() -> None:
    outputs = torch.tensor([[2.0, -1.0, -3.0], [0.5, 0.0, -2.0]])
    # the first sample has a margin of 1 everywhere; the second lacks 1.5 for class 0 and 1 for class 1
    assert label_hinge(outputs, torch.tensor([0, 1])).item() == 2.5
    assert label_hinge(outputs[:1], torch.tensor([0])).item() == 0.0
