"""Transforms: what they change, what they keep, and one draw for each sample."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from samekind.data.augment.transforms import (
    Compose,
    GaussianNoise,
    NormalizeAfter,
    RandomAffine,
    RandomShift,
    RandomWalk,
    Transform,
    Uint8Adapter,
    _grid,
    identity,
    takes_uint8,
)
from samekind.data.dataset import Dataset
from samekind.data.scaling import fit_scaler
from samekind.defaults import view_defaults
from samekind.errors import DataError


def seen(view: Transform, x: Tensor, seed: int = 0, rows: Tensor | None = None) -> Tensor:
    return view(x, torch.arange(len(x)) if rows is None else rows, torch.Generator().manual_seed(seed))


RAMP = torch.tensor([0.0, 1.0, 2.0, 3.0]).expand(1, 1, 4, 4)  # every line of the image is 0 1 2 3
MAPS = torch.tensor([[[1, 2, 3, 0], [1, 1, 1, 1]], [[3, 3, 3, 3], [2, 2, 2, 2]]])  # (levels, walkers, rows)


# ---------------------------------------------------------------- plain and noise


def test_the_identity_returns_the_samples() -> None:
    x = torch.randn(5, 3)
    assert torch.equal(seen(identity, x), x)


def test_noise_has_the_given_deviation_and_mean_0() -> None:
    noise = seen(GaussianNoise(0.3), torch.full((4000, 2), 7.0)) - 7.0
    assert noise.std().item() == pytest.approx(0.3, rel=0.05)
    assert noise.mean().item() == pytest.approx(0.0, abs=0.02)


def test_noise_is_drawn_per_value_and_only_from_the_generator() -> None:
    x = torch.zeros(50, 2)
    assert len(set(seen(GaussianNoise(1.0), x).flatten().tolist())) == 100
    assert torch.equal(seen(GaussianNoise(1.0), x, seed=3), seen(GaussianNoise(1.0), x, seed=3))
    assert not torch.equal(seen(GaussianNoise(1.0), x, seed=3), seen(GaussianNoise(1.0), x, seed=4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_transforms_keep_the_dtype(dtype: torch.dtype) -> None:
    images, vectors = torch.zeros(4, 1, 4, 4, dtype=dtype), torch.zeros(4, 2, dtype=dtype)
    assert seen(GaussianNoise(0.1), vectors).dtype == dtype
    assert seen(RandomWalk(vectors, MAPS), vectors).dtype == dtype
    assert seen(RandomShift(1, sigma=0.1), images).dtype == dtype


# ---------------------------------------------------------------- shift


def test_a_shift_reflects_at_the_edge() -> None:
    found = {tuple(image[0, 0].tolist()) for image in seen(RandomShift(1), RAMP.repeat(100, 1, 1, 1))}
    assert found == {(1.0, 0.0, 1.0, 2.0), (0.0, 1.0, 2.0, 3.0), (1.0, 2.0, 3.0, 2.0)}


def test_a_shift_moves_rows_and_columns_independently() -> None:
    across = RAMP + 10 * RAMP.transpose(2, 3)
    found = {
        (float(image[0, 0, 0]) // 10, float(image[0, 0, 0]) % 10) for image in seen(RandomShift(2), across.repeat(400, 1, 1, 1))
    }
    assert found == {(top, left) for top in (0.0, 1.0, 2.0) for left in (0.0, 1.0, 2.0)}


def test_all_offsets_of_a_shift_are_equally_likely() -> None:
    corner = seen(RandomShift(1), RAMP.repeat(3000, 1, 1, 1))[:, 0, 0, :2].tolist()
    for expected in ([1.0, 0.0], [0.0, 1.0], [1.0, 2.0]):
        assert corner.count(expected) / 3000 == pytest.approx(1 / 3, abs=0.04)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 6), channels=st.integers(1, 3), pixels=st.integers(0, 3), flip=st.booleans(), seed=st.integers(0, 99))
def test_a_shift_never_mixes_images_or_channels(n: int, channels: int, pixels: int, flip: bool, seed: int) -> None:
    value = torch.arange(float(n * channels)).view(n, channels, 1, 1)
    moved = seen(RandomShift(pixels, flip=flip), value.expand(n, channels, 5, 4), seed)
    assert moved.shape == (n, channels, 5, 4)
    assert torch.equal(moved, value.expand(n, channels, 5, 4))


def test_all_channels_of_an_image_move_together() -> None:
    image = RAMP.repeat(50, 1, 1, 1)
    moved = seen(RandomShift(1), torch.cat([image, image + 10], dim=1))
    assert torch.equal(moved[:, 0] + 10, moved[:, 1])


def test_every_image_has_its_own_shift() -> None:
    moved = seen(RandomShift(2), RAMP.repeat(50, 1, 1, 1))
    assert len({tuple(image.flatten().tolist()) for image in moved}) == 5
    assert not torch.equal(moved, seen(RandomShift(2), RAMP.repeat(50, 1, 1, 1), seed=1))


def test_images_are_not_flipped_by_default() -> None:
    many = RAMP.repeat(60, 1, 1, 1)
    assert torch.equal(seen(RandomShift(0), many), many)
    lines = [tuple(image[0, 0].tolist()) for image in seen(RandomShift(0, flip=True), many)]
    assert set(lines) == {(0.0, 1.0, 2.0, 3.0), (3.0, 2.0, 1.0, 0.0)}
    assert 10 < lines.count((3.0, 2.0, 1.0, 0.0)) < 50


def test_a_shift_can_add_noise() -> None:
    flat = torch.full((50, 1, 8, 8), 7.0)
    noise = seen(RandomShift(2, sigma=0.2), flat) - 7.0
    assert noise.std().item() == pytest.approx(0.2, rel=0.05)


def test_images_one_pixel_high_can_be_shifted() -> None:
    x = torch.randn(6, 1, 1, 8)
    views = view_defaults(Dataset(x, torch.tensor([0, 1, -1, -1, -1, -1]), 2), seed=0).views
    assert seen(views["weak"], x).shape == (6, 1, 1, 8)


# ---------------------------------------------------------------- walk


def test_a_random_walk_ends_on_a_sample_of_the_dataset() -> None:
    dataset = torch.randn(4, 2)
    for seed in range(20):
        reached = seen(RandomWalk(dataset, MAPS), torch.zeros(4, 2), seed)
        assert all(any(torch.equal(row, member) for member in dataset) for row in reached)


def test_a_random_walk_follows_the_maps() -> None:
    dataset = torch.arange(4.0)[:, None]
    rows = torch.tensor([0, 2, 3])
    found = torch.cat([seen(RandomWalk(dataset, MAPS), torch.zeros(3, 1), seed, rows).T for seed in range(100)])
    for column, row in enumerate(rows.tolist()):
        assert set(found[:, column].tolist()) == {float(to) for to in MAPS[:, :, row].flatten()}


def test_all_levels_and_walkers_are_equally_likely() -> None:
    dataset, maps = torch.arange(4.0)[:, None], torch.tensor([[[0], [1]], [[2], [3]]])
    found = seen(RandomWalk(dataset, maps), torch.zeros(4000, 1), rows=torch.zeros(4000, dtype=torch.long)).flatten().tolist()
    for place in range(4):
        assert found.count(float(place)) / 4000 == pytest.approx(0.25, abs=0.03)


def test_noise_can_follow_a_random_walk() -> None:
    dataset = torch.tensor([[5.0, 5.0]])
    noise = (
        seen(
            Compose(RandomWalk(dataset, torch.zeros(1, 1, 1, dtype=torch.long)), GaussianNoise(0.4)),
            torch.zeros(3000, 2),
            rows=torch.zeros(3000, dtype=torch.long),
        )
        - 5.0
    )
    assert noise.std().item() == pytest.approx(0.4, rel=0.05)
    assert noise.mean().item() == pytest.approx(0.0, abs=0.03)


def test_an_affine_transform_of_size_0_is_the_identity_and_each_image_has_its_own_draw() -> None:
    images = torch.rand(6, 1, 9, 9, generator=torch.Generator().manual_seed(0))
    still = seen(RandomAffine(0.0, 0.0, 0.0), images)
    torch.testing.assert_close(still, images)
    same = images[:1].expand(6, -1, -1, -1)
    tilted = seen(RandomAffine(), same)
    assert tilted.shape == images.shape
    assert len({tuple(image.flatten().tolist()) for image in tilted}) == 6


def test_some_rotation_by_up_to_90_degrees_moves_the_top_row_to_a_side() -> None:
    image = torch.zeros(1, 1, 9, 9)
    image[0, 0, 0] = 1.0
    turned = torch.stack([seen(RandomAffine(90.0, 0.0, 0.0), image, seed)[0, 0] for seed in range(200)])
    sides = torch.maximum(turned[:, :, 0].mean(1), turned[:, :, -1].mean(1))
    assert sides.max() > 0.9
    assert torch.isfinite(turned).all()


# ---------------------------------------------------------------- images of bytes


@settings(max_examples=25, deadline=None)
@given(
    height=st.integers(1, 9), width=st.integers(1, 9), pixels=st.integers(0, 12), flip=st.booleans(), seed=st.integers(0, 99)
)
def test_uint8_and_float_images_get_the_same_shift(height: int, width: int, pixels: int, flip: bool, seed: int) -> None:
    x = torch.randint(256, (4, 3, height, width), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    moved = seen(RandomShift(pixels, flip=flip), x, seed)
    assert moved.dtype == torch.uint8 and moved.is_contiguous()
    assert torch.equal(moved.float(), seen(RandomShift(pixels, flip=flip), x.float(), seed))


@pytest.mark.parametrize("view", [GaussianNoise(0.1), RandomShift(1, sigma=0.1)])
def test_noise_on_uint8_images_is_refused_with_the_right_order(view: Transform) -> None:
    x = torch.full((50, 1, 4, 4), 100, dtype=torch.uint8)
    with pytest.raises(DataError, match="Normalize the images first"):
        seen(view, x)
    out = seen(Compose(NormalizeAfter(RandomShift(1), lambda bytes: bytes.float() / 100), GaussianNoise(0.1)), x)
    assert out.std().item() == pytest.approx(0.1, rel=0.2)
    assert out.mean().item() == pytest.approx(1.0, abs=0.02)


# ---------------------------------------------------------------- floats seen as bytes


def test_floats_survive_the_uint8_adapter_within_half_a_step() -> None:
    x = torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(0)) * 6.0 - 2.0
    low, high = (extreme(x, dim=(0, 2, 3))[:, None, None] for extreme in (torch.amin, torch.amax))
    back = seen(Uint8Adapter(identity, low, high), x)
    assert ((back - x).abs() <= 0.5001 * (high - low) / 255.0).all()


def test_the_uint8_adapter_uses_the_full_range_of_levels() -> None:
    def watched(x: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        assert x.dtype == torch.uint8
        assert (int(x.min()), int(x.max())) == (0, 255)
        return 255 - x

    x = torch.tensor([-1.0, 0.0, 3.0, 1.0]).view(1, 1, 2, 2)
    turned = seen(Uint8Adapter(watched, torch.full((1, 1, 1), -1.0), torch.full((1, 1, 1), 3.0)), x)
    torch.testing.assert_close(turned.flatten(), torch.tensor([3.0, 2.0, -1.0, 1.0]), atol=4 / 255, rtol=0.0)


def test_a_constant_channel_stays_constant() -> None:
    flat = torch.full((2, 1, 3, 3), 7.0)
    edge = torch.full((1, 1, 1), 7.0)
    assert torch.equal(seen(Uint8Adapter(identity, edge, edge), flat), flat)


@pytest.mark.parametrize("kind", ["bytes", "floats"])
def test_colour_images_are_flipped_unless_classes_are_characters(kind: str) -> None:
    images = torch.zeros(80, 32, 32, 3, dtype=torch.uint8)
    images[:, :, :16] = 200  # bright on the left
    y = torch.tensor([0, 1] + [-1] * 78)
    scaler = fit_scaler(images)
    dataset = Dataset(images, y, 2, scaler) if kind == "bytes" else Dataset(scaler(images.permute(0, 3, 1, 2).float()), y, 2)
    rows = torch.arange(80)
    for mirror in (True, False):
        views = view_defaults(dataset, seed=0, flip=mirror).views
        for name in ("weak", "strong"):
            x = dataset.raw_images(rows) if takes_uint8(views[name]) else dataset.inputs(rows)
            shown = views[name](x, rows, torch.Generator().manual_seed(0))
            assert shown.shape == (80, 3, 32, 32)
            assert shown.is_floating_point()
            left, right = shown[..., :10].mean(dim=(1, 2, 3)), shown[..., 22:].mean(dim=(1, 2, 3))
            if name == "weak":
                assert bool((right > left).any()) == mirror


def test_grey_and_small_images_get_affine_transforms_and_no_flip() -> None:
    for shape in ((1, 28, 28), (3, 8, 8)):
        dataset = Dataset(torch.randn(6, *shape), torch.tensor([0, 1, -1, -1, -1, -1]), 2)
        weak = view_defaults(dataset, seed=0).views["weak"]
        assert isinstance(weak, Compose)
        assert isinstance(weak.first, RandomAffine)
        assert isinstance(weak.then, RandomShift)
        assert not weak.then.flip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (8, 8), (5, 28)])
def test_the_affine_grid_equals_that_of_torch_up_to_rounding(height: int, width: int, dtype: torch.dtype) -> None:
    """Allow for fused multiply-add, with which torch rounds once less on some processors."""
    along_lines, along_columns = torch.randn(2, 7, 2, generator=torch.Generator().manual_seed(0), dtype=dtype)
    matrices = torch.stack([along_lines, along_columns, torch.zeros(7, 2, dtype=dtype)], dim=2)  # columns of (x, y, 1)
    expected = F.affine_grid(matrices, [7, 3, height, width], align_corners=False)
    largest = float(along_lines.abs().max() + along_columns.abs().max())
    found = _grid(along_lines, along_columns, height, width)
    torch.testing.assert_close(found, expected, atol=largest * torch.finfo(dtype).eps, rtol=0.0)
