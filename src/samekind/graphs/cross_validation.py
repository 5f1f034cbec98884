"""Cross-validation among the labelled samples with a ridge classifier, the baseline that a graph must beat."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

RIDGE = 0.3  # weight of the squared coefficients in ridge regression; the samples are scaled to mean squared length 1
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]


def leave_one_out_folds(y: Integers) -> Integers:
    """Return the number of the fold (L,) that each of L labelled samples is held out in.

    A fold has at most one sample of each class, so that the classes stay balanced in the training part.
    """
    fold = np.zeros(len(y), dtype=np.int64)
    for c in np.unique(y):
        fold[y == c] = np.arange((y == c).sum())
    return fold


def linear_baseline_correct(x: Floats, y: Integers) -> Booleans:
    """Return for each labelled sample whether a linear classifier, trained without its fold, predicts its class.

    x (L, d) are the labelled samples and y (L,) their classes. A sample that is alone in its class counts as wrong.
    """
    classes, own, of_class = np.unique(y, return_inverse=True, return_counts=True)
    scores = cross_validated_ridge(x, np.eye(len(classes))[own], leave_one_out_folds(y))
    return np.asarray(true_class_ranks_first(scores, own) & (of_class[own] > 1))


def cross_validated_ridge(x: Floats, Y: Floats, fold: Integers) -> Floats:
    """Return ridge predictions of Y (L, classes) from x (L, d); each sample is predicted by a fit without the samples of
    its fold.

    Let K = x x^T / mean |x|^2 + 1, and let the targets be Y - 1/classes. A fit to all samples predicts F = H Y with H = K (K +
    r I)^-1. For the samples B of a fold, a fit without them predicts Y_B - (I - H_BB)^-1 (Y - F)_B. So one inverse serves all
    folds.
    """
    Y = Y - 1.0 / Y.shape[1]
    K = x @ x.T
    K = K / max(float(np.trace(K)) / len(x), np.finfo(float).tiny) + 1.0
    H = K @ np.linalg.inv(K + RIDGE * np.eye(len(x)))
    residual = Y - H @ Y
    predicted = np.empty_like(Y)
    for f in np.unique(fold):
        B = np.flatnonzero(fold == f)
        predicted[B] = Y[B] - np.linalg.solve(np.eye(len(B)) - H[np.ix_(B, B)], residual[B])
    return predicted


def true_class_ranks_first(scores: Floats, own: Integers) -> Booleans:
    """Return for each sample whether the score of its true class is above its scores (L, classes) of all other classes.

    `own` (L,) are the numbers of the true classes.
    """
    rows = np.arange(len(own))
    others = scores.copy()
    others[rows, own] = -np.inf
    return np.asarray(scores[rows, own] > others.max(axis=1))


def significantly_more(gained: float, lost: float) -> bool:
    """Return whether one classifier is better than another by a standard error, by McNemar's test with Edwards' correction.

    `gained` is the number of samples that only the first classifier predicts correctly, and `lost` the number that only the
    second does. The condition is gained - lost - 1 >= sqrt(gained + lost).
    """
    return gained - lost - 1.0 >= math.sqrt(max(gained + lost, 1.0))
