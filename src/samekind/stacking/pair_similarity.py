"""Similarity of two samples from their cosine and their class probabilities, calibrated on pairs of labelled samples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from samekind.graphs.linear_systems import Floats, Labels

MAX_LABELLED = 400  # labelled samples whose pairs are used
DEFAULT_SLOPE = 1.0  # of the cosine in units of its standard deviation, if the labels do not tell; found on development data
MIN_SLOPE = 0.1  # of the cosine in units of its standard deviation: a higher cosine must never lower the similarity


class PairCoefficients(NamedTuple):
    """Log-odds of "same class": ln(q / (1 - q)) + bias + slope * cos(x_a, x_b), where q = p_a . p_b for class probabilities p.

    q is the classifier's probability that both samples have the same class. The two other terms are the logarithm of the
    likelihood ratio of the cosine, which ranks pairs that the classifier does not tell apart.
    """

    bias: float
    slope: float


def fit_pair_coefficients(unit: Floats, index: Labels, y: Labels) -> PairCoefficients:
    """Return the coefficients for samples with unit rows (n, d), fitted to the pairs of the labelled samples `index`.

    Without a pair of each kind, same class and different classes, the cosine counts DEFAULT_SLOPE for each of its standard
    deviations over pairs of any samples.
    """
    from sklearn.linear_model import LogisticRegression  # imported here for the reason given in kernel_logistic.py

    thin = np.linspace(0, len(index) - 1, min(len(index), MAX_LABELLED)).astype(int)
    index, y = index[thin], y[thin]
    i, j = np.triu_indices(len(index), k=1)
    same = y[i] == y[j]
    if not same.any() or same.all():
        cosine = unit[index] @ unit[np.linspace(0, len(unit) - 1, min(len(unit), MAX_LABELLED)).astype(int)].T
        slope = DEFAULT_SLOPE / max(float(cosine.std()), 1e-6)
        return PairCoefficients(-slope * float(cosine.mean()), slope)
    cosine = (unit[index] @ unit[index].T)[i, j]
    mean, spread, rate = float(cosine.mean()), max(float(cosine.std()), 1e-6), float(same.mean())
    model = LogisticRegression().fit(((cosine - mean) / spread)[:, None], same)
    slope = max(float(model.coef_[0, 0]), MIN_SLOPE) / spread
    return PairCoefficients(float(model.intercept_[0]) - np.log(rate / (1.0 - rate)) - slope * mean, slope)
