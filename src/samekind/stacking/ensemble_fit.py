"""EnsembleFit: a fitted ensemble, with all that predicts new samples and all that updates start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from samekind.graphs.linear_systems import Floats, Labels
from samekind.stacking.decision_trees import TreeModel, Trees
from samekind.stacking.ensemble_candidates import Candidate, Weighting
from samekind.stacking.gaussian_mixtures import FittedMixtures
from samekind.stacking.input_views import ColumnStatistics, GraphProjection
from samekind.stacking.kernel_logistic import BaseClassifier
from samekind.stacking.pair_similarity import PairCoefficients
from samekind.stacking.smoothing import Smoother


@dataclass(frozen=True)
class ValidationLabels:
    """Labelled samples that no part of the ensemble learns from: their positions and classes, both (m,)."""

    index: Labels
    y: Labels


@dataclass(frozen=True)
class GraphPart:
    """One graph of the ensemble, and the weighted mean of all predictions of training samples that are smoothed over it."""

    projection: GraphProjection
    points: Tensor  # (n, p): coordinates of the training samples in the graph
    widths: Tensor  # (n,): distance of each training sample to its k-th neighbour
    n_neighbors: int
    P: Floats  # (n, C): mean predictions at the training samples
    weight: float


@dataclass(frozen=True)
class BasePart:
    """One base classifier with its fitted coefficients, for the prediction of new samples."""

    base: BaseClassifier
    centers: Tensor | None  # centres of the RBF kernel; None: the kernel is linear
    coefficients: Tensor  # (d or r, C)
    bias: Tensor  # (C,)


@dataclass(frozen=True)
class EnsembleFit:
    """Fitted ensemble: all that predicts new samples, the predictions of the training samples, and the members' weights.

    `base_weights` and `base_temperatures` have one entry for each of `bases` and of `trees`, and a last one for their average.
    """

    columns: ColumnStatistics
    bases: tuple[BasePart, ...]
    base_weights: Floats
    base_temperatures: Floats
    graphs: tuple[GraphPart, ...]
    temperature: float
    class_factors: Floats  # (C,): factors by which a given class prior changes the probabilities; 1 without a prior
    pair: PairCoefficients
    probabilities: Floats  # (n, C): class probabilities of the training samples
    held_out: tuple[Floats, Labels] | None  # class probabilities and labels of labelled samples while they were held out
    # (C,) each: fractions of the labels, equal fractions, those of the predictions without a graph, and the given prior
    fraction_estimates: tuple[Floats, ...]
    weights: Mapping[Candidate, float] = field(default_factory=dict)
    temperatures: Mapping[Candidate, float] = field(default_factory=dict)
    smoothers: Mapping[str, Smoother] = field(default_factory=dict)  # by the name of the graph
    mixtures: FittedMixtures | None = None
    trees: Mapping[TreeModel, Trees] = field(default_factory=dict)  # empty if the samples are not rows of a table
    seed: int = 0

    @property
    def weighting(self) -> Weighting:
        """Return what held-out labels have determined."""
        return Weighting(self.weights, self.temperatures, self.temperature)
