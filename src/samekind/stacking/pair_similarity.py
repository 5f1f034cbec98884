"""Similarity of two samples: from their cosine and their class probabilities, calibrated on pairs of labelled samples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from samekind.graphs.linear_systems import Floats, Labels

MAX_LABELLED = 400  # largest number of labelled samples whose pairs are used
DEFAULT_SLOPE = 1.0  # slope if the labels cannot determine it, per standard deviation of the cosine; found on development data
MIN_SLOPE = 0.1  # least slope per standard deviation of the cosine: a higher cosine must not lower the similarity


class PairCoefficients(NamedTuple):
    """Coefficients of the similarity: its log-odds are ln(q / (1 - q)) + bias + slope * cos(x_a, x_b).

    q = p_a . p_b, for class probabilities p, is the classifier's probability that both samples have the same class. The two
    other terms are the logarithm of the likelihood ratio of the cosine. They rank pairs for which q is equal.
    """

    bias: float
    slope: float


def fit_pair_coefficients(unit: Floats, index: Labels, y: Labels) -> PairCoefficients:
    """Return the coefficients, fitted to the pairs of the labelled samples `index`, whose classes are y.

    `unit` (n, d) are all samples, scaled to length 1. If there are no same-class pairs or no others, the slope is DEFAULT_SLOPE
    per standard deviation of the cosine.
    """
    # imported here, because it loads packages that other methods do not need
    from sklearn.linear_model import LogisticRegression

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
