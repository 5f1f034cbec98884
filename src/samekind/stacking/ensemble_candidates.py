"""Candidates of the ensemble, and their weights by held-out labels and by the edges of the graphs that they cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from samekind.graphs.linear_systems import Floats, Labels, normalize_rows
from samekind.stacking.gaussian_mixtures import OWN, SHARED
from samekind.stacking.model_weights import (
    candidate_weights,
    fit_temperature,
    scale_temperature,
    temperature_of_confidence,
)

ALPHAS = (0.5, 0.9)  # values of alpha for smoothing the average of the base classifiers
POTENTIAL_ALPHA = 0.99  # value of alpha for the potential of the labels
MIXTURES = (SHARED, OWN)
MIXTURE_GRAPH = "standardized"  # the Gaussian mixtures are fitted to the coordinates of the points in this graph
BOTH = "both"  # name for the mean of the potentials on both graphs
AVERAGE = "average"  # name for the average of the probabilities of all base classifiers
POTENTIAL = "potential"  # name for the candidate without a classifier: the labels are sources of a potential on the graph
AVERAGE_PRIOR = 1.0  # logarithm of the prior weight of the smoothed average; 0 for all other candidates
CUT_PENALTY = 10.0  # a normalized cut of 1 lowers the logarithm of the prior weight by this, divided by the labels per class
CONFIDENCE = 0.8  # mean largest probability that candidates get if no label can be held out
MIN_WEIGHT = 1e-3  # candidates with a smaller weight are left out


@dataclass(frozen=True)
class Candidate:
    """One candidate of the ensemble: the predictions of `base`, smoothed over `graph` with `alpha`; not smoothed if graph
    is None.

    A Gaussian mixture is not smoothed either. Its graph is the one whose coordinates it is fitted to, and alpha is 0.
    """

    base: str
    graph: str | None = None
    alpha: float = 0.0

    def log_prior(self, cut: float, labels_per_class: float) -> float:
        """Return the logarithm of the prior weight of this candidate, up to a constant that all candidates share.

        `cut` is the normalized cut of the predicted classes, as a mean over the graphs: a candidate whose classes separate many
        neighbours is less likely to be right.
        """
        own = AVERAGE_PRIOR if self.base == AVERAGE and self.graph is not None else 0.0
        return own - CUT_PENALTY * cut / labels_per_class

    def __str__(self) -> str:
        if self.graph is None or self.base in MIXTURES:
            return self.base
        return f"{self.base} on {'both graphs' if self.graph == BOTH else f'the {self.graph} graph'}, alpha {self.alpha:g}"


# the candidates that count if no label can be held out: a classifier, the labels spread over the graphs, and a mixture
WITHOUT_HELD_OUT = (Candidate(AVERAGE), Candidate(POTENTIAL, BOTH, POTENTIAL_ALPHA), Candidate(SHARED, MIXTURE_GRAPH))


class Weighting(NamedTuple):
    """What held-out labels determine: the weight of each candidate that is used, and the temperatures of the candidates
    and the mean.
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
    """Return the weight of each candidate that is not left out, and the temperature of each candidate.

    `full` holds the predictions (n, C) of candidates that were trained on all labels y (m,), and `cuts` their normalized cuts.
    Without held-out labels, only the candidates WITHOUT_HELD_OUT count.
    """
    if held_out:
        scores = {c: fit_temperature(held_out[c], held_out_y) for c in full}
    else:
        scores = {c: (temperature_of_confidence(full[c], CONFIDENCE), 0.0) for c in full if c in WITHOUT_HELD_OUT}
    likelihood = np.array([score for _, score in scores.values()])
    labels_per_class = len(y) / len(np.unique(y))
    weights = candidate_weights(likelihood, len(y), np.array([c.log_prior(cuts[c], labels_per_class) for c in scores]))
    weights = np.where(weights < min(MIN_WEIGHT, weights.max()), 0.0, weights)
    kept = {c: float(w) for c, w in zip(scores, weights / weights.sum(), strict=True) if w > 0}
    return kept, {c: scores[c][0] if c in scores else 1.0 for c in full}


def mixture_start(average: Floats, potential: Floats) -> Floats:
    """Return the class probabilities (n, C) that the Gaussian mixtures start from: the mean of two equally sure ones."""
    return 0.5 * (_with_confidence(average) + _with_confidence(potential))


def _with_confidence(P: Floats) -> Floats:
    return scale_temperature(P, temperature_of_confidence(P, CONFIDENCE))


def mix(P: Mapping[Candidate, Floats], weights: Mapping[Candidate, float]) -> Floats:
    """Return the weighted mean (n, C) of the probabilities of the candidates."""
    return np.asarray(sum(weight * P[c] for c, weight in weights.items()))


def mixed_probabilities(
    tempered: Mapping[Candidate, Floats], weights: Mapping[Candidate, float], temperature: float, factors: Floats
) -> Floats:
    """Return the probabilities (n, C) by the ensemble, from the probabilities by its candidates."""
    return normalize_rows(scale_temperature(mix(tempered, weights), temperature) * factors)


def of_graph(P: Mapping[str, Floats], graph: str) -> Floats:
    """Return the predictions on one graph; for BOTH, their mean over the graphs."""
    return np.mean(list(P.values()), axis=0) if graph == BOTH else P[graph]
