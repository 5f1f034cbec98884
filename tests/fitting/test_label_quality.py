"""Cross-validated accuracy and advice, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_moons

from samekind import SemiSupervisedClassifier
from samekind.fitting.label_quality import assess, wilson_interval

COUNTS = np.array([4, 4])


def test_accuracy_counts_held_out_labels_and_has_an_interval() -> None:
    quality = assess(np.array([0, 0, 1, 1] * 2), np.array([0, 0, 1, 0] * 2), COUNTS, ["cat", "dog"], 0.5)
    assert quality.accuracy == 0.75
    assert quality.low < 0.75 < quality.high
    assert str(quality) == "cross-validated accuracy on 8 labels: 75 % (95 % interval 41 to 93 %)"


def test_the_interval_is_that_of_a_worked_example() -> None:
    assert wilson_interval(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


@given(st.integers(0, 50), st.integers(1, 50))
def test_the_interval_holds_the_fraction_and_stays_in_range(right: int, n: int) -> None:
    fraction = min(right, n) / n
    low, high = wilson_interval(fraction, n)
    assert 0.0 <= low <= fraction + 1e-12 and fraction - 1e-12 <= high <= 1.0


def test_without_a_second_label_the_accuracy_is_unknown() -> None:
    none = np.empty(0, dtype=int)
    quality = assess(none, none, np.array([1, 1]), ["cat", "dog"], 1.0)
    assert quality.accuracy is None and "second sample" in str(quality)
    assert "One label only: cat, dog." in quality.advice[0]


def test_advice_names_the_two_classes_that_are_confused_most() -> None:
    quality = assess(np.array([1, 1, 1, 1, 0, 1, 1, 1]), np.repeat([0, 1], 4), COUNTS, ["cat", "dog"], 0.5)
    assert quality.advice == (
        "100 % of the held-out labels of cat were predicted as dog: more labels of cat and dog would help most.",
    )


def test_advice_warns_when_unlabelled_samples_do_not_help() -> None:
    y = np.repeat([0, 1], 4)
    assert "ignore the unlabelled samples" in assess(y, y, COUNTS, ["cat", "dog"], 0.01).advice[0]
    assert assess(y, y, COUNTS, ["cat", "dog"], 0.5).advice == ()


# ---------------------------------------------------------------- advice of whole fits


def advice(X: Any, y: Any, labels_per_class: int, seed: int) -> str:
    """Return the advice after a fit with some labels of each class."""
    rng, shown = np.random.default_rng(seed), np.full(len(y), -1)
    for c in np.unique(y):
        shown[rng.choice(np.flatnonzero(y == c), labels_per_class, replace=False)] = c
    quality = SemiSupervisedClassifier(random_state=0).fit(X, shown).quality_
    assert quality is not None
    return " ".join(quality.advice)


def test_a_fit_names_the_two_classes_that_overlap() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 100)
    X = rng.standard_normal((300, 2)) + np.array([[0.0, 0.0], [0.3, 0.0], [12.0, 0.0]])[y]
    found = advice(X, y, 10, seed=0)
    assert "more labels of 0 and 1 would help most" in found or "more labels of 1 and 0 would help most" in found


def test_a_fit_whose_unlabelled_samples_help_does_not_warn_of_them() -> None:
    X, y = make_moons(300, noise=0.08, random_state=0)
    assert "ignore the unlabelled samples" not in advice(X, y, 10, seed=0)


def test_a_fit_names_the_class_with_one_label_until_an_update_and_a_refit_add_one() -> None:
    X, y = make_moons(100, noise=0.08, random_state=0)
    shown = np.full(100, -1)
    shown[np.flatnonzero(y == 0)[:3]] = 0
    shown[np.flatnonzero(y == 1)[:1]] = 1
    model = SemiSupervisedClassifier(random_state=0).fit(X, shown)
    assert "One label only: 1." in " ".join(model.quality_.advice)
    model.update(np.flatnonzero(y == 1)[1:3], 1).refit()
    assert "One label only" not in " ".join(model.quality_.advice)
