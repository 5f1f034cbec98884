"""Small datasets that need no download: two moons, two circles, and handwritten digits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits, make_moons

from samekind.errors import SettingError

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]


def moons(n: int = 6000, noise: float = 0.15, seed: int = 0) -> tuple[Array, Integers]:
    """Return two interleaved half circles with Gaussian noise: X (n, 2), and the classes y, 0 or 1."""
    X, y = make_moons(n, noise=noise, random_state=seed)
    return X, y.astype(np.int64)


def circles(
    n: int = 6000, noise: float = 0.3, radii: tuple[float, float] = (1.0, 2.5), seed: int = 0
) -> tuple[Array, Integers]:
    """Return two concentric circles with Gaussian noise: X (n, 2), and the classes y, 0 or 1, with equally many samples."""
    if not all(math.isfinite(r) and r > 0 for r in radii) or radii[0] == radii[1]:
        raise SettingError(f"radii are {radii[0]:g} {radii[1]:g}; expected two different numbers above 0, for example 1 2.5")
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    angle = rng.uniform(0, 2 * np.pi, n)
    X = np.array(radii)[y][:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return X + noise * rng.standard_normal((n, 2)), y


def digits() -> tuple[Array, Integers]:
    """Return 1797 handwritten digits: images (1797, 8, 8) with grey levels from 0 to 16, and labels from 0 to 9."""
    bunch = load_digits()
    return bunch.images.astype(np.uint8), bunch.target.astype(np.int64)
