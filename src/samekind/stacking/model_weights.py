"""Weights of the ensemble's candidates: from the likelihood that each gives to labels held out in stratified folds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from samekind.graphs.linear_systems import Floats, Labels

N_FOLDS = 5
MAX_FITS = 10  # largest number of folds over all repetitions
FEW_LABELS = 2000  # from this number of labels on, the folds are not repeated
TEMPERATURES = (0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)  # factors on the log-probabilities that are tried
TEMPERATURE_PRIOR = 0.01  # times |ln T|: the least gain in log-likelihood per label for which T is chosen rather than 1
UNIFORM = 0.02  # fraction of the uniform distribution mixed into each prediction, so that one confident mistake does not decide


class Fold(NamedTuple):
    """Positions among the labelled samples: those to train on and those held out."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


def stratified_folds(y: Labels, rng: np.random.Generator) -> list[Fold]:
    """Return repeated stratified folds over the labels y (m,); a class with one label is always trained on.

    No fold is returned if no class has two labels.
    """
    counts = np.bincount(y)
    n_folds = min(N_FOLDS, int(counts.max()))
    if n_folds < 2:
        return []
    folds = []
    for _ in range(1 if len(y) >= FEW_LABELS else MAX_FITS // n_folds):
        number, offset = np.full(len(y), -1), 0
        for c in np.flatnonzero(counts >= 2):
            members = rng.permutation(np.flatnonzero(y == c))
            number[members] = (np.arange(len(members)) + offset) % n_folds
            offset += len(members)
        tests = [np.flatnonzero(number == k) for k in range(n_folds)]
        folds += [Fold(np.setdiff1d(np.arange(len(y)), test), test) for test in tests if len(test)]
    return folds


def scale_temperature(P: Floats, temperature: float) -> Floats:
    """Return the probabilities P (n, C) with log-probabilities times `temperature`; above 1 they become more confident."""
    powered = np.power(np.maximum(P, 1e-12), temperature)
    return np.asarray(powered / powered.sum(axis=1, keepdims=True))


def mean_log_likelihood(P: Floats, y: Labels) -> float:
    """Return the mean log-likelihood of the labels y (m,) under P (m, C), mixed with a little of the uniform distribution."""
    return float(np.log((1.0 - UNIFORM) * P[np.arange(len(y)), y] + UNIFORM / P.shape[1]).mean())


def fit_temperature(P: Floats, y: Labels) -> tuple[float, float]:
    """Return the best temperature and its score: the mean log-likelihood of held-out labels, less TEMPERATURE_PRIOR |ln T|."""
    scores = [mean_log_likelihood(scale_temperature(P, T), y) - TEMPERATURE_PRIOR * abs(np.log(T)) for T in TEMPERATURES]
    best = int(np.argmax(scores))
    return TEMPERATURES[best], scores[best]


def candidate_weights(log_likelihood: Floats, n_labels: int, log_prior: Floats) -> Floats:
    """Return the weights (k,) of the candidates, which sum to 1: the prior of each times the likelihood of all labels.

    `log_likelihood` (k,) is the mean log-likelihood of a held-out label by each candidate.
    """
    score = n_labels * log_likelihood + log_prior
    weights = np.exp(score - score.max())
    return np.asarray(weights / weights.sum())
