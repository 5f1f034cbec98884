"""Candidate: one model that the ensemble may use. The weights of the candidates come from held-out labels and from graph cuts.

A graph cut is the weight of the edges between samples that get different classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from samekind.graphs.linear_systems import Floats, Labels, normalize_rows
from samekind.stacking.decision_trees import TREE_MODELS
from samekind.stacking.gaussian_mixtures import OWN, SHARED
from samekind.stacking.kernel_logistic import COLUMNS
from samekind.stacking.model_weights import (
    candidate_weights,
    fit_temperature,
    scale_temperature,
    temperature_of_confidence,
)

ALPHAS = (0.5, 0.9)  # values of alpha for smoothing the average of the base classifiers
POTENTIAL_ALPHA = 0.99  # value of alpha for the potential of the labels
MIXTURES = (SHARED, OWN)
MIXTURE_GRAPH = "standardized"  # the Gaussian mixtures are fitted to the coordinates of the samples in this graph
BOTH = "both"  # name for the mean over both graphs of the predictions
AVERAGE = "average"  # name for the average of the probabilities of all base classifiers
# name for the potential on a graph whose sources are the labels; it takes the place of a base classifier
POTENTIAL = "potential"
AVERAGE_PRIOR = 1.0  # logarithm of the prior weight of a smoothed average, without the part by cuts; 0 for all other candidates
TABLE_BASES = (COLUMNS, *TREE_MODELS)  # base classifiers that only tables have
# the logarithm of the prior weight falls by this times the normalized cut, divided by the number of labels per class
CUT_PENALTY = 10.0
# mean confidence (largest probability of a sample) to which predictions are scaled if no label can be held out
CONFIDENCE = 0.8
MIN_WEIGHT = 1e-3  # models with a smaller weight are left out of the ensemble


@dataclass(frozen=True)
class Candidate:
    """One model that the ensemble may use: the predictions of `base`, smoothed over the graph `graph`.

    `alpha` is the weight of the neighbours in the smoothing. If `graph` is None, the predictions are not smoothed. A Gaussian
    mixture is never smoothed: its `graph` is the one whose coordinates it is fitted to, and alpha is 0.
    """

    base: str
    graph: str | None = None
    alpha: float = 0.0

    def log_prior(self, cut: float, labels_per_class: float) -> float:
        """Return the logarithm of the prior weight of this candidate. A constant that all candidates share is left out.

        `cut` is the normalized cut of the predicted classes, averaged over the graphs. A candidate that gives many neighbours
        different classes is less likely to be right.
        """
        own = AVERAGE_PRIOR if self.base == AVERAGE and self.graph is not None else 0.0
        return own - CUT_PENALTY * cut / labels_per_class

    def __str__(self) -> str:
        if self.graph is None or self.base in MIXTURES:
            return self.base
        return f"{self.base} on {'both graphs' if self.graph == BOTH else f'the {self.graph} graph'}, alpha {self.alpha:g}"


# the candidates that are used if no label can be held out: a classifier, the labels spread over both graphs, and a mixture
WITHOUT_HELD_OUT = (Candidate(AVERAGE), Candidate(POTENTIAL, BOTH, POTENTIAL_ALPHA), Candidate(SHARED, MIXTURE_GRAPH))


# for tables, these weights do not depend on the held-out labels, which share the rest of the weight out
TABLE_WEIGHTS = {Candidate(AVERAGE): 0.15, Candidate(SHARED, MIXTURE_GRAPH): 0.075, Candidate(OWN, MIXTURE_GRAPH): 0.075}


class Weighting(NamedTuple):
    """What held-out labels determine: the weight of each candidate in use, and the temperatures.

    `temperatures` scale the candidates' predictions, and `temperature` scales their weighted mean.
    """

    weights: Mapping[Candidate, float]
    temperatures: Mapping[Candidate, float]
    temperature: float


def weigh_candidates(
    full: Mapping[Candidate, Floats],
    cuts: Mapping[Candidate, float],
    held_out: Mapping[Candidate, Floats],
    held_out_y: Labels,
    y: Labels,
) -> tuple[dict[Candidate, float], dict[Candidate, float]]:
    """Return the weight of each candidate that the ensemble uses, and the temperature of each candidate.

    `full` holds the predictions (n, C) of candidates that were trained on all labels y (m,), and `cuts` their normalized cuts.
    Without held-out labels, only the candidates in WITHOUT_HELD_OUT are used.
    """
    if held_out:
        scores = {c: fit_temperature(held_out[c], held_out_y) for c in full}
    else:
        scores = {c: (temperature_of_confidence(full[c], CONFIDENCE), 0.0) for c in full if c in WITHOUT_HELD_OUT}
    likelihood = np.array([score for _, score in scores.values()])
    labels_per_class = len(y) / len(np.unique(y))
    weights = candidate_weights(likelihood, len(y), np.array([c.log_prior(cuts[c], labels_per_class) for c in scores]))
    if held_out and Candidate(COLUMNS) in full:
        fixed = np.array([TABLE_WEIGHTS.get(c, 0.0) for c in scores])
        weights = (1.0 - fixed.sum()) * weights + fixed
    weights = np.where(weights < min(MIN_WEIGHT, weights.max()), 0.0, weights)
    kept = {c: float(w) for c, w in zip(scores, weights / weights.sum(), strict=True) if w > 0}
    return kept, {c: scores[c][0] if c in scores else 1.0 for c in full}


def average_weights(bases: Sequence[str]) -> list[float]:
    """Return the weights of the base classifiers in their average, by their names.

    They are equal for vectors. For tables, those that vectors have too count together as much as each of TABLE_BASES.
    """
    n_table = sum(name in TABLE_BASES for name in bases)
    group = 1.0 / (1 + n_table)
    return [group if name in TABLE_BASES else group / (len(bases) - n_table) for name in bases]


def average_bases(P: Mapping[str, Floats]) -> Floats:
    """Return the average (n, C) of the probabilities by all base classifiers."""
    weights = average_weights(list(P))
    return np.asarray(sum(weight * one for weight, one in zip(weights, P.values(), strict=True)))


def mixture_start(average: Floats, potential: Floats) -> Floats:
    """Return the class probabilities (n, C) that the Gaussian mixtures start from: the mean of `average` and `potential`.

    Both (n, C) are first scaled to the same mean confidence.
    """
    return 0.5 * (_with_confidence(average) + _with_confidence(potential))


def _with_confidence(P: Floats) -> Floats:
    return scale_temperature(P, temperature_of_confidence(P, CONFIDENCE))


def mix(P: Mapping[Candidate, Floats], weights: Mapping[Candidate, float]) -> Floats:
    """Return the weighted mean (n, C) of the candidates' probabilities."""
    return np.asarray(sum(weight * P[c] for c, weight in weights.items()))


def mixed_probabilities(
    tempered: Mapping[Candidate, Floats], weights: Mapping[Candidate, float], temperature: float, factors: Floats
) -> Floats:
    """Return the probabilities (n, C) by the ensemble, from those by its candidates.

    `tempered` (n, C) are the candidates' probabilities, already scaled by a temperature each. `factors` (C,) are multiplied
    with the mean of all candidates.
    """
    return normalize_rows(scale_temperature(mix(tempered, weights), temperature) * factors)


def of_graph(P: Mapping[str, Floats], graph: str) -> Floats:
    """Return the predictions on the graph of this name. For BOTH, return their mean over both graphs."""
    return np.mean(list(P.values()), axis=0) if graph == BOTH else P[graph]
