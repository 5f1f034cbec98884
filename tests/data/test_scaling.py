"""Scaling per column and per channel, with the statistics of the fit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from samekind.data.scaling import fit_scaler, with_common_scale, with_pca_basis


def columns(seed: int = 0) -> Tensor:
    """Return three columns with very different means and scales."""
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(seed))
    return x * torch.tensor([1.0, 1e-4, 1e5]) + torch.tensor([0.0, 1.0, -1e6])


def test_every_column_gets_mean_zero_and_deviation_one() -> None:
    scaled = fit_scaler(columns())(columns())
    torch.testing.assert_close(scaled.mean(0), torch.zeros(3), atol=1e-3, rtol=0.0)
    torch.testing.assert_close(scaled.std(0, unbiased=False), torch.ones(3), atol=1e-3, rtol=0.0)


def test_scaling_by_hand() -> None:
    x = torch.tensor([[1.0, 10.0], [3.0, 10.0]])
    assert fit_scaler(x)(x).tolist() == [[-1.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e30, 1e-30])
def test_a_constant_column_is_only_centred(value: float) -> None:
    x = torch.full((37, 1), value)
    scaler = fit_scaler(x)
    assert scaler.scale.item() == 1.0
    assert scaler(x).abs().max() <= 1e-6 * abs(value)


def test_a_column_that_differs_only_by_rounding_counts_as_constant() -> None:
    x = torch.full((40, 1), 1e6)
    x[::2] += 0.0625  # the next number that float32 knows
    assert fit_scaler(x).scale.item() == 1.0
    x[::2] += 1.0
    assert fit_scaler(x).scale.item() == pytest.approx(0.53125)


def test_images_are_scaled_by_channel() -> None:
    x = torch.randn(20, 2, 4, 5, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 50.0]).view(1, 2, 1, 1) + 3.0
    scaled = fit_scaler(x)(x)
    assert scaled.shape == x.shape
    torch.testing.assert_close(scaled.mean((0, 2, 3)), torch.zeros(2), atol=1e-5, rtol=0.0)
    torch.testing.assert_close(scaled.std((0, 2, 3), unbiased=False), torch.ones(2))


def test_new_samples_are_scaled_with_the_fitted_statistics() -> None:
    scaler = fit_scaler(torch.tensor([[0.0], [2.0]]))
    assert scaler(torch.tensor([[4.0], [1.0]])).tolist() == [[3.0], [0.0]]


def test_a_single_sample_can_be_scaled() -> None:
    assert fit_scaler(torch.tensor([[5.0, 6.0]]))(torch.tensor([[5.0, 7.0]])).tolist() == [[0.0, 1.0]]
    image = torch.tensor([[[[0.0, 2.0]]]])
    assert fit_scaler(image)(image).tolist() == [[[[-1.0, 1.0]]]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_is_kept(dtype: torch.dtype) -> None:
    assert fit_scaler(columns())(columns().to(dtype)).dtype == dtype


@settings(max_examples=25, deadline=None)
@given(shift=st.floats(-1e3, 1e3), factor=st.floats(1e-2, 1e3), seed=st.integers(0, 99))
def test_unit_and_origin_of_a_column_do_not_matter(shift: float, factor: float, seed: int) -> None:
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    other = factor * x + shift
    torch.testing.assert_close(fit_scaler(other)(other), fit_scaler(x)(x), atol=1e-6, rtol=1e-6)


# ---------------------------------------------------------------- one scale for all columns


def test_a_common_scale_keeps_the_relative_variances_of_columns() -> None:
    x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 7.0])
    scaled = with_common_scale(fit_scaler(x))(x)
    first, second = scaled.std(0, unbiased=False).tolist()
    assert second / first == pytest.approx((x[:, 1].std() / x[:, 0].std()).item(), rel=1e-5)
    assert scaled.square().mean().item() == pytest.approx(1.0, rel=1e-5)


# ---------------------------------------------------------------- directions that stand out of noise


def planted(n: int, d: int, k: int, seed: int = 0) -> Tensor:
    """Return noise of variance 1 in d columns, with k directions of variance 26."""
    generator = torch.Generator().manual_seed(seed)
    basis: Tensor = torch.linalg.qr(torch.randn(d, k, generator=generator)).Q
    return torch.randn(n, d, generator=generator) + 5.0 * torch.randn(n, k, generator=generator) @ basis.T


@pytest.mark.parametrize(("n", "d"), [(600, 100), (300, 300), (200, 500)])
def test_the_pca_basis_keeps_signal_directions_and_drops_noise(n: int, d: int) -> None:
    x = planted(n, d, 6)
    kept = with_pca_basis(with_common_scale(fit_scaler(x)), x)
    assert kept.shape_after((d,)) == (6,)
    assert kept(x).shape == (n, 6)
    assert kept(x).double().square().mean().item() == pytest.approx(1.0, rel=1e-3)


def test_in_pure_noise_two_directions_are_kept() -> None:
    x = torch.randn(400, 100, generator=torch.Generator().manual_seed(1))
    assert with_pca_basis(fit_scaler(x), x).shape_after((100,)) in ((2,), (3,))


def test_directions_are_orthogonal_and_sorted_by_variance() -> None:
    x = planted(500, 90, 4)
    scaled = with_pca_basis(with_common_scale(fit_scaler(x)), x)(x).double()
    covariance = scaled.T @ scaled / len(x)
    torch.testing.assert_close(covariance, torch.diag(covariance.diagonal()), atol=1e-4, rtol=0.0)
    assert covariance.diagonal().tolist() == sorted(covariance.diagonal().tolist(), reverse=True)


def test_a_scaler_without_basis_keeps_the_shape() -> None:
    assert fit_scaler(torch.randn(5, 3)).shape_after((3,)) == (3,)
