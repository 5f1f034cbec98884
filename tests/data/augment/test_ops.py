"""The fourteen operations on batches give the results of Pillow on single images."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

from samekind.data.augment import ops
from samekind.data.augment.ops import OPERATIONS, Fill, Images, apply_ops
from samekind.errors import DataError, SettingError

# Single precision is the same everywhere but for machines that take a product and a sum in one step, which rounds once less.
WORST = 0 if platform.machine() in ("x86_64", "AMD64") else 1
MAGNITUDES = {
    "Identity": (0.0, 1.0),
    "AutoContrast": (0.0, 1.0),
    "Equalize": (0.0, 1.0),
    "Brightness": (0.0, 3.0),
    "Contrast": (0.0, 3.0),
    "Color": (0.0, 3.0),
    "Sharpness": (0.0, 3.0),
    "Posterize": (1.0, 8.0),
    "Solarize": (0.0, 256.0),
    "Rotate": (-180.0, 180.0),
    "ShearX": (-1.0, 1.0),
    "ShearY": (-1.0, 1.0),
    "TranslateX": (-45.0, 45.0),
    "TranslateY": (-45.0, 45.0),
}


def by_pillow(image: Images, name: str, magnitude: float, fill: int = 0) -> Images:
    """Apply an operation of Pillow to one image (C, H, W)."""
    pil_image = Image.fromarray(image[0] if len(image) == 1 else np.ascontiguousarray(image.transpose(1, 2, 0)))
    done = np.asarray(_pillow(pil_image, name, magnitude, fill if len(image) == 1 else (fill,) * 3))
    return done[None] if len(image) == 1 else done.transpose(2, 0, 1)


def _pillow(pil_image: Image.Image, name: str, magnitude: float, fill: Any) -> Image.Image:
    if name in ("Brightness", "Contrast", "Color", "Sharpness"):
        return getattr(ImageEnhance, name)(pil_image).enhance(magnitude)  # type: ignore[no-any-return]
    matrices = {
        "ShearX": (1, magnitude, 0, 0, 1, 0),
        "ShearY": (1, 0, 0, magnitude, 1, 0),
        "TranslateX": (1, 0, magnitude, 0, 1, 0),
        "TranslateY": (1, 0, 0, 0, 1, magnitude),
    }
    if name in matrices:
        return pil_image.transform(pil_image.size, Image.Transform.AFFINE, matrices[name], fillcolor=fill)
    others = {
        "Identity": lambda: pil_image,
        "AutoContrast": lambda: Image.blend(pil_image, ImageOps.autocontrast(pil_image), magnitude),
        "Equalize": lambda: Image.blend(pil_image, ImageOps.equalize(pil_image), magnitude),
        "Posterize": lambda: ImageOps.posterize(pil_image, int(magnitude)),
        "Solarize": lambda: ImageOps.solarize(pil_image, magnitude),  # type: ignore[arg-type]
        "Rotate": lambda: pil_image.rotate(magnitude, fillcolor=fill),
    }
    return others[name]()


def done(x: Any, names: str | list[str], magnitude: Any, fill: Fill = 0) -> Images:
    listed = [names] * len(x) if isinstance(names, str) else names
    operation = np.array([OPERATIONS.index(name) for name in listed], dtype=np.int64)
    return apply_ops(x, operation, np.broadcast_to(np.asarray(magnitude, dtype=np.float64), (len(x),)), fill)


def images(n: int, channels: int, height: int, width: int, seed: int, low: int = 0, high: int = 255) -> Images:
    return np.random.default_rng(seed).integers(low, high + 1, (n, channels, height, width), dtype=np.uint8)


shapes = st.tuples(st.sampled_from([1, 3]), st.integers(1, 40), st.integers(1, 40))
levels = st.tuples(st.integers(0, 255), st.integers(0, 255)).map(sorted)


# ---------------------------------------------------------------- Pillow


@pytest.mark.parametrize("name", OPERATIONS)
@settings(max_examples=40, deadline=None)
@given(data=st.data(), shape=shapes, between=levels, seed=st.integers(0, 999), fill=st.sampled_from([0, 128]))
def test_an_operation_equals_pillow(
    name: str, data: Any, shape: tuple[int, int, int], between: list[int], seed: int, fill: int
) -> None:
    low, high = MAGNITUDES[name]
    magnitude = data.draw(st.lists(st.floats(low, high) | st.sampled_from([low, high]), min_size=3, max_size=3))
    x = images(3, *shape, seed, low=between[0], high=between[1])
    ours = done(x, name, magnitude, fill)
    theirs = np.stack([by_pillow(image, name, m, fill) for image, m in zip(x, magnitude, strict=True)])
    assert np.abs(ours.astype(int) - theirs).max() <= WORST


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_operations_on_large_smooth_images_equal_pillow(name: str, channels: int) -> None:
    low, high = MAGNITUDES[name]
    x = np.sort(np.sort(images(2, channels, 96, 64, 5, 30, 220), axis=3), axis=2)  # two slopes of light, as photos have
    magnitude = low + 0.6 * (high - low)
    theirs = np.stack([by_pillow(image, name, magnitude) for image in x])
    assert np.abs(done(x, name, magnitude).astype(int) - theirs).max() <= WORST


@pytest.mark.parametrize("degrees", [-270.0, -180.0, -90.0, 0.0, 30.0, 45.0, 90.0, 180.0, 270.0, 360.0])
def test_rotations_by_right_angles_equal_pillow(degrees: float) -> None:
    for height, width in [(4, 4), (5, 5), (4, 7), (7, 4)]:
        (image,) = x = images(1, 1, height, width, seed=2)
        assert np.array_equal(done(x, "Rotate", degrees)[0], by_pillow(image, "Rotate", degrees))


# ---------------------------------------------------------------- numbers one can check by hand

RAMP = np.array([[[[10, 100, 200, 250]]]], dtype=np.uint8)


@pytest.mark.parametrize(
    ("name", "magnitude", "expected"),
    [
        ("Identity", 7.0, [10, 100, 200, 250]),
        ("Brightness", 0.5, [5, 50, 100, 125]),
        ("Brightness", 1.555, [15, 155, 255, 255]),  # 15.55 is cut off, not rounded
        ("Contrast", 0.0, [140, 140, 140, 140]),
        ("Contrast", 2.0, [0, 60, 255, 255]),
        ("Color", 0.3, [10, 100, 200, 250]),  # grey has no colour to lose
        ("Sharpness", 0.0, [10, 100, 200, 250]),  # one pixel high: all edge
        ("AutoContrast", 1.0, [0, 95, 201, 255]),
        ("AutoContrast", 0.0, [10, 100, 200, 250]),
        ("Equalize", 1.0, [10, 100, 200, 250]),  # four pixels are too few
        ("Posterize", 2.0, [0, 64, 192, 192]),
        ("Posterize", 0.0, [0, 0, 128, 128]),  # one bit is left
        ("Solarize", 200.0, [10, 100, 55, 5]),
        ("Solarize", 199.5, [10, 100, 55, 5]),
        ("Solarize", -1.0, [245, 155, 55, 5]),
        ("Solarize", 300.0, [10, 100, 200, 250]),
        ("TranslateX", 1.0, [100, 200, 250, 0]),
        ("TranslateX", -2.4, [0, 0, 10, 100]),
        ("TranslateY", 0.4, [10, 100, 200, 250]),
        ("TranslateY", 0.5, [0, 0, 0, 0]),
        ("Rotate", 180.0, [250, 200, 100, 10]),
        ("ShearY", 0.3, [10, 100, 0, 0]),  # a centre at 2.5 has sunk by 0.75
    ],
)
def test_operations_on_four_pixels_by_hand(name: str, magnitude: float, expected: list[int]) -> None:
    assert done(RAMP, name, magnitude)[0, 0, 0].tolist() == expected


def test_color_with_factor_0_is_grey_and_with_a_half_is_the_mean() -> None:
    red = np.array([255, 0, 0], dtype=np.uint8).reshape(1, 3, 1, 1)
    assert done(red, "Color", 0.0).ravel().tolist() == [76, 76, 76]  # 0.299 of 255
    assert done(red, "Color", 0.5).ravel().tolist() == [165, 38, 38]


def test_sharpness_with_factor_0_is_the_weighted_mean_of_3_x_3_pixels() -> None:
    x = np.zeros((1, 1, 3, 3), dtype=np.uint8)
    x[0, 0, 1, 1] = 130
    smooth = done(x, "Sharpness", 0.0)
    assert smooth[0, 0, 1, 1] == 50
    assert smooth.sum() == 50


def test_equalize_spreads_three_levels_over_the_whole_range() -> None:
    x = np.repeat(np.array([100, 101, 102], dtype=np.uint8), 510).reshape(1, 1, 30, 51)
    assert np.unique(done(x, "Equalize", 1.0)).tolist() == [0, 128, 255]  # (2 + 0, 510 and 1020)/4, cut off


# ---------------------------------------------------------------- a batch


@settings(max_examples=30, deadline=None)
@given(shape=shapes, n=st.integers(1, 12), seed=st.integers(0, 999))
def test_an_image_gives_the_same_result_in_a_batch_and_alone(shape: tuple[int, int, int], n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [OPERATIONS[k] for k in rng.integers(0, len(OPERATIONS), n)]
    magnitude = [low + (high - low) * rng.random() for low, high in (MAGNITUDES[name] for name in names)]
    x = images(n, *shape, seed)
    alone = [done(x[i : i + 1], names[i], magnitude[i]) for i in range(n)]
    assert np.array_equal(done(x, names, magnitude), np.concatenate(alone))


def test_images_keep_their_order_and_the_originals_are_not_changed() -> None:
    x = images(len(OPERATIONS), 3, 9, 9, seed=0)
    before = x.copy()
    out = done(x, list(reversed(OPERATIONS)), 1.0)
    assert np.array_equal(x, before)
    assert not np.shares_memory(out, x)
    assert np.array_equal(out[-1], x[-1])  # Identity


def test_the_memory_order_of_channels_does_not_matter() -> None:
    x = images(28, 3, 8, 5, seed=1)
    names = list(OPERATIONS) * 2
    lying = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    out = done(lying, names, 1.0)
    assert np.array_equal(out, done(x, names, 1.0))
    assert out.flags.c_contiguous


def test_the_size_of_blocks_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    x, names = images(56, 3, 8, 5, seed=1), list(OPERATIONS) * 4
    at_once = done(x, names, 1.3)
    monkeypatch.setattr(ops, "BLOCK", 3 * x[0].size)
    assert np.array_equal(done(x, names, 1.3), at_once)


def test_an_empty_batch_gives_an_empty_batch() -> None:
    assert done(images(0, 3, 4, 4, seed=0), [], 1.0).shape == (0, 3, 4, 4)


def test_each_channel_can_have_its_own_fill() -> None:
    out = done(images(2, 3, 4, 4, seed=0), "TranslateX", 9.0, fill=(1, 2, 3))
    assert np.array_equal(out, np.broadcast_to(np.array([1, 2, 3]).reshape(3, 1, 1), out.shape))


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("fill", [256, -1, (1, 2), (0, 0, 300)])
def test_a_fill_of_another_number_of_channels_or_range_is_refused(fill: Fill) -> None:
    with pytest.raises(SettingError, match="a level from 0 to 255"):
        done(images(1, 3, 4, 4, seed=0), "Rotate", 9.0, fill)


def test_floats_and_other_shapes_are_refused_with_advice() -> None:
    x = images(2, 3, 4, 4, seed=0)
    for wrong in (x.astype(np.float32), x[0], x.repeat(2, axis=1)):
        with pytest.raises(DataError, match="normalize them afterwards"):
            done(wrong, "Identity", 1.0)
