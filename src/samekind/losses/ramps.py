"""Ramps: functions of a position t and a length L in one unit (steps, epochs or fractions of training)."""

from __future__ import annotations

import math


def sigmoid_rampup(t: float, length: float) -> float:
    """Return U(t, L) = exp(-5 (1 - min(t, L)/L)^2): 0.0067 at 0, and 1 from L on."""
    if length <= 0 or t >= length:
        return 1.0
    return math.exp(-5.0 * (1.0 - max(t, 0.0) / length) ** 2)


def sigmoid_rampdown(t: float, length: float, total: float) -> float:
    """Return V(t) = exp(-12.5 phi^2) with phi = 1 - (T - t)/L during the last L of the total length T, and 1 before."""
    if length <= 0 or t < total - length:
        return 1.0
    return math.exp(-12.5 * (1.0 - (total - t) / length) ** 2)


def step_ramp(t: float, length: float) -> float:
    """Return 0 before L, and 1 from L on."""
    return float(t >= length)


def linear_ramp(t: float, length: float) -> float:
    """Return t/L, clipped to [0, 1]."""
    return 1.0 if length <= 0 else min(max(t / length, 0.0), 1.0)


def cosine_rampdown(t: float, length: float) -> float:
    """Return (cos(pi t/L) + 1)/2; if L is longer than the training, it does not reach 0."""
    return 0.5 * (math.cos(math.pi * min(t / length, 1.0)) + 1.0)


def cosine_seven_sixteenths(t: float, total: float) -> float:
    """Return cos(7 pi t/(16 T)), which ends at 0.195."""
    return math.cos(7.0 * math.pi * min(t / total, 1.0) / 16.0)
