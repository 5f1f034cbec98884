"""Compact clustering, on batches small enough for paper and pencil."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from samekind.losses.clustering import TELEPORT, compact_clustering, propagate_labels, transition_matrix

TWO_EACH = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
LN2 = math.log(2.0)


def features(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_hop_is_a_softmax_of_inner_products_with_a_floor() -> None:
    """Products 0 and ln 3 of two rows: shares 1/4 and 3/4, and TELEPORT of it all goes anywhere."""
    H = transition_matrix(torch.tensor([[math.sqrt(math.log(3.0))], [0.0]], dtype=torch.float64))
    expected = torch.tensor([[0.75, 0.25], [0.5, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(H, TELEPORT / 2 + (1 - TELEPORT) * expected)


def test_labels_are_propagated_as_label_propagation_has_it() -> None:
    """One row between two labels, twice as near to the first: a walk from it ends there with probability 2/3."""
    H = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.4, 0.2, 0.4]])
    torch.testing.assert_close(propagate_labels(H, torch.eye(2)), torch.tensor([[1.0, 0.0], [0.0, 1.0], [2 / 3, 1 / 3]]))


@pytest.mark.parametrize("seed", range(5))
def test_what_is_propagated_sums_to_one(seed: int) -> None:
    Phi = propagate_labels(transition_matrix(features(12, seed)), TWO_EACH.double())
    torch.testing.assert_close(Phi.sum(1), torch.ones(12, dtype=torch.float64), atol=1e-8, rtol=0)


def test_the_chain_is_a_matrix_product_of_the_masked_hops() -> None:
    """Four rows at one place: H = 1/4; two ways within a class, so H2 = 2/16 and H3 = 2/32. T is 1/2 within a class.

    By elements it would be 1/16 and 1/64.
    """
    loss = compact_clustering(torch.zeros(4, 2, dtype=torch.float64), TWO_EACH.double())
    assert loss.item() == pytest.approx((2 + 3 + 4) * LN2 / 3, rel=1e-4)


def test_one_hop_is_the_cross_entropy_of_hops_and_ideal_hops() -> None:
    loss = compact_clustering(torch.zeros(4, 2, dtype=torch.float64), TWO_EACH.double(), n_steps=1)
    assert loss.item() == pytest.approx(2 * LN2, rel=1e-4)


def test_unlabelled_rows_at_the_same_place_belong_to_both_classes() -> None:
    """Two labels and two more rows, all at one place: Phi_U = 1/2, T_ij = SUM Phi Phi/2, rows of T sum to 1, H = 1/4."""
    loss = compact_clustering(torch.zeros(4, 2, dtype=torch.float64), torch.eye(2, dtype=torch.float64), n_steps=1)
    assert loss.item() == pytest.approx(2 * LN2, rel=1e-4)


def test_two_compact_clusters_apart_are_better_than_one_heap() -> None:
    apart = torch.tensor([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, 4.0]], dtype=torch.float64)
    loss = compact_clustering(apart, TWO_EACH.double())
    assert loss.item() == pytest.approx(LN2, rel=1e-2)  # a half to each row of the class, at 1, 2 and 3 transition_matrix


def test_gradient_flows_through_the_inverse_too() -> None:
    z = features(7).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: compact_clustering(x, torch.eye(2, dtype=torch.float64)), (z,))


@pytest.mark.parametrize("length", [1e-6, 30.0, 1e3])
def test_features_of_any_length_leave_loss_and_gradient_finite_in_float32(length: float) -> None:
    z = (length * features(40).float()).requires_grad_()
    loss = compact_clustering(z, torch.eye(2))
    (gradient,) = torch.autograd.grad(loss, z)
    assert loss.isfinite()
    assert gradient.isfinite().all()


def test_a_class_that_is_not_in_the_batch_does_no_harm() -> None:
    z = features(6)
    two, three = torch.eye(2, dtype=torch.float64), torch.eye(2, 3, dtype=torch.float64)
    assert compact_clustering(z, three).item() == pytest.approx(compact_clustering(z, two).item())
