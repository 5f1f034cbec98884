"""Baseline features: nearest neighbours of the same class, unusual data, and determinism."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from samekind.errors import DataError
from samekind.preprocessing import baseline_features
from samekind.preprocessing.baseline_features import compute_baseline_features


def same_class_fraction(z: np.ndarray, y: np.ndarray, k: int = 10) -> float:
    """Return the fraction of the k nearest neighbours that have the same class."""
    cosine = z @ z.T
    np.fill_diagonal(cosine, -2.0)
    near = np.argpartition(-cosine, k, axis=1)[:, :k]
    return float((y[near] == y[:, None]).mean())


def test_the_most_similar_digits_are_mostly_of_the_same_class() -> None:
    pixels, y = load_digits(return_X_y=True)
    assert same_class_fraction(compute_baseline_features(pixels.reshape(-1, 8, 8)), y) > 0.95
    assert same_class_fraction(compute_baseline_features(pixels), y) > 0.92


def test_every_feature_vector_has_length_one() -> None:
    for shape in [(40, 20, 20, 3), (40, 9, 12), (40, 2, 5, 1), (40, 3), (40, 300), (1, 8, 8), (2, 50, 60, 3)]:
        x = np.random.default_rng(0).normal(size=shape)
        z = compute_baseline_features(x)
        assert z.shape[0] == shape[0] and z.shape[1] <= 129 and z.dtype == np.float32
        if shape[0] > 1:
            assert np.allclose(np.linalg.norm(z, axis=1), 1.0, atol=1e-5), shape


def test_identical_samples_give_finite_features() -> None:
    assert not compute_baseline_features(np.zeros((5, 8, 8, 3), dtype=np.uint8)).any()
    assert np.isfinite(compute_baseline_features(np.full((5, 4), 7.0))).all()


def test_vectors_on_one_ray_from_the_mean_have_different_features() -> None:
    x = np.linspace(-3, 3, 60)[:, None] * np.array([[1.0, 1.0]])
    z = compute_baseline_features(x)
    nearest = (z @ z[50] - 2.0 * (np.arange(60) == 50)).argmax()
    assert nearest in (49, 51)


def test_the_block_size_does_not_matter_and_bytes_may_be_memory_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).integers(0, 256, (70, 12, 12, 3)).astype(np.uint8)
    np.save(tmp_path / "x.npy", x)
    whole = compute_baseline_features(x)
    monkeypatch.setattr(baseline_features, "BLOCK_VALUES", 12 * 12 * 3 * 7)
    seen: list[tuple[int, int]] = []
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert np.allclose(compute_baseline_features(mapped, lambda _, done, of: seen.append((done, of))), whole, atol=1e-5)
    assert seen == [(done, 70) for done in range(7, 71, 7)]


def test_non_numeric_data_is_refused() -> None:
    with pytest.raises(DataError, match="NaN"):
        compute_baseline_features(np.array([[1.0, np.nan], [0.0, 1.0]]))
