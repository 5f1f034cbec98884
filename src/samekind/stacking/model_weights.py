"""Weights of the models in the ensemble, from the likelihood that each model gives to held-out labels.

The labels are held out in stratified folds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from samekind.graphs.linear_systems import Floats, Labels

N_FOLDS = 5
MAX_FITS = 10  # largest number of folds, over all repetitions of the division into folds
FEW_LABELS = 2000  # from this number of labels on, the division into folds is not repeated
# factors on log-probabilities that are compared; above 1, predictions become more confident
TEMPERATURES = (0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)
LEAST_TEMPERATURE, LARGEST_TEMPERATURE = 0.1, 20.0  # limits of the search in `temperature_of_confidence`
BISECTIONS = 12  # number of bisections in that search
# a temperature T other than 1 is only chosen if it raises the log-likelihood per label by more than this times |ln T|
TEMPERATURE_PRIOR = 0.01
UNIFORM = 0.02  # fraction of the uniform distribution in each prediction, so that one confident mistake does not decide


class Fold(NamedTuple):
    """Positions among the labelled samples: of those to train on, and of those held out."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


def stratified_folds(y: Labels, rng: np.random.Generator) -> list[Fold]:
    """Return stratified folds of the labels y (m,), with several random divisions into folds if there are few labels.

    A class with one label is in the training part of all folds. If no class has two labels, the list is empty.
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
    """Return probabilities P (n, C) whose logarithms are multiplied by `temperature` and normalized; above 1, they are
    more confident.
    """
    powered = np.power(np.maximum(P, 1e-12), temperature)
    return np.asarray(powered / powered.sum(axis=1, keepdims=True))


def temperature_of_confidence(P: Floats, confidence: float) -> float:
    """Return the temperature for which the mean confidence of the predictions P (n, C) is `confidence`.

    The confidence of a sample is its largest probability. If no temperature gives this mean, LEAST_TEMPERATURE or
    LARGEST_TEMPERATURE is returned.
    """
    low, high = np.log(LEAST_TEMPERATURE), np.log(LARGEST_TEMPERATURE)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if scale_temperature(P, float(np.exp(middle))).max(axis=1).mean() < confidence:
            low = middle
        else:
            high = middle
    return float(np.exp(0.5 * (low + high)))


def mean_log_likelihood(P: Floats, y: Labels) -> float:
    """Return the mean log-likelihood of labels y (m,) under predictions P (m, C).

    The predictions are mixed with 2 % of the uniform distribution.
    """
    return float(np.log((1.0 - UNIFORM) * P[np.arange(len(y)), y] + UNIFORM / P.shape[1]).mean())


def fit_temperature(P: Floats, y: Labels) -> tuple[float, float]:
    """Return the temperature with the best score, and its score.

    The score of a temperature T is the mean log-likelihood of held-out labels y (m,), less TEMPERATURE_PRIOR |ln T|.
    """
    scores = [mean_log_likelihood(scale_temperature(P, T), y) - TEMPERATURE_PRIOR * abs(np.log(T)) for T in TEMPERATURES]
    best = int(np.argmax(scores))
    return TEMPERATURES[best], scores[best]


def candidate_weights(log_likelihood: Floats, n_labels: int, log_prior: Floats) -> Floats:
    """Return the weights (k,) of the models in the ensemble, which sum to 1: prior weight times likelihood of all labels.

    `log_likelihood` (k,) is the mean over held-out labels for each model, and `log_prior` (k,) the logarithm of its prior
    weight.
    """
    score = n_labels * log_likelihood + log_prior
    weights = np.exp(score - score.max())
    return np.asarray(weights / weights.sum())
