"""KL divergence, entropy and unit vectors, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from samekind.losses.adversarial import entropy, kl_divergence, unit_vectors

LN3 = math.log(3.0)


def test_divergence_is_a_mean_over_samples_and_a_sum_over_classes() -> None:
    # KL((3/4, 1/4) || (1/2, 1/2)) = 3/4 ln 3/2 + 1/4 ln 1/2, and the second sample has no divergence
    p, q = torch.tensor([[LN3, 0.0], [1.0, 2.0]]), torch.tensor([[0.0, 0.0], [5.0, 6.0]])
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert kl_divergence(p, q).item() == pytest.approx(expected / 2)


def test_divergence_is_not_symmetric() -> None:
    p, q = torch.tensor([[LN3, 0.0]]), torch.tensor([[0.0, 0.0]])
    assert kl_divergence(q, p).item() == pytest.approx(0.5 * math.log(2 / 3) + 0.5 * math.log(2))
    assert kl_divergence(q, p).item() != pytest.approx(kl_divergence(p, q).item())


def test_divergence_of_certain_predictions_is_finite() -> None:
    far = torch.tensor([[200.0, -200.0]], requires_grad=True)
    loss = kl_divergence(torch.tensor([[-200.0, 200.0]]), far)
    torch.autograd.backward(loss)
    assert loss.item() == pytest.approx(400.0)
    assert far.grad is not None and far.grad.isfinite().all()


def test_entropy_is_largest_for_uniform_predictions() -> None:
    assert entropy(torch.zeros(3, 4)).item() == pytest.approx(math.log(4))
    assert entropy(torch.tensor([[300.0, 0.0]])).item() == 0.0
    mixed = entropy(torch.tensor([[LN3, 0.0], [0.0, 0.0]]))
    assert mixed.item() == pytest.approx((0.75 * math.log(4 / 3) + 0.25 * math.log(4) + math.log(2)) / 2)


def test_vectors_get_length_one_unless_they_are_almost_zero() -> None:
    found = unit_vectors(torch.tensor([[3.0, 4.0], [3e-9, -4e-9], [3e-30, 4e-30], [0.0, 0.0]]))
    torch.testing.assert_close(found[0], torch.tensor([0.6, 0.8]), atol=1e-5, rtol=0.0)
    torch.testing.assert_close(found[1], torch.tensor([0.6, -0.8]), atol=1e-3, rtol=0.0)
    assert found[2].norm() < 1e-10
    assert found[3].tolist() == [0.0, 0.0]


def test_an_image_is_normalized_as_one_vector() -> None:
    found = unit_vectors(torch.ones(2, 3, 4, 4))
    assert found.shape == (2, 3, 4, 4)
    torch.testing.assert_close(found.flatten(1).norm(dim=1), torch.ones(2), atol=1e-5, rtol=0.0)
