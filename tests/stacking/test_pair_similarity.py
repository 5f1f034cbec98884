"""Similarity of pairs from the cosine."""

from __future__ import annotations

import numpy as np

from samekind.stacking.pair_similarity import PairCoefficients, fit_pair_coefficients


def test_one_label_per_class_gives_the_defaults() -> None:
    assert fit_pair_coefficients(np.eye(3), np.array([0, 1]), np.array([0, 1])) == PairCoefficients()


def test_a_higher_cosine_raises_the_similarity_also_if_the_labels_say_otherwise() -> None:
    unit = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    helpful = fit_pair_coefficients(unit, np.arange(4), np.array([0, 1, 0, 1]))
    misleading = fit_pair_coefficients(unit, np.arange(4), np.array([0, 0, 1, 1]))
    assert helpful.slope > misleading.slope > 0
