"""RandAugment: the draws, their magnitudes, and independent draws for each image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from samekind.data.augment.ctaugment import CONTROLLED, CTAugment
from samekind.data.augment.normalize import SYMMETRIC
from samekind.data.augment.ops import OPERATIONS, apply_ops
from samekind.data.augment.randaugment import (
    FIXMATCH,
    FIXMATCH_USB,
    GOOGLE,
    PAPER,
    USB,
    Cutout,
    Draws,
    MagnitudeRange,
    MagnitudeRanges,
    RandAugment,
    apply_draws,
    magnitude_ranges,
    magnitudes,
)
from samekind.data.augment.transforms import Compose, NormalizeAfter, RandomShift, Transform
from samekind.errors import SettingError

IDENTITY = OPERATIONS.index("Identity")


def seen(view: Transform, x: Tensor, seed: int = 0) -> Tensor:
    return view(x, torch.arange(len(x)), torch.Generator().manual_seed(seed))


def images(n: int, channels: int = 3, height: int = 32, width: int = 32, seed: int = 0) -> Tensor:
    shape = (n, channels, height, width)
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def magnitude(name: str, level: float, ranges: MagnitudeRanges, sign: float = 1.0, height: int = 32, width: int = 32) -> float:
    draws = Draws(np.array([[OPERATIONS.index(name)]]), np.array([[level]]), np.array([[sign]]))
    return float(magnitudes(draws, ranges, height, width)[0, 0])


# ---------------------------------------------------------------- ranges


@pytest.mark.parametrize("level", range(1, 10))
def test_the_nine_levels_of_fixmatch_have_the_magnitudes_of_its_authors(level: int) -> None:
    for sign in (-1.0, 1.0):
        assert magnitude("Rotate", level / 10, GOOGLE, sign) == sign * int(level * 30 / 10)
        assert magnitude("TranslateX", level / 10, GOOGLE, sign) == sign * int(level * 10 / 10)
        assert magnitude("ShearY", level / 10, GOOGLE, sign) == pytest.approx(sign * level * 0.3 / 10)
        assert magnitude("Posterize", level / 10, GOOGLE, sign) == 4 - int(level * 4 / 10)
        assert magnitude("Solarize", level / 10, GOOGLE, sign) == 256 - int(level * 256 / 10)
        assert magnitude("Color", level / 10, GOOGLE, sign) == pytest.approx(level * 1.8 / 10 + 0.1)


@pytest.mark.parametrize(
    ("ranges", "name", "low", "high"),
    [
        (USB, "Brightness", 0.05, 0.95),
        (USB, "Rotate", -30, 30),
        (USB, "TranslateX", -9.6, 9.6),
        (USB, "Posterize", 4, 8),
        (USB, "Solarize", 0, 256),
        (CONTROLLED, "Sharpness", 0.1, 2.0),
        (CONTROLLED, "Rotate", -45, 45),
        (CONTROLLED, "Equalize", 0, 1),
        (CONTROLLED, "Posterize", 1, 9),
        (GOOGLE, "Equalize", 1, 1),
    ],
)
def test_ranges_run_from_low_to_high(ranges: MagnitudeRanges, name: str, low: float, high: float) -> None:
    assert magnitude(name, 0.0, ranges) == pytest.approx(low)
    assert magnitude(name, 1.0, ranges) == pytest.approx(high)
    assert magnitude(name, 0.5, ranges) == pytest.approx((low + high) / 2)


def test_translations_are_proportional_to_the_side() -> None:
    assert magnitude("TranslateX", 1.0, USB, height=10, width=100) == pytest.approx(30)
    assert magnitude("TranslateY", 1.0, USB, height=10, width=100) == pytest.approx(3)


def test_a_range_for_an_unknown_operation_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(SettingError, match="did you mean 'Rotate'"):
        magnitude_ranges(Rotat=MagnitudeRange(0.0, 1.0))


# ---------------------------------------------------------------- draws


def test_two_different_operations_all_equally_likely() -> None:
    operation = PAPER.draw(7000, torch.Generator().manual_seed(0)).operation
    assert operation.shape == (7000, 2)
    assert (operation[:, 0] != operation[:, 1]).all()
    for turn in range(2):
        shares = np.bincount(operation[:, turn], minlength=14) / 7000
        assert np.abs(shares - 1 / 14).max() < 0.015


def test_levels_and_signs_are_drawn_uniformly() -> None:
    draws = PAPER.draw(4000, torch.Generator().manual_seed(0))
    assert len(set(draws.level.flatten().tolist())) == 8000
    assert draws.level.mean() == pytest.approx(0.5, abs=0.02)
    assert draws.level.min() >= 0.0 and draws.level.max() < 1.0
    assert draws.sign.mean() == pytest.approx(0.0, abs=0.05)
    assert set(draws.sign.flatten().tolist()) == {-1.0, 1.0}


def test_fixmatch_draws_with_replacement_applies_half_and_has_nine_levels() -> None:
    draws = FIXMATCH.draw(4000, torch.Generator().manual_seed(0))
    done = draws.operation != IDENTITY
    assert done.mean() == pytest.approx(0.5 * 13 / 14, abs=0.02)
    both = done.all(1)
    assert (draws.operation[both, 0] == draws.operation[both, 1]).mean() == pytest.approx(1 / 13, abs=0.03)
    assert set(np.round(10 * draws.level).flatten().tolist()) == set(range(1, 10))


def test_presets_differ_as_their_papers_do() -> None:
    assert (PAPER.depth, FIXMATCH.depth, FIXMATCH_USB.depth) == (2, 2, 3)
    assert PAPER.cutout is None and FIXMATCH.cutout == Cutout(0.5, 0.5) and FIXMATCH_USB.cutout == Cutout(0.0, 0.5)
    assert PAPER.probability == FIXMATCH_USB.probability == 1.0


@pytest.mark.parametrize("wrong", [{"depth": 0}, {"depth": 15}, {"steps": 1}])
def test_settings_that_cannot_be_drawn_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingError, match="expected"):
        replace(PAPER, **wrong)  # type: ignore[arg-type]


# ---------------------------------------------------------------- the views


@pytest.mark.parametrize("view", [PAPER, FIXMATCH, FIXMATCH_USB, CTAugment(), Cutout(), Cutout(0.0, 0.5)])
def test_the_result_depends_only_on_the_generator(view: Transform) -> None:
    x = images(40)
    assert torch.equal(seen(view, x, seed=3), seen(view, x, seed=3))
    assert not torch.equal(seen(view, x, seed=3), seen(view, x, seed=4))


@pytest.mark.parametrize("view", [PAPER, FIXMATCH, CTAugment()])
def test_every_image_has_its_own_draw(view: Transform) -> None:
    out = seen(view, images(1).repeat(60, 1, 1, 1))
    assert len({image.numpy().tobytes() for image in out}) > 30


@settings(max_examples=20, deadline=None)
@given(n=st.integers(2, 20), grey=st.booleans(), height=st.integers(1, 20), width=st.integers(1, 20), seed=st.integers(0, 99))
def test_an_image_does_not_depend_on_the_pixels_of_others(n: int, grey: bool, height: int, width: int, seed: int) -> None:
    x, other = images(n, 1 if grey else 3, height, width), images(n, 1 if grey else 3, height, width, seed=1)
    other[0] = x[0]
    for view in (PAPER, FIXMATCH, CTAugment()):
        out = seen(view, x, seed)
        assert out.shape == x.shape and out.dtype == torch.uint8
        assert torch.equal(out[0], seen(view, other, seed)[0])


def test_operations_are_applied_in_order() -> None:
    x = images(50)
    draws = PAPER.draw(50, torch.Generator().manual_seed(1))
    amount = magnitudes(draws, GOOGLE, 32, 32)
    once = apply_ops(x.numpy(), draws.operation[:, 0], amount[:, 0])
    twice = apply_ops(once, draws.operation[:, 1], amount[:, 1])
    assert np.array_equal(apply_draws(x, draws, GOOGLE).numpy(), twice)


def test_uint8_transforms_come_before_the_normalizer() -> None:
    out = seen(NormalizeAfter(Compose(FIXMATCH, RandomShift(2, flip=True)), SYMMETRIC), images(30))
    assert out.dtype == torch.float32
    assert -1.0 <= out.min() < out.max() <= 1.0


# ---------------------------------------------------------------- cutout


def test_cutout_covers_half_the_side_around_a_pixel_of_the_image() -> None:
    out = seen(Cutout(), torch.zeros(400, 1, 32, 32, dtype=torch.uint8))[:, 0] == 128
    lines, columns = out.any(2).sum(1), out.any(1).sum(1)
    assert torch.equal(out.flatten(1).sum(1), lines * columns)  # always a rectangle
    assert lines.min() == 8 and lines.max() == 16  # a centre on the edge leaves half of it
    assert out.any(0).all()
    assert (lines == 16).double().mean().item() == pytest.approx(17 / 32, abs=0.08)


def test_the_side_of_cutout_is_between_its_limits() -> None:
    out = seen(Cutout(0.25, 0.5), torch.zeros(400, 1, 32, 32, dtype=torch.uint8))[:, 0] == 128
    assert set(out.any(2).sum(1).tolist()) <= set(range(4, 17))
    assert len(set(out.flatten(1).sum(1).tolist())) > 20


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 9), (9, 1), (5, 40)])
def test_cutout_covers_at_most_half_the_shorter_side_of_small_images(height: int, width: int) -> None:
    out = seen(Cutout(), torch.zeros(50, 1, height, width, dtype=torch.uint8)) == 128
    assert out.flatten(1).sum(1).max() == (2 * (min(height, width) // 4)) ** 2


def test_cutout_fills_each_channel_and_keeps_the_other_pixels() -> None:
    x = images(20)
    out = seen(Cutout(fill=(125, 123, 114)), x)
    changed = (out != x).any(1)
    assert changed.any()
    for channel, level in enumerate((125, 123, 114)):
        assert (out[:, channel][changed] == level).all()
    floats = seen(Cutout(fill=(125, 123, 114)), x.float())
    assert torch.equal(floats, out.float())


def test_any_depth_is_drawn_without_repeating() -> None:
    draws = RandAugment(depth=14).draw(5, torch.Generator().manual_seed(0))
    assert (np.sort(draws.operation, axis=1) == np.arange(14)).all()
