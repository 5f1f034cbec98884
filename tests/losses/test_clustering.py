"""Compact clustering, on batches small enough to check by hand."""

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


def test_transition_probabilities_are_a_softmax_of_inner_products_with_a_floor() -> None:
    # inner products 0 and ln 3 give probabilities 1/4 and 3/4; a fraction TELEPORT is spread uniformly
    H = transition_matrix(torch.tensor([[math.sqrt(math.log(3.0))], [0.0]], dtype=torch.float64))
    expected = torch.tensor([[0.75, 0.25], [0.5, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(H, TELEPORT / 2 + (1 - TELEPORT) * expected)


def test_labels_are_propagated_as_in_label_propagation() -> None:
    # the last sample reaches the first label twice as often as the second: its walk ends there with probability 2/3
    H = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.4, 0.2, 0.4]])
    torch.testing.assert_close(propagate_labels(H, torch.eye(2)), torch.tensor([[1.0, 0.0], [0.0, 1.0], [2 / 3, 1 / 3]]))


@pytest.mark.parametrize("seed", range(5))
def test_propagated_labels_sum_to_one(seed: int) -> None:
    Phi = propagate_labels(transition_matrix(features(12, seed)), TWO_EACH.double())
    torch.testing.assert_close(Phi.sum(1), torch.ones(12, dtype=torch.float64), atol=1e-8, rtol=0)


def test_the_chain_is_a_matrix_product_of_the_masked_hops() -> None:
    # four identical samples: H = 1/4; two paths within a class, so H2 = 2/16 and H3 = 2/32; T is 1/2 within a class
    # (an elementwise product would give 1/16 and 1/64)
    loss = compact_clustering(torch.zeros(4, 2, dtype=torch.float64), TWO_EACH.double())
    assert loss.item() == pytest.approx((2 + 3 + 4) * LN2 / 3, rel=1e-4)


def test_one_hop_is_the_cross_entropy_of_hops_and_ideal_hops() -> None:
    loss = compact_clustering(torch.zeros(4, 2, dtype=torch.float64), TWO_EACH.double(), n_steps=1)
    assert loss.item() == pytest.approx(2 * LN2, rel=1e-4)


def test_identical_unlabelled_samples_belong_to_both_classes() -> None:
    # four identical samples, two of them labelled: Phi_U = 1/2, T_ij = SUM Phi Phi/2, rows of T sum to 1, H = 1/4
    loss = compact_clustering(torch.zeros(4, 2, dtype=torch.float64), torch.eye(2, dtype=torch.float64), n_steps=1)
    assert loss.item() == pytest.approx(2 * LN2, rel=1e-4)


def test_two_separate_clusters_have_a_smaller_loss_than_one() -> None:
    apart = torch.tensor([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, 4.0]], dtype=torch.float64)
    loss = compact_clustering(apart, TWO_EACH.double())
    assert loss.item() == pytest.approx(LN2, rel=1e-2)  # probability 1/2 for each sample of the class after 1, 2 and 3 hops


def test_gradient_flows_through_the_inverse_too() -> None:
    z = features(7).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: compact_clustering(x, torch.eye(2, dtype=torch.float64)), (z,))


@pytest.mark.parametrize("length", [1e-6, 30.0, 1e3])
def test_loss_and_gradient_are_finite_for_features_of_any_length(length: float) -> None:
    z = (length * features(40).float()).requires_grad_()
    loss = compact_clustering(z, torch.eye(2))
    (gradient,) = torch.autograd.grad(loss, z)
    assert loss.isfinite()
    assert gradient.isfinite().all()


def test_a_class_without_samples_in_the_batch_does_not_change_the_loss() -> None:
    z = features(6)
    two, three = torch.eye(2, dtype=torch.float64), torch.eye(2, 3, dtype=torch.float64)
    assert compact_clustering(z, three).item() == pytest.approx(compact_clustering(z, two).item())
