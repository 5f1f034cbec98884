"""MixUp: mixing, sampled ratios, sharpening and alignment of targets."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samekind.losses.mixup import align_to_prior, fold_mixup_ratio, mix, sample_mixup_ratio, sharpen


def test_one_ratio_mixes_all_samples() -> None:
    x = torch.tensor([[0.0, 4.0], [8.0, 0.0]])
    found = mix(x, torch.tensor([1, 0]), torch.tensor([0.75]))
    assert found.tolist() == [[2.0, 3.0], [6.0, 1.0]]


def test_one_ratio_per_sample_mixes_images_too() -> None:
    x = torch.tensor([0.0, 4.0, 8.0]).view(3, 1, 1, 1)
    found = mix(x, torch.tensor([1, 2, 0]), torch.tensor([1.0, 0.5, 0.25]))
    assert found.flatten().tolist() == [0.0, 6.0, 2.0]


def test_folded_ratios_are_at_least_one_half() -> None:
    assert fold_mixup_ratio(torch.tensor([0.1, 0.5, 0.8])).tolist() == pytest.approx([0.9, 0.5, 0.8])


def test_sharpening_by_one_half_squares_and_normalises() -> None:
    found = sharpen(torch.tensor([[0.75, 0.25], [0.5, 0.5], [1.0, 0.0]]), 0.5)
    torch.testing.assert_close(found, torch.tensor([[0.9, 0.1], [0.5, 0.5], [1.0, 0.0]]))


def test_a_temperature_of_one_changes_nothing() -> None:
    p = torch.tensor([[0.7, 0.2, 0.1]])
    torch.testing.assert_close(sharpen(p, 1.0), p)


def test_alignment_reduces_a_class_that_is_predicted_too_often() -> None:
    p = torch.tensor([[0.6, 0.4]])
    found = align_to_prior(p, prior=torch.tensor([0.5, 0.5]), mean=torch.tensor([0.75, 0.25]))
    torch.testing.assert_close(found, torch.tensor([[1 / 3, 2 / 3]]), atol=1e-5, rtol=0.0)  # 0.6/1.5 to 0.4/0.5


def test_alignment_works_with_a_class_that_is_never_predicted() -> None:
    found = align_to_prior(torch.tensor([[1.0, 0.0]]), torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0]))
    assert found.tolist() == [[1.0, 0.0]]


@given(st.floats(0.05, 5.0), st.integers(1, 50))
def test_ratios_are_between_zero_and_one(a: float, n: int) -> None:
    lam = sample_mixup_ratio(n, a, torch.zeros(1))
    assert lam.shape == (n,)
    assert 0.0 <= lam.min() <= lam.max() <= 1.0


def test_ratios_follow_the_beta_distribution() -> None:
    # Beta(a, a) has a mean of 1/2 and a variance of 1/(4 (2 a + 1))
    torch.manual_seed(0)
    for a in (0.75, 4.0):
        lam = sample_mixup_ratio(20_000, a, torch.zeros(1))
        assert lam.mean().item() == pytest.approx(0.5, abs=0.01)
        assert lam.var().item() == pytest.approx(1 / (4 * (2 * a + 1)), abs=0.003)
