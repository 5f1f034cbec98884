"""Features without training: they tell kinds apart, whatever the data, and are the same every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from samekind import baseline_features
from samekind.baseline_features import compute_baseline_features
from samekind.errors import DataError


def share_of_kind(z: np.ndarray, y: np.ndarray, k: int = 10) -> float:
    """How many of the k most alike are of the same kind."""
    cosine = z @ z.T
    np.fill_diagonal(cosine, -2.0)
    near = np.argpartition(-cosine, k, axis=1)[:, :k]
    return float((y[near] == y[:, None]).mean())


def test_the_most_alike_digits_are_mostly_the_same_digit() -> None:
    pixels, y = load_digits(return_X_y=True)
    assert share_of_kind(compute_baseline_features(pixels.reshape(-1, 8, 8)), y) > 0.95
    assert share_of_kind(compute_baseline_features(pixels), y) > 0.92


def test_every_row_has_length_one() -> None:
    for shape in [(40, 20, 20, 3), (40, 9, 12), (40, 2, 5, 1), (40, 3), (40, 300), (1, 8, 8), (2, 50, 60, 3)]:
        x = np.random.default_rng(0).normal(size=shape)
        z = compute_baseline_features(x)
        assert z.shape[0] == shape[0] and z.shape[1] <= 129 and z.dtype == np.float32
        if shape[0] > 1:
            assert np.allclose(np.linalg.norm(z, axis=1), 1.0, atol=1e-5), shape


def test_what_is_all_alike_gives_nothing_to_compare_and_no_error() -> None:
    assert not compute_baseline_features(np.zeros((5, 8, 8, 3), dtype=np.uint8)).any()
    assert np.isfinite(compute_baseline_features(np.full((5, 4), 7.0))).all()


def test_rows_on_one_ray_from_the_mean_are_not_the_same() -> None:
    x = np.linspace(-3, 3, 60)[:, None] * np.array([[1.0, 1.0]])
    z = compute_baseline_features(x)
    nearest = (z @ z[50] - 2.0 * (np.arange(60) == 50)).argmax()
    assert nearest in (49, 51)


def test_blocks_change_nothing_and_bytes_may_lie_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).integers(0, 256, (70, 12, 12, 3)).astype(np.uint8)
    np.save(tmp_path / "x.npy", x)
    whole = compute_baseline_features(x)
    monkeypatch.setattr(baseline_features, "VALUES", 12 * 12 * 3 * 7)
    seen: list[tuple[int, int]] = []
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert np.allclose(compute_baseline_features(mapped, lambda _, done, of: seen.append((done, of))), whole, atol=1e-5)
    assert seen == [(done, 70) for done in range(7, 71, 7)]


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(DataError, match="NaN"):
        compute_baseline_features(np.array([[1.0, np.nan], [0.0, 1.0]]))
