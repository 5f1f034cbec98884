"""Ramps: factors that depend on a position t and a length, both in the same unit (steps, epochs or fractions of training)."""

from __future__ import annotations

import math


def sigmoid_rampup(t: float, length: float) -> float:
    """Return U = exp(-5 (1 - t/length)^2), which rises from 0.0067 at t = 0 to 1 at t = length and stays 1."""
    if length <= 0 or t >= length:
        return 1.0
    return math.exp(-5.0 * (1.0 - max(t, 0.0) / length) ** 2)


def sigmoid_rampdown(t: float, length: float, total: float) -> float:
    """Return V, which is 1 until the last `length` of the total, and then falls from 1 to exp(-12.5) at t = total.

    V = exp(-12.5 phi^2), where phi rises from 0 to 1 over the last `length`.
    """
    if length <= 0 or t < total - length:
        return 1.0
    return math.exp(-12.5 * (1.0 - (total - t) / length) ** 2)


def step_ramp(t: float, length: float) -> float:
    """Return 0 for t below the length, and 1 from there on."""
    return float(t >= length)


def linear_ramp(t: float, length: float) -> float:
    """Return t/length, clipped to [0, 1]; 1 if the length is 0."""
    return 1.0 if length <= 0 else min(max(t / length, 0.0), 1.0)


def cosine_rampdown(t: float, length: float) -> float:
    """Return (cos(pi t/length) + 1)/2, which falls from 1 to 0; if the length exceeds the training, it ends above 0."""
    return 0.5 * (math.cos(math.pi * min(t / length, 1.0)) + 1.0)


def cosine_seven_sixteenths(t: float, total: float) -> float:
    """Return cos(7 pi t/(16 total)), which falls from 1 to 0.195 at t = total."""
    return math.cos(7.0 * math.pi * min(t / total, 1.0) / 16.0)
