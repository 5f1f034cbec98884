"""Classes held against the truth, as plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def error_rate(predicted: Array, true: Array) -> float:
    """Share of wrong answers, in per cent."""
    return 100.0 * float(np.mean(predicted != true))


def same_class(y_a: Array, y_b: Array) -> npt.NDArray[np.bool_]:
    """(n_a, n_b): whether two rows share a class; the ideal similarity matrix."""
    return np.asarray(y_a[:, None] == y_b[None, :])
