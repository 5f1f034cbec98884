"""The stacked ensemble: base classifiers, alone and smoothed over graphs, averaged with weights from held-out labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from samekind.graphs.affinity import choose_n_neighbors, self_tuning_graph
from samekind.graphs.linear_systems import Floats, Labels, normalize_class_fractions, normalize_rows
from samekind.stacking.input_views import ColumnStatistics, GraphProjection, column_statistics, fit_projection, make_view
from samekind.stacking.kernel_logistic import (
    BaseClassifier,
    FeatureMap,
    Logits,
    base_classifiers,
    class_balance_weights,
    fit_feature_map,
    fit_logistic,
    softmax,
)
from samekind.stacking.model_weights import (
    Fold,
    candidate_weights,
    fit_temperature,
    scale_temperature,
    stratified_folds,
)
from samekind.stacking.pair_similarity import PairCoefficients, fit_pair_coefficients
from samekind.stacking.smoothing import Smoother, label_sources, root_mean_square, with_labels

N_NEIGHBORS = 10
SHARPNESS = 4.0  # edge weights are exp(-SHARPNESS d^2 / (s_i s_j)), with distance d and local widths s
N_COMPONENTS = 128  # largest number of coordinates of the points in a graph
# "unit": by the cosine of unscaled columns; "standardized": by the distance of standardized columns
GRAPHS = ("unit", "standardized")
ALPHAS = (0.5, 0.9)  # values of alpha for smoothing the average of the base classifiers
POTENTIAL_ALPHA = 0.99  # value of alpha for the potential of the labels
BOTH = "both"  # name for the mean of the potentials on both graphs
AVERAGE = "average"  # name for the average of the probabilities of all base classifiers
POTENTIAL = "potential"  # name for the candidate without a classifier: the labels are sources of a potential on the graph
CONTRAST = 2.0  # potentials are scaled to this root mean square before the softmax
AVERAGE_PRIOR = 1.0  # logarithm of the prior weight of the smoothed average; 0 for a base classifier
# the same of a potential with one label per class; divided by the square of the number of labels per class
POTENTIAL_PRIOR = 8.0
MIN_WEIGHT = 1e-3  # candidates with a smaller weight are left out
MAX_RESPONSES = 20_000_000  # largest number of values in the results of `Smoother.responses` for held-out samples
PSEUDO_LABELS = 10.0  # added to the number of labels of each class in the estimate of the class fractions


@dataclass(frozen=True)
class Candidate:
    """One candidate of the ensemble: the predictions of `base`, smoothed over `graph` with `alpha`; not smoothed if graph
    is None.
    """

    base: str
    graph: str | None = None
    alpha: float = 0.0

    def log_prior(self, labels_per_class: float) -> float:
        """Return the logarithm of the prior weight of this candidate, up to a constant that all candidates share."""
        if self.base == POTENTIAL:
            return POTENTIAL_PRIOR / labels_per_class**2
        return AVERAGE_PRIOR if self.base == AVERAGE and self.graph is not None else 0.0

    def __str__(self) -> str:
        if self.graph is None:
            return self.base
        return f"{self.base} on {'both graphs' if self.graph == BOTH else f'the {self.graph} graph'}, alpha {self.alpha:g}"


class Weighting(NamedTuple):
    """What held-out labels determine: the weight of each candidate that is used, and the temperatures of the candidates
    and the mean.
    """

    weights: Mapping[Candidate, float]
    temperatures: Mapping[Candidate, float]
    temperature: float


@dataclass(frozen=True)
class GraphPart:
    """One graph, and the weighted mean prediction of its candidates at the training samples."""

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
    """Fitted ensemble: all that predicts new samples, the predictions of the training samples, and the weights of the
    candidates.

    `base_weights` and `base_temperatures` have one entry for each base classifier, and a last one for their average.
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
    smoothers: Mapping[str, Smoother] = field(default_factory=dict)  # of each graph

    @property
    def weighting(self) -> Weighting:
        """Return what held-out labels have determined."""
        return Weighting(self.weights, self.temperatures, self.temperature)


@dataclass(frozen=True)
class _Labelled:
    """Labelled samples: their positions and classes, and the class fractions that the classifiers assume."""

    index: Labels
    y: Labels
    n_classes: int
    fractions: Floats

    def subset(self, train: Labels) -> _Labelled:
        return _Labelled(self.index[train], self.y[train], self.n_classes, self.fractions)


def label_fractions(y: Labels, n_classes: int) -> Floats:
    """Return the class fractions (C,) that the classifiers assume: label counts, plus PSEUDO_LABELS for each class, normalized.

    A few labels drawn at random say little about the true fractions, so with few labels the fractions stay nearly equal.
    """
    counts = np.bincount(y, minlength=n_classes).astype(np.float64)
    return np.asarray((counts + PSEUDO_LABELS) / (counts + PSEUDO_LABELS).sum())


class _Fitter:
    """Computes base classifiers, graphs and candidates for one training set."""

    def __init__(self, X: Tensor, labelled: _Labelled, n_neighbors: int, earlier: EnsembleFit | None = None) -> None:
        self.X, self.labelled, self.n = X, labelled, len(X)
        self.columns = column_statistics(X) if earlier is None else earlier.columns
        self.bases = base_classifiers(X.shape[1])
        self.maps, self.inputs = self._feature_maps()
        if earlier is None:
            self._build_graphs(n_neighbors)
        else:
            self._take_graphs(earlier)
        names = [base.name for base in self.bases] + [AVERAGE]
        smoothed = [Candidate(AVERAGE, graph, alpha) for graph in GRAPHS for alpha in ALPHAS]
        potentials = [Candidate(POTENTIAL, graph, POTENTIAL_ALPHA) for graph in (*GRAPHS, BOTH)]
        self.candidates = [*map(Candidate, names), *smoothed, *potentials]

    def _build_graphs(self, n_neighbors: int) -> None:
        X = self.X
        self.projections = {name: fit_projection(X, self.columns, N_COMPONENTS, unit=name == "unit") for name in GRAPHS}
        self.points = {name: projection(X) for name, projection in self.projections.items()}
        self.n_neighbors = choose_n_neighbors(self.n, n_neighbors)
        graphs = {
            name: self_tuning_graph(points, self.n_neighbors, search="auto", sharpness=SHARPNESS)
            for name, points in self.points.items()
        }
        self.smoothers = {name: Smoother(W) for name, (W, _) in graphs.items()}
        self.widths = {name: widths for name, (_, widths) in graphs.items()}

    def _take_graphs(self, earlier: EnsembleFit) -> None:
        """Use the graphs of an earlier fit to the same samples, because graphs do not depend on labels."""
        parts = dict(zip(GRAPHS, earlier.graphs, strict=True))
        self.projections = {name: part.projection for name, part in parts.items()}
        self.points = {name: part.points for name, part in parts.items()}
        self.widths = {name: part.widths for name, part in parts.items()}
        self.n_neighbors, self.smoothers = earlier.graphs[0].n_neighbors, dict(earlier.smoothers)

    def _feature_maps(self) -> tuple[list[FeatureMap], list[Floats]]:
        maps, inputs, index = [], [], torch.from_numpy(self.labelled.index)
        for base in self.bases:
            view = make_view(self.X, self.columns, base.view)
            maps.append(fit_feature_map(view[index], rbf=base.rbf))
            inputs.append(maps[-1](view).numpy())
        return maps, inputs

    def fit_bases(self, labelled: _Labelled) -> list[Logits]:
        """Return the base classifiers, trained on these labelled samples only."""
        weight = class_balance_weights(labelled.y, labelled.fractions)
        return [
            fit_logistic(inputs[labelled.index], labelled.y, labelled.n_classes, base.C, weight)
            for base, inputs in zip(self.bases, self.inputs, strict=True)
        ]

    def base_predictions(self, fitted: list[Logits]) -> dict[str, Floats]:
        """Return the probabilities (n, C) of all samples by each base classifier, and by their average."""
        P = {b.name: softmax(f(inputs)) for b, f, inputs in zip(self.bases, fitted, self.inputs, strict=True)}
        return {**P, AVERAGE: np.mean(list(P.values()), axis=0)}

    def potentials(self) -> tuple[dict[str, Floats], dict[str, float]]:
        """Return the potentials (n, C) of all labels on each graph, and the factors that scale them to root mean square
        CONTRAST.
        """
        sources = self.label_sources(self.labelled)
        U = {name: smoother.potential(sources, POTENTIAL_ALPHA) for name, smoother in self.smoothers.items()}
        return U, {name: CONTRAST / root_mean_square(potential) for name, potential in U.items()}

    def label_sources(self, labelled: _Labelled) -> Floats:
        """Return the sources (n, C) of the potential, for these labelled samples only."""
        return label_sources(self.n, labelled.index, labelled.y, labelled.fractions)

    def held_out(self, folds: list[Fold], scales: Mapping[str, float]) -> tuple[dict[Candidate, Floats], Labels]:
        """Return the probabilities of labelled samples while they were held out, by each candidate, and the labels of
        these samples.
        """
        kept = self._responding(folds)
        responses = {
            (name, alpha): smoother.responses(self.labelled.index[kept], alpha)
            for name, smoother in self.smoothers.items()
            for alpha in (*ALPHAS, POTENTIAL_ALPHA)
        }
        position = np.full(len(self.labelled.y), -1)
        position[kept] = np.arange(len(kept))
        found: dict[Candidate, list[Floats]] = {candidate: [] for candidate in self.candidates}
        y = []
        for fold in folds:
            test = fold.test[position[fold.test] >= 0]
            y.append(self.labelled.y[test])
            rows = {key: response[position[test]] for key, response in responses.items()}
            for c, P in self._held_out_fold(self.labelled.subset(fold.train), self.labelled.index[test], rows, scales).items():
                found[c].append(P)
        return {c: np.concatenate(parts) for c, parts in found.items()}, np.concatenate(y)

    def _held_out_fold(
        self,
        train: _Labelled,
        test: Labels,
        responses: Mapping[tuple[str, float], Floats],
        scales: Mapping[str, float],
    ) -> dict[Candidate, Floats]:
        """Return the probabilities (m, C) of the held-out samples `test` by each candidate, trained on the labelled
        samples `train`.
        """
        P = self.base_predictions(self.fit_bases(train))
        fixed = with_labels(P[AVERAGE], train.index, train.y)
        sources = self.label_sources(train)
        potentials = {
            name: softmax(scales[name] * smoother.potential_of(test, responses[name, POTENTIAL_ALPHA], sources))
            for name, smoother in self.smoothers.items()
        }
        found = {}
        for c in self.candidates:
            if c.graph is None:
                found[c] = P[c.base][test]
            elif c.base == POTENTIAL:
                found[c] = of_graph(potentials, c.graph)
            else:
                found[c] = normalize_rows(responses[c.graph, c.alpha] @ fixed)
        return found

    def _responding(self, folds: list[Fold]) -> Labels:
        """Return the positions of all samples that some fold holds out; an evenly spaced part of them if there are too many."""
        held_out = np.unique(np.concatenate([fold.test for fold in folds]))
        most = max(20, MAX_RESPONSES // (self.n * len(GRAPHS) * (len(ALPHAS) + 1)))
        return held_out if len(held_out) <= most else held_out[np.linspace(0, len(held_out) - 1, most).astype(int)]

    def full(self, c: Candidate, P: Mapping[str, Floats], potentials: Mapping[str, Floats]) -> Floats:
        """Return the probabilities (n, C) of all samples by one candidate that was trained on all labels."""
        if c.graph is None:
            return P[c.base]
        if c.base == POTENTIAL:
            return of_graph(potentials, c.graph)
        return self.smoothers[c.graph].smooth(with_labels(P[c.base], self.labelled.index, self.labelled.y), c.alpha)


def of_graph(P: Mapping[str, Floats], graph: str) -> Floats:
    """Return the predictions on one graph; for BOTH, their mean over the graphs."""
    return np.mean(list(P.values()), axis=0) if graph == BOTH else P[graph]


def fit_stacked_ensemble(
    X: Tensor,
    y: Labels,
    n_classes: int,
    *,
    seed: int,
    class_prior: Floats | None = None,
    n_neighbors: int = N_NEIGHBORS,
    weighting: Weighting | None = None,
    earlier: EnsembleFit | None = None,
) -> EnsembleFit:
    """Fit the ensemble to samples X (n, d) in double precision, with labels y (n,) that are negative for unlabelled samples.

    `class_prior` (C,) are the class fractions among the unlabelled samples, if they are known. With a `weighting`, such as that
    of an earlier fit, no labels are held out. `earlier` is a fit of the same X with other labels, whose graphs are taken over.
    """
    index = np.flatnonzero(y >= 0)
    labelled = _Labelled(index, y[index], n_classes, label_fractions(y[index], n_classes))
    fitter = _Fitter(X, labelled, n_neighbors, earlier)
    fitted = fitter.fit_bases(labelled)
    P = fitter.base_predictions(fitted)
    potentials, scales = fitter.potentials()
    held_out = None
    if weighting is None:
        weighting, held_out = _weigh_held_out(fitter, scales, seed)
    weights, temperatures, temperature = weighting
    spread = {name: softmax(scales[name] * U) for name, U in potentials.items()}
    tempered = {c: scale_temperature(fitter.full(c, P, spread), temperatures[c]) for c in weights}
    factors = class_factors(class_prior, labelled.fractions)
    names = [*(base.name for base in fitter.bases), AVERAGE]
    return EnsembleFit(
        fitter.columns,
        tuple(_base_part(*parts) for parts in zip(fitter.bases, fitter.maps, fitted, strict=True)),
        np.array([weights.get(Candidate(name), 0.0) for name in names]),
        np.array([temperatures[Candidate(name)] for name in names]),
        tuple(_graph_part(fitter, name, tempered, weights) for name in GRAPHS),
        temperature,
        factors,
        fit_pair_coefficients(make_view(X, fitter.columns, "unit").numpy(), labelled.index, labelled.y),
        mixed_probabilities(tempered, weights, temperature, factors),
        held_out,
        fraction_estimates(labelled.y, P[AVERAGE], class_prior),
        weights,
        temperatures,
        fitter.smoothers,
    )


def _weigh_held_out(fitter: _Fitter, scales: Mapping[str, float], seed: int) -> tuple[Weighting, tuple[Floats, Labels] | None]:
    """Return the weights and temperatures that held-out labels determine, and the probabilities and labels of held-out
    samples.
    """
    labelled = fitter.labelled
    folds = stratified_folds(labelled.y, np.random.default_rng(seed))
    if not folds:
        return Weighting(*_weigh(fitter.candidates, {}, labelled.y, labelled.y), 1.0), None
    predicted, held_out_y = fitter.held_out(folds, scales)
    weights, temperatures = _weigh(fitter.candidates, predicted, held_out_y, labelled.y)
    mean = mix({c: scale_temperature(predicted[c], temperatures[c]) for c in weights}, weights)
    temperature = fit_temperature(mean, held_out_y)[0]
    return Weighting(weights, temperatures, temperature), (scale_temperature(mean, temperature), held_out_y)


def class_factors(class_prior: Floats | None, fractions: Floats) -> Floats:
    """Return the factors (C,) on the probabilities by which a known class prior replaces the class fractions of the labels."""
    if class_prior is None:
        return np.ones(len(fractions))
    return np.asarray(normalize_class_fractions(class_prior, len(fractions)) / fractions)


def mixed_probabilities(
    tempered: Mapping[Candidate, Floats], weights: Mapping[Candidate, float], temperature: float, factors: Floats
) -> Floats:
    """Return the probabilities (n, C) by the ensemble, from the probabilities by its candidates."""
    return normalize_rows(scale_temperature(mix(tempered, weights), temperature) * factors)


def fraction_estimates(y: Labels, P: Floats, class_prior: Floats | None) -> tuple[Floats, ...]:
    """Return estimates of the class fractions: of the labels y (m,), equal ones, those of the predictions P (n, C), and
    the prior.
    """
    C = P.shape[1]
    counts = np.bincount(y, minlength=C)
    given = () if class_prior is None else (normalize_class_fractions(class_prior, C),)
    return (counts / counts.sum(), np.full(C, 1.0 / C), P.mean(axis=0), *given)


def _weigh(
    candidates: list[Candidate], held_out: Mapping[Candidate, Floats], held_out_y: Labels, y: Labels
) -> tuple[dict[Candidate, float], dict[Candidate, float]]:
    """Return the weight of each candidate that is not left out, and the temperature of each candidate."""
    scores = {c: fit_temperature(held_out[c], held_out_y) if held_out else (1.0, 0.0) for c in candidates}
    likelihood = np.array([scores[c][1] for c in candidates])
    labels_per_class = len(y) / len(np.unique(y))
    weights = candidate_weights(likelihood, len(y), np.array([c.log_prior(labels_per_class) for c in candidates]))
    weights = np.where(weights < min(MIN_WEIGHT, weights.max()), 0.0, weights)
    kept = {c: float(w) for c, w in zip(candidates, weights / weights.sum(), strict=True) if w > 0}
    return kept, {c: scores[c][0] for c in candidates}


def mix(P: Mapping[Candidate, Floats], weights: Mapping[Candidate, float]) -> Floats:
    """Return the weighted mean (n, C) of the probabilities of the candidates."""
    return np.asarray(sum(weight * P[c] for c, weight in weights.items()))


def _base_part(base: BaseClassifier, feature_map: FeatureMap, fitted: Logits) -> BasePart:
    coefficients = feature_map.coefficients(torch.from_numpy(fitted.weights))
    return BasePart(base, feature_map.centers, coefficients, torch.from_numpy(fitted.bias))


def _graph_part(fitter: _Fitter, name: str, P: Mapping[Candidate, Floats], weights: Mapping[Candidate, float]) -> GraphPart:
    projection, points, widths = fitter.projections[name], fitter.points[name], fitter.widths[name]
    uniform = np.full((fitter.n, fitter.labelled.n_classes), 1.0 / fitter.labelled.n_classes)
    return graph_mean(GraphPart(projection, points, widths, fitter.n_neighbors, uniform, 0.0), name, P, weights)


def graph_mean(part: GraphPart, name: str, P: Mapping[Candidate, Floats], weights: Mapping[Candidate, float]) -> GraphPart:
    """Return the graph `name` with the weighted mean prediction and the total weight of its candidates."""
    own = {c: weight / (len(GRAPHS) if c.graph == BOTH else 1) for c, weight in weights.items() if c.graph in (name, BOTH)}
    total = sum(own.values())
    return replace(part, P=mix(P, own) / total, weight=total) if own else part
