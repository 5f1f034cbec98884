"""Losses between weak and strong views: denominators, calibration, and empty batches."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from samekind.losses.weak_strong_losses import (
    aggregate_by_class,
    align_to_uniform,
    calibrate_similarities,
    fairness,
    inner_products,
    masked_cross_entropy,
    propagated_cross_entropy,
    pseudo_label_graph,
)

LN3 = math.log(3.0)
QUARTERS = torch.tensor([[LN3, 0.0], [0.0, LN3]])  # (3/4, 1/4) and (1/4, 3/4)


def test_masked_samples_count_in_the_denominator() -> None:
    loss = masked_cross_entropy(QUARTERS, torch.tensor([0, 0]), torch.tensor([False, True]))
    assert loss.item() == pytest.approx(math.log(4) / 2)


def test_a_propagated_label_counts_by_its_certainty() -> None:
    # the predictions (3/4, 1/4) and (1/4, 3/4), and a third; the propagated labels are certain, of certainty w, and unknown
    F_star = torch.tensor([[0.0, 1.0], [0.75, 0.25], [0.5, 0.5]])
    w = 1.0 - (2 * math.log(2) - 0.75 * LN3) / math.log(2)
    loss = propagated_cross_entropy(torch.cat([QUARTERS, QUARTERS[:1]]), F_star)
    assert loss.item() == pytest.approx((math.log(4) + w * math.log(4)) / 3)


def test_a_target_may_be_soft() -> None:
    loss = masked_cross_entropy(QUARTERS, torch.tensor([[0.5, 0.5], [0.0, 1.0]]), torch.tensor([True, True]))
    assert loss.item() == pytest.approx((0.5 * math.log(4 / 3) + 0.5 * math.log(4) + math.log(4 / 3)) / 2)


def test_fairness_weights_rare_and_frequent_classes_equally() -> None:
    # three samples predict (3/4, 1/4), one (1/4, 3/4): the mean (5/8, 3/8) over the fractions (3/4, 1/4) is (5/14, 9/14)
    logits = QUARTERS[[0, 0, 0, 1]]
    loss = fairness(logits, p=torch.tensor([0.6, 0.4]), fractions=torch.tensor([0.75, 0.25]))
    # p over the fractions is (0.8, 1.6), normalised (1/3, 2/3)
    assert loss.item() == pytest.approx(math.log(5 / 14) / 3 + 2 * math.log(9 / 14) / 3)


def test_fairness_is_finite_if_a_class_is_never_predicted() -> None:
    logits = QUARTERS[[0, 0]].requires_grad_()
    loss = fairness(logits, p=torch.tensor([0.5, 0.5]), fractions=torch.tensor([1.0, 0.0]))
    torch.autograd.backward(loss)
    assert loss.item() == 0.0  # the only predicted class has m' = 1
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_fairness_of_an_empty_batch_is_zero_and_has_a_gradient() -> None:
    logits = torch.zeros(0, 2, requires_grad=True)
    loss = fairness(logits, torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.5]))
    torch.autograd.backward(loss)
    assert loss.item() == 0.0


def test_alignment_raises_a_class_that_is_rarely_predicted() -> None:
    q = torch.tensor([[0.6, 0.4]])
    torch.testing.assert_close(align_to_uniform(q, torch.tensor([0.75, 0.25])), torch.tensor([[1 / 3, 2 / 3]]))


def test_a_class_that_is_never_predicted_stays_at_zero() -> None:
    assert align_to_uniform(torch.tensor([[1.0, 0.0]]), torch.tensor([1.0, 0.0])).tolist() == [[1.0, 0.0]]


def test_similarities_are_calibrated_by_class_and_summed_per_class() -> None:
    near, y = torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([1, 0, 1])
    torch.testing.assert_close(
        calibrate_similarities(near, torch.tensor([[0.6, 0.4]]), y), torch.tensor([[0.2, 0.15, 0.1]]) / 0.45
    )
    torch.testing.assert_close(aggregate_by_class(near, y, 3), torch.tensor([[0.25, 0.75, 0.0]]))


def test_similarities_to_impossible_classes_become_zero() -> None:
    assert calibrate_similarities(torch.tensor([[1.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([1])).tolist() == [[0.0]]


def test_the_pseudo_label_graph_has_self_loops_and_edges_only_where_labels_agree() -> None:
    q = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    expected = torch.tensor([[1 / 1.9, 0.9 / 1.9, 0.0], [0.9 / 1.9, 1 / 1.9, 0.0], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(pseudo_label_graph(q, 0.8), expected)  # the diagonal is 1, though 0.9^2 + 0.1^2 is 0.82


def test_a_sample_without_agreement_has_only_its_self_loop() -> None:
    assert pseudo_label_graph(torch.full((2, 2), 0.5), 0.8).tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inner_products_are_in_full_precision_inside_autocast(dtype: torch.dtype) -> None:
    a: Tensor = torch.tensor([[1.0, 1e-4]], dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = inner_products(a, a)
    assert found.dtype == dtype
    assert found.item() == pytest.approx(1.0 + 1e-8, abs=1e-7)
