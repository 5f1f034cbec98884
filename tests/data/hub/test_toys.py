"""The toy datasets have the given sizes, noise and radii."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from samekind.data.hub.toys import circles, digits, moons
from samekind.errors import SettingError


@pytest.mark.parametrize("make", [moons, circles])
def test_the_default_is_the_size_of_the_paper_with_even_classes(make: Callable[[], Any]) -> None:
    X, y = make()
    assert X.shape == (6000, 2)
    assert np.bincount(y).tolist() == [3000, 3000]


@pytest.mark.parametrize("make", [moons, circles])
def test_the_same_seed_gives_the_same_points_and_another_seed_others(make: Callable[..., Any]) -> None:
    first, again, other = make(50, seed=1)[0], make(50, seed=1)[0], make(50, seed=2)[0]
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_without_noise_the_circles_have_their_radii() -> None:
    X, y = circles(40, noise=0.0, radii=(0.5, 3.0))
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), np.where(y == 0, 0.5, 3.0))


def test_the_noise_of_the_circles_has_the_given_deviation() -> None:
    X, _ = circles(20_000, noise=0.3)
    still, _ = circles(20_000, noise=0.0)
    assert (X - still).std() == pytest.approx(0.3, rel=0.02)


@pytest.mark.parametrize("radii", [(2.0, 2.0), (-1.0, 2.0), (0.0, 1.0), (1.0, float("inf")), (float("nan"), 1.0)])
def test_equal_or_invalid_radii_are_refused(radii: tuple[float, float]) -> None:
    with pytest.raises(SettingError, match="two different numbers above 0"):
        circles(10, radii=radii)


def test_digits_are_small_grey_images_of_ten_classes() -> None:
    images, y = digits()
    assert images.shape == (1797, 8, 8)
    assert images.dtype == np.uint8
    assert (images.min(), images.max()) == (0, 16)
    assert np.unique(y).tolist() == list(range(10))
