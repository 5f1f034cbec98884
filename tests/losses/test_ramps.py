"""Ramps: the numbers of the papers, and the values at and beyond the ends."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samekind.losses.ramps import (
    cosine_rampdown,
    cosine_seven_sixteenths,
    linear_ramp,
    sigmoid_rampdown,
    sigmoid_rampup,
    step_ramp,
)

lengths = st.floats(0.01, 1000.0)
fractions = st.floats(0.0, 1.0)


@pytest.mark.parametrize(("epoch", "expected"), [(0, 0.00674), (20, 0.0600), (40, 0.2865), (60, 0.7316), (80, 1.0), (600, 1.0)])
def test_lambda1_ramps_up_over_80_epochs_as_in_the_paper(epoch: float, expected: float) -> None:
    assert sigmoid_rampup(epoch, 80) == pytest.approx(expected, abs=6e-5)


def test_a_rampup_starts_at_e_to_the_minus_five_and_not_at_zero() -> None:
    assert sigmoid_rampup(0.0, 80.0) == math.exp(-5.0)
    assert sigmoid_rampup(-3.0, 80.0) == math.exp(-5.0)


def test_a_rampup_of_length_zero_is_one() -> None:
    assert sigmoid_rampup(0.0, 0.0) == 1.0
    assert linear_ramp(0.0, 0.0) == 1.0


@settings(max_examples=25, deadline=None)
@given(length=lengths, early=fractions, late=fractions)
def test_a_rampup_never_decreases(length: float, early: float, late: float) -> None:
    t, later = sorted((early * length, late * length))
    assert sigmoid_rampup(t, length) <= sigmoid_rampup(later, length) <= 1.0


@settings(max_examples=25, deadline=None)
@given(length=lengths, fraction=fractions, unit=st.floats(0.1, 100.0))
def test_a_ramp_may_be_measured_in_any_unit(length: float, fraction: float, unit: float) -> None:
    t, total = fraction * length, 2.0 * length
    assert sigmoid_rampup(unit * t, unit * length) == pytest.approx(sigmoid_rampup(t, length), rel=1e-6)
    in_unit = sigmoid_rampdown(unit * (length + t), unit * length, unit * total)
    assert in_unit == pytest.approx(sigmoid_rampdown(length + t, length, total), rel=1e-6)


def test_a_rampdown_starts_at_its_time_and_ends_near_zero() -> None:
    assert sigmoid_rampdown(0, 50, 300) == 1.0
    assert sigmoid_rampdown(249.9, 50, 300) == 1.0
    assert sigmoid_rampdown(250, 50, 300) == 1.0
    assert sigmoid_rampdown(300, 50, 300) == pytest.approx(3.7e-6, abs=5e-8)


@pytest.mark.parametrize("into", [0, 1, 10, 25, 40, 50])
def test_a_rampdown_of_50_epochs_equals_that_of_temporal_ensembling(into: int) -> None:
    assert sigmoid_rampdown(250 + into, 50, 300) == pytest.approx(math.exp(-((0.5 * into) ** 2) / 50))


def test_a_rampdown_of_length_zero_stays_one() -> None:
    assert sigmoid_rampdown(300, 0, 300) == 1.0


def test_a_step_ramp_is_zero_before_its_length_and_one_after_it() -> None:
    assert [step_ramp(t, 40) for t in (0, 39.999, 40, 41)] == [0.0, 0.0, 1.0, 1.0]


def test_a_linear_ramp_is_clipped_to_zero_and_one() -> None:
    assert [linear_ramp(t, 4.0) for t in (-1.0, 0.0, 1.0, 3.0, 4.0, 9.0)] == [0.0, 0.0, 0.25, 0.75, 1.0, 1.0]


@pytest.mark.parametrize(("t", "expected"), [(0, 1.0), (50, 0.75), (75, 0.5), (150, 0.0), (200, 0.0)])
def test_a_cosine_falls_to_zero_over_its_length(t: float, expected: float) -> None:
    assert cosine_rampdown(t, 150) == pytest.approx(expected, abs=1e-12)


def test_a_cosine_longer_than_the_run_never_reaches_zero() -> None:
    assert cosine_rampdown(180, 210) == pytest.approx(0.0495, abs=1e-4)


@pytest.mark.parametrize(("t", "expected"), [(0, 1.0), (50, 0.7730), (100, 0.1951), (120, 0.1951)])
def test_seven_sixteenths_of_a_cosine_end_at_0195(t: float, expected: float) -> None:
    assert cosine_seven_sixteenths(t, 100) == pytest.approx(expected, abs=6e-5)
