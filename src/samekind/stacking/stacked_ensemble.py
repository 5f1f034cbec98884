"""The stacked ensemble: base classifiers, alone and smoothed over graphs, averaged with weights from held-out labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from samekind.graphs.affinity import choose_n_neighbors, self_tuning_graph
from samekind.graphs.linear_systems import Floats, Labels, normalize_class_fractions, normalize_rows
from samekind.stacking.decision_trees import FOLD_TREES, N_TREES, TREE_MODELS, TreeModel, Trees, fit_trees, tree_probabilities
from samekind.stacking.ensemble_candidates import (
    ALPHAS,
    AVERAGE,
    BOTH,
    MIXTURE_GRAPH,
    MIXTURES,
    POTENTIAL,
    POTENTIAL_ALPHA,
    Candidate,
    Weighting,
    average_bases,
    mix,
    mixed_probabilities,
    mixture_start,
    of_graph,
    weigh_candidates,
)
from samekind.stacking.ensemble_fit import BasePart, EnsembleFit, GraphPart, ValidationLabels
from samekind.stacking.gaussian_mixtures import FittedMixtures, MixtureFitter, QuadraticForm
from samekind.stacking.input_views import column_statistics, fit_projection, make_view
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
    fit_temperature,
    scale_temperature,
    stratified_folds,
)
from samekind.stacking.pair_similarity import fit_pair_coefficients
from samekind.stacking.smoothing import Smoother, label_sources, root_mean_square, with_labels

N_NEIGHBORS = 10
SHARPNESS = 4.0  # edge weights are exp(-SHARPNESS d^2 / (s_i s_j)), with distance d and local widths s
N_COMPONENTS = 128  # largest number of coordinates of the points in a graph
# "unit": neighbours by the cosine of the unscaled samples; "standardized": neighbours by distance after all columns were
# standardized
GRAPHS = ("unit", "standardized")
CONTRAST = 2.0  # potentials are scaled to this root mean square before the softmax
MAX_RESPONSES = 20_000_000  # largest number of values in the results of `Smoother.responses` for held-out samples
PSEUDO_LABELS = 10.0  # added to the number of labels of each class in the estimate of the class fractions


@dataclass(frozen=True)
class _Labelled:
    """Labelled samples: their positions and classes, and the class fractions that the classifiers assume."""

    index: Labels
    y: Labels
    n_classes: int
    fractions: Floats
    known: Floats | None  # (C,): class fractions that the user gave

    def subset(self, train: Labels) -> _Labelled:
        return replace(self, index=self.index[train], y=self.y[train])


def label_fractions(y: Labels, n_classes: int, *, table: bool = False) -> Floats:
    """Return the class fractions (C,) that the classifiers assume: label counts, plus PSEUDO_LABELS for each class, normalized.

    A few labels drawn at random say little about the true fractions, so with few labels the fractions stay nearly equal. For a
    `table`, nothing is added to the counts: the classes of tables overlap more, so that their fractions matter more.
    """
    counts = np.bincount(y, minlength=n_classes) + (0.0 if table else PSEUDO_LABELS)
    return np.asarray(counts / counts.sum())


class _FittedBases(NamedTuple):
    """All base classifiers, trained on the same labels."""

    logits: list[Logits]
    trees: dict[TreeModel, Trees]


class _Fitter:
    """Computes the base classifiers, the graphs and all models that the ensemble may use (candidates), for one training set."""

    def __init__(
        self, X: Tensor, labelled: _Labelled, n_neighbors: int, seed: int, earlier: EnsembleFit | None = None, *, table: bool
    ) -> None:
        self.X, self.labelled, self.n, self.seed = X, labelled, len(X), seed
        self.columns = column_statistics(X) if earlier is None else earlier.columns
        self.bases = base_classifiers(X.shape[1], table=table)
        self.tree_models = TREE_MODELS if table else ()
        self.maps, self.inputs = self._feature_maps()
        if earlier is None:
            self._build_graphs(n_neighbors, seed)
        else:
            self._take_graphs(earlier)
        names = [base.name for base in self.bases] + [*self.tree_models, AVERAGE]
        smoothed = [Candidate(AVERAGE, graph, alpha) for graph in GRAPHS for alpha in ALPHAS]
        potentials = [Candidate(POTENTIAL, graph, POTENTIAL_ALPHA) for graph in (*GRAPHS, BOTH)]
        mixtures = [Candidate(name, MIXTURE_GRAPH) for name in MIXTURES]
        self.candidates = [*map(Candidate, names), *smoothed, *potentials, *mixtures]

    def _build_graphs(self, n_neighbors: int, seed: int) -> None:
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
        points = self.points[MIXTURE_GRAPH].numpy()
        self.mixtures = MixtureFitter.choose(points, self.labelled.index, np.random.default_rng(seed))

    def _take_graphs(self, earlier: EnsembleFit) -> None:
        """Use the graphs of an earlier fit to the same samples, because graphs do not depend on labels."""
        parts = dict(zip(GRAPHS, earlier.graphs, strict=True))
        self.projections = {name: part.projection for name, part in parts.items()}
        self.points = {name: part.points for name, part in parts.items()}
        self.widths = {name: part.widths for name, part in parts.items()}
        self.n_neighbors, self.smoothers = earlier.graphs[0].n_neighbors, dict(earlier.smoothers)
        assert earlier.mixtures is not None
        self.mixtures = earlier.mixtures.fitter.including(self.labelled.index)

    def _feature_maps(self) -> tuple[list[FeatureMap], list[Floats]]:
        maps, inputs, index = [], [], torch.from_numpy(self.labelled.index)
        for base in self.bases:
            view = make_view(self.X, self.columns, base.view)
            maps.append(fit_feature_map(view[index], rbf=base.rbf))
            inputs.append(maps[-1](view).numpy())
        return maps, inputs

    def fit_bases(self, labelled: _Labelled, n_trees: int = N_TREES) -> _FittedBases:
        """Return the base classifiers, trained on these labelled samples only. Each forest has `n_trees` trees."""
        index, y, C = labelled.index, labelled.y, labelled.n_classes
        weight = class_balance_weights(y, labelled.fractions)
        logits = [
            fit_logistic(inputs[index], y, C, base.C, weight) for base, inputs in zip(self.bases, self.inputs, strict=True)
        ]
        rows = self.X[torch.from_numpy(index)].numpy()
        trees = {name: fit_trees(name, rows, y, weight, C, self.seed, n_trees) for name in self.tree_models}
        return _FittedBases(logits, trees)

    def base_predictions(self, fitted: _FittedBases) -> dict[str, Floats]:
        """Return the probabilities (n, C) of all samples by each base classifier, and by their average."""
        P = {b.name: softmax(f(inputs)) for b, f, inputs in zip(self.bases, fitted.logits, self.inputs, strict=True)}
        P |= {name: tree_probabilities(name, trees, self.X).numpy() for name, trees in fitted.trees.items()}
        return {**P, AVERAGE: average_bases(P)}

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
        """Return the probabilities of held-out samples by each candidate, and the true labels of these samples."""
        kept = self._responding()
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
            test, sources = (part[position[part] >= 0] for part in (fold.test, fold.train))
            y.append(self.labelled.y[test])
            train, index = self.labelled.subset(fold.train), self.labelled.index[test]
            P = self.base_predictions(self.fit_bases(train, FOLD_TREES))
            near = {name: responses[name, POTENTIAL_ALPHA][position[sources]] for name in GRAPHS}
            potential = self._potential_from(self.labelled.subset(sources), near, scales)
            _, mixtures = self.fit_mixtures(mixture_start(P[AVERAGE][self.mixtures.rows], potential), train, index)
            rows = {key: response[position[test]] for key, response in responses.items()}
            for c, Q in self._held_out_fold(train, index, P, rows, scales, mixtures).items():
                found[c].append(Q)
        return {c: np.concatenate(parts) for c, parts in found.items()}, np.concatenate(y)

    def _held_out_fold(
        self,
        train: _Labelled,
        test: Labels,
        P: Mapping[str, Floats],
        responses: Mapping[tuple[str, float], Floats],
        scales: Mapping[str, float],
        mixtures: Mapping[str, Floats],
    ) -> dict[Candidate, Floats]:
        """Return the probabilities (m, C) of the held-out samples `test` by each candidate.

        The candidates are trained on the labelled samples `train`.
        """
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
            elif c.base in MIXTURES:
                found[c] = mixtures[c.base]
            else:
                found[c] = normalize_rows(responses[c.graph, c.alpha] @ fixed)
        return found

    def _potential_from(self, labelled: _Labelled, responses: Mapping[str, Floats], scales: Mapping[str, float]) -> Floats:
        """Return class probabilities of the samples `mixtures.rows`: the mean of the potentials on both graphs."""
        sources, at = self.label_sources(labelled)[labelled.index], self.mixtures.rows
        found = {
            name: softmax(scales[name] * smoother.potential_from(labelled.index, responses[name], sources, at))
            for name, smoother in self.smoothers.items()
        }
        return of_graph(found, BOTH)

    def fit_mixtures(
        self, start: Floats, labelled: _Labelled, samples: Labels
    ) -> tuple[dict[str, QuadraticForm], dict[str, Floats]]:
        """Return both mixtures, fitted to the given labels, and their class probabilities (m, C) of `samples`.

        EM starts from the class probabilities `start` of the samples `mixtures.rows`.
        """
        known, index, y = labelled.known, labelled.index, labelled.y
        forms = {name: self.mixtures.fit(name, start, index, y, known) for name in MIXTURES}
        fractions = (known, labelled.fractions)
        return forms, {name: self.mixtures.predict(name, form, samples, *fractions) for name, form in forms.items()}

    def _responding(self) -> Labels:
        """Return the positions of all labelled samples; an evenly spaced part of them if there are too many."""
        m = len(self.labelled.y)
        most = max(20, MAX_RESPONSES // (self.n * len(GRAPHS) * (len(ALPHAS) + 1)))
        return np.arange(m) if m <= most else np.linspace(0, m - 1, most).astype(int)

    def cut(self, P: Floats) -> float:
        """Return the normalized cut of the predicted classes, averaged over both graphs."""
        classes = P.argmax(axis=1)
        return float(np.mean([smoother.cut(classes, P.shape[1]) for smoother in self.smoothers.values()]))

    def full(
        self, c: Candidate, P: Mapping[str, Floats], potentials: Mapping[str, Floats], mixtures: Mapping[str, Floats]
    ) -> Floats:
        """Return the probabilities (n, C) of all samples by one candidate that was trained on all labels."""
        if c.graph is None:
            return P[c.base]
        if c.base == POTENTIAL:
            return of_graph(potentials, c.graph)
        if c.base in MIXTURES:
            return mixtures[c.base]
        return self.smoothers[c.graph].smooth(with_labels(P[c.base], self.labelled.index, self.labelled.y), c.alpha)


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
    validation: ValidationLabels | None = None,
    table: bool = False,
) -> EnsembleFit:
    """Fit the ensemble to samples X (n, d) in double precision, with labels y (n,) that are negative for unlabelled samples.

    `class_prior` (C,) are the class fractions among the unlabelled samples, if they are known. With a `weighting`, such as that
    of an earlier fit, no labels are held out. `earlier` is a fit of the same X with other labels, whose graphs are taken over.
    With `validation`, the labels of these samples take the place of held-out labels; y must not contain them.
    If `table`, the samples are encoded rows of a table, and the ensemble also has base classifiers for tables.
    """
    index = np.flatnonzero(y >= 0)
    known = None if class_prior is None else normalize_class_fractions(class_prior, n_classes)
    labelled = _Labelled(index, y[index], n_classes, label_fractions(y[index], n_classes, table=table), known)
    fitter = _Fitter(X, labelled, n_neighbors, seed, earlier, table=table)
    fitted = fitter.fit_bases(labelled)
    P = fitter.base_predictions(fitted)
    potentials, scales = fitter.potentials()
    spread = {name: softmax(scales[name] * U) for name, U in potentials.items()}
    seen = fitter.mixtures.rows
    start = mixture_start(P[AVERAGE][seen], of_graph(spread, BOTH)[seen])
    forms, mixtures = fitter.fit_mixtures(start, labelled, np.arange(len(X)))
    full = {c: fitter.full(c, P, spread, mixtures) for c in fitter.candidates}
    held_out = None
    if weighting is None:
        if validation is None:
            predicted, held_out_y = _predict_held_out(fitter, scales, seed)
        else:
            predicted, held_out_y = {c: P[validation.index] for c, P in full.items()}, validation.y
        weighting, held_out = _weigh(fitter, full, predicted, held_out_y)
    weights, temperatures, temperature = weighting
    tempered = {c: scale_temperature(full[c], temperatures[c]) for c in weights}
    factors = class_factors(class_prior, labelled.fractions)
    names = [*(base.name for base in fitter.bases), *fitter.tree_models, AVERAGE]
    return EnsembleFit(
        fitter.columns,
        tuple(_base_part(*parts) for parts in zip(fitter.bases, fitter.maps, fitted.logits, strict=True)),
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
        FittedMixtures(fitter.mixtures, forms),
        fitted.trees,
        seed,
    )


def _predict_held_out(fitter: _Fitter, scales: Mapping[str, float], seed: int) -> tuple[dict[Candidate, Floats], Labels]:
    """Return the probabilities of labelled samples while they are held out, by each candidate, and their labels.

    The dict is empty if no class has two labels.
    """
    y = fitter.labelled.y
    folds = stratified_folds(y, np.random.default_rng(seed))
    return fitter.held_out(folds, scales) if folds else ({}, y)


def _weigh(
    fitter: _Fitter, full: Mapping[Candidate, Floats], predicted: Mapping[Candidate, Floats], held_out_y: Labels
) -> tuple[Weighting, tuple[Floats, Labels] | None]:
    """Return the weights and temperatures that held-out labels determine, and the ensemble's probabilities of these samples
    with their labels.
    """
    y, cuts = fitter.labelled.y, {c: fitter.cut(P) for c, P in full.items()}
    weights, temperatures = weigh_candidates(full, cuts, predicted, held_out_y, y)
    if not predicted:
        return Weighting(weights, temperatures, 1.0), None
    mean = mix({c: scale_temperature(predicted[c], temperatures[c]) for c in weights}, weights)
    temperature = fit_temperature(mean, held_out_y)[0]
    return Weighting(weights, temperatures, temperature), (scale_temperature(mean, temperature), held_out_y)


def class_factors(class_prior: Floats | None, fractions: Floats) -> Floats:
    """Return the factors (C,) on the probabilities by which a known class prior replaces the class fractions of the labels."""
    if class_prior is None:
        return np.ones(len(fractions))
    return np.asarray(normalize_class_fractions(class_prior, len(fractions)) / fractions)


def fraction_estimates(y: Labels, P: Floats, class_prior: Floats | None) -> tuple[Floats, ...]:
    """Return estimates of the class fractions: of the labels y (m,), equal ones, those of the predictions P (n, C), and
    the prior.
    """
    C = P.shape[1]
    counts = np.bincount(y, minlength=C)
    given = () if class_prior is None else (normalize_class_fractions(class_prior, C),)
    return (counts / counts.sum(), np.full(C, 1.0 / C), P.mean(axis=0), *given)


def _base_part(base: BaseClassifier, feature_map: FeatureMap, fitted: Logits) -> BasePart:
    coefficients = feature_map.coefficients(torch.from_numpy(fitted.weights))
    return BasePart(base, feature_map.centers, coefficients, torch.from_numpy(fitted.bias))


def _graph_part(fitter: _Fitter, name: str, P: Mapping[Candidate, Floats], weights: Mapping[Candidate, float]) -> GraphPart:
    projection, points, widths = fitter.projections[name], fitter.points[name], fitter.widths[name]
    uniform = np.full((fitter.n, fitter.labelled.n_classes), 1.0 / fitter.labelled.n_classes)
    return graph_mean(GraphPart(projection, points, widths, fitter.n_neighbors, uniform, 0.0), name, P, weights)


def graph_mean(part: GraphPart, name: str, P: Mapping[Candidate, Floats], weights: Mapping[Candidate, float]) -> GraphPart:
    """Return the graph `name`, with the weighted mean and the total weight of all predictions that are smoothed over it."""
    own = {c: weight / (len(GRAPHS) if c.graph == BOTH else 1) for c, weight in weights.items() if c.graph in (name, BOTH)}
    total = sum(own.values())
    return replace(part, P=mix(P, own) / total, weight=total) if own else part
