"""Normalization: the mean, deviation and covariance of the results."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from samekind.data.augment import normalize
from samekind.data.augment.normalize import SYMMETRIC, NormalizePerImage, Zca, per_channel, zca
from samekind.data.scaling import fit_scaler
from samekind.errors import DataError, SettingError


def stored(n: int, height: int = 6, width: int = 5, channels: int = 3, seed: int = 0) -> Tensor:
    """Return uint8 images (n, H, W, C) with correlated neighbouring pixels and different channels."""
    rng = np.random.default_rng(seed)
    plain = rng.normal(size=(n, height, width, channels)).cumsum(1).cumsum(2) * 12
    return torch.from_numpy((plain + 40 * np.arange(channels) + 90).clip(0, 255).astype(np.uint8))


def batch(images: Tensor) -> Tensor:
    """Return the same images as transforms take them: uint8 (n, C, H, W)."""
    return images.permute(0, 3, 1, 2)


def test_each_image_gets_mean_0_and_deviation_1_over_all_channels() -> None:
    out = NormalizePerImage()(batch(stored(20)))
    assert out.dtype == torch.float32 and out.shape == (20, 3, 6, 5)
    torch.testing.assert_close(out.mean((1, 2, 3)), torch.zeros(20), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.flatten(1).std(1, unbiased=False), torch.ones(20))
    assert out.mean((0, 2, 3))[2] > out.mean((0, 2, 3))[0] + 0.5  # a bright channel stays the bright one


def test_normalization_of_one_image_by_hand() -> None:
    image = torch.tensor([0, 2], dtype=torch.uint8).view(1, 1, 1, 2)
    assert NormalizePerImage()(image).flatten().tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("level", [0, 77, 255])
def test_a_constant_image_is_only_centred(level: int) -> None:
    assert NormalizePerImage()(torch.full((2, 3, 37, 41), level, dtype=torch.uint8)).abs().max() < 1e-3


def test_an_image_with_one_differing_pixel_is_not_constant() -> None:
    image = torch.full((1, 3, 64, 64), 255, dtype=torch.uint8)
    image[0, 0, 0, 0] = 254
    assert NormalizePerImage()(image).std().item() == pytest.approx(1.0, rel=1e-2)


def test_each_channel_gets_mean_0_and_deviation_1_over_all_images() -> None:
    images = stored(200)
    out = per_channel(images)(batch(images))
    torch.testing.assert_close(out.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.std((0, 2, 3), unbiased=False), torch.ones(3))


def test_channels_are_scaled_as_by_the_scaler_of_the_dataset() -> None:
    images = stored(50)
    assert torch.equal(per_channel(images)(batch(images)), fit_scaler(images)(batch(images).float()))


def test_a_constant_channel_is_only_centred() -> None:
    images = stored(10)
    images[..., 1] = 9
    assert (per_channel(images)(batch(images))[:, 1] == 0.0).all()


def test_the_symmetric_normalizer_maps_to_minus_one_to_one_for_any_number_of_channels() -> None:
    for channels in (1, 3):
        x = torch.tensor([0, 255], dtype=torch.uint8).view(1, 1, 1, 2).expand(1, channels, 1, 2)
        assert set(SYMMETRIC(x).flatten().tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize("normaliser", [NormalizePerImage(), SYMMETRIC, per_channel(stored(9)), zca(stored(9))])
def test_uint8_and_float_images_give_the_same_result_and_are_not_changed(normaliser: normalize.Normalizer) -> None:
    x = batch(stored(9))
    before = x.clone()
    torch.testing.assert_close(normaliser(x), normaliser(x.float()))
    assert torch.equal(x, before)


# ---------------------------------------------------------------- ZCA


def test_zca_makes_pixels_uncorrelated_with_deviation_1() -> None:
    images = stored(2000, 3, 4)
    white = zca(images, eps=1e-9)(batch(images)).flatten(1).double()
    torch.testing.assert_close(white.T @ white / 2000, torch.eye(36).double(), atol=5e-3, rtol=0)
    torch.testing.assert_close(white.mean(0), torch.zeros(36).double(), atol=1e-3, rtol=0)


def test_zca_equals_its_closed_form() -> None:
    images = stored(60, 3, 2)
    X = batch(images).reshape(60, -1).double().numpy() / 255
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    expected = (X - X.mean(0)) @ vectors @ np.diag((values + 1e-2) ** -0.5) @ vectors.T
    ours = zca(images, eps=1e-2)(batch(images)).reshape(60, -1)
    np.testing.assert_allclose(ours.numpy(), expected, atol=1e-4)


def test_zca_stays_close_to_the_image_unlike_pca_whitening() -> None:
    images = stored(500, 4, 4)
    fitted = zca(images)
    torch.testing.assert_close(fitted.matrix, fitted.matrix.T)
    white, plain = fitted(batch(images)).flatten(1), per_channel(images)(batch(images)).flatten(1)
    assert torch.corrcoef(torch.stack([white.flatten(), plain.flatten()]))[0, 1] > 0.15


def test_the_size_of_blocks_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    images = stored(50)
    whole = zca(images)
    monkeypatch.setattr(normalize, "BLOCK_VALUES", 7 * 90)
    in_blocks = zca(images)
    torch.testing.assert_close(in_blocks.mean, whole.mean)
    torch.testing.assert_close(in_blocks.matrix, whole.matrix, atol=1e-3, rtol=1e-3)


def test_fewer_images_than_pixels_and_floats_can_be_fitted_too() -> None:
    images = stored(5)
    assert torch.isfinite(zca(images)(batch(images))).all()
    torch.testing.assert_close(zca(batch(images).float()).matrix, zca(images).matrix, atol=1e-2, rtol=1e-3)


def test_unsupported_zca_inputs_are_refused_with_advice() -> None:
    with pytest.raises(SettingError, match="more than 0"):
        zca(stored(5), eps=0.0)
    with pytest.raises(DataError, match="use per_channel"):
        zca(torch.zeros((1, 224, 224, 3), dtype=torch.uint8))
    with pytest.raises(DataError, match="fitted on images of 90 values"):
        zca(stored(5))(batch(stored(5, height=7)))


def test_zca_is_a_frozen_pair_of_tensors() -> None:
    fitted = zca(stored(5))
    assert isinstance(fitted, Zca)
    assert fitted.mean.dtype == fitted.matrix.dtype == torch.float32
    assert fitted.matrix.shape == (90, 90)
