"""Similarity of pairs from the cosine."""

from __future__ import annotations

import numpy as np
import pytest

from samekind.stacking.pair_similarity import fit_pair_coefficients


def test_with_one_label_per_class_the_cosine_counts_by_its_spread_over_all_samples() -> None:
    unit = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    cosine = np.array([1.0, 0.0, 0.6, 0.0, 1.0, 0.8])
    bias, slope = fit_pair_coefficients(unit, np.array([0, 1]), np.array([0, 1]))
    assert slope == pytest.approx(1 / cosine.std())
    assert bias == pytest.approx(-cosine.mean() / cosine.std())


def test_a_higher_cosine_raises_the_similarity_also_if_the_labels_say_otherwise() -> None:
    unit = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    helpful = fit_pair_coefficients(unit, np.arange(4), np.array([0, 1, 0, 1]))
    misleading = fit_pair_coefficients(unit, np.arange(4), np.array([0, 0, 1, 1]))
    assert helpful.slope > misleading.slope > 0
