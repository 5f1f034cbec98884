"""Errors of classes and of similarities, as plain numbers."""

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


def pair_auc(W: Array, y: Array) -> float:
    """Area under the ROC curve of W (n, n) as a detector of "same class", over pairs of different rows."""
    from sklearn.metrics import roc_auc_score

    apart = ~np.eye(len(y), dtype=bool)
    return float(roc_auc_score(same_class(y, y)[apart], W[apart]))


def precision_at(W: Array, y: Array, k: int) -> float:
    """Share of same-class rows among the k most alike to each row, itself left out, in per cent."""
    W = W.copy()
    np.fill_diagonal(W, -np.inf)
    nearest = np.argsort(-W, axis=1, kind="stable")[:, :k]
    return 100.0 * float(np.mean(y[nearest] == y[:, None]))
