"""What labels say of one another: each is left out and told from the rest, without a look at the pool.

A graph that is to be followed has to tell the same rows better.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

RIDGE = 0.3  # beside rows of mean squared length 1: how far a straight cut is kept from following single rows
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]


def leave_one_out_folds(y: Integers) -> Integers:
    """(L,): when each row is left out. A turn takes one row of each class, so that none is rarer among the rest."""
    turn = np.zeros(len(y), dtype=np.int64)
    for c in np.unique(y):
        turn[y == c] = np.arange((y == c).sum())
    return turn


def linear_baseline_correct(x: Floats, y: Integers) -> Booleans:
    """Whether straight cuts through the other labelled rows x (L, d) give a left-out row its class y (L,).

    A row that is alone in its class cannot be told from the others.
    """
    classes, own, of_class = np.unique(y, return_inverse=True, return_counts=True)
    answers = cross_validated_ridge(x, np.eye(len(classes))[own], leave_one_out_folds(y))
    return np.asarray(true_class_ranks_first(answers, own) & (of_class[own] > 1))


def cross_validated_ridge(x: Floats, Y: Floats, turn: Integers) -> Floats:
    """Ridge regression of Y (L, classes) on x (L, d), for each row without the rows of its turn.

    F = K (K + r I)^-1 Y = H Y, K = x x^T / mean |x|^2 + 1, Y around its mean for equal classes. Without the rows B the answer
    for them is Y_B - (I - H_BB)^-1 (Y - F)_B, so that one inverse serves all turns.
    """
    Y = Y - 1.0 / Y.shape[1]
    K = x @ x.T
    K = K / max(float(np.trace(K)) / len(x), np.finfo(float).tiny) + 1.0
    H = K @ np.linalg.inv(K + RIDGE * np.eye(len(x)))
    missed = Y - H @ Y
    answers = np.empty_like(Y)
    for t in np.unique(turn):
        B = np.flatnonzero(turn == t)
        answers[B] = Y[B] - np.linalg.solve(np.eye(len(B)) - H[np.ix_(B, B)], missed[B])
    return answers


def true_class_ranks_first(scores: Floats, own: Integers) -> Booleans:
    """Whether, of the scores (L, classes), that of the own class is above all others."""
    rows = np.arange(len(own))
    others = scores.copy()
    others[rows, own] = -np.inf
    return np.asarray(scores[rows, own] > others.max(axis=1))


def significantly_more(gained: float, lost: float) -> bool:
    """Whether more rows were gained than lost by a standard error, one row of the difference not counted.

    McNemar's comparison of two ways to answer the same questions, with Edwards' correction: (gained - lost - 1)^2 against
    gained + lost.
    """
    return gained - lost - 1.0 >= math.sqrt(max(gained + lost, 1.0))
