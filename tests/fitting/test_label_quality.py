"""Cross-validated accuracy and advice, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
