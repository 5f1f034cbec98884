"""Updates of a fitted ensemble after labels were added, changed or removed, without a new fit.

These parts stay as they were after the last fit: the graphs, and what held-out labels determine (the weights of the models and
the temperatures). These are updated: the classifiers, starting at their last solutions; the smoothed predictions, starting at
their last values; the potentials, which are sums over labelled samples, so that only changed samples must be solved for; and
the Gaussian mixtures, which are fitted again to a part of the samples. The result is that of `fit_stacked_ensemble(...,
weighting=fit.weighting)`, up to the tolerances of the solvers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from torch import Tensor

from samekind.errors import SettingError
from samekind.graphs.linear_systems import Floats, Labels, normalize_class_fractions, normalize_rows
from samekind.stacking.decision_trees import TreeModel, Trees, fit_trees, tree_probabilities
from samekind.stacking.ensemble_candidates import (
    AVERAGE,
    BOTH,
    MIXTURES,
    POTENTIAL,
    POTENTIAL_ALPHA,
    Candidate,
    average_weights,
    mixed_probabilities,
    mixture_start,
)
from samekind.stacking.ensemble_fit import BasePart, EnsembleFit
from samekind.stacking.joint_solver import joint_conjugate_gradients
from samekind.stacking.kernel_logistic import Logits, class_balance_weights, fit_logistic, softmax
from samekind.stacking.labelled_span import CenteredSamples, LabelledSpans, LinearSpan, RbfSpan, pad
from samekind.stacking.model_weights import scale_temperature
from samekind.stacking.smoothing import Smoother, root_mean_square, with_labels
from samekind.stacking.stacked_ensemble import (
    CONTRAST,
    class_factors,
    graph_mean,
    label_fractions,
)

Singles = NDArray[Any]  # arrays in single precision
TOLERANCE = 1e-3  # relative residual of smoothed predictions that have all the weight; it is larger if they have less weight
POTENTIAL_TOLERANCE = 1e-3  # relative residual of the change of the potential


@dataclass(frozen=True)
class _State:
    """All parts of the ensemble that depend on the labels."""

    y: Labels  # labels (n,)
    logits: Mapping[str, Logits]  # coefficients of each base classifier that has a weight
    trees: Mapping[TreeModel, Trees]  # of each tree model that has a weight
    P: Mapping[str, Singles]  # (n, C): probabilities by each base classifier that has a weight, and by their average
    smoothed: Mapping[Candidate, Singles]  # (n, C): (I - alpha S)^-1 Q for predictions Q and the weights S of a graph
    # (n, C) for each graph: (I - alpha S)^-1 D^-1/2 e_i, summed over the labelled samples i of each class; e_i is a unit vector
    class_sources: Mapping[str, Singles]


class EnsembleUpdater:
    """Updates a fitted ensemble for other labels of its training samples.

    y (n,) are the labels of the fit. The first call of `update` computes what later calls need, so it takes several times as
    long.
    """

    def __init__(self, y: Labels, fit: EnsembleFit, class_prior: Floats | None = None) -> None:
        self.fit, self.class_prior = fit, class_prior
        self._y = y
        self._samples: CenteredSamples | None = None
        self._solver: _Solver | None = None
        self._state: _State | None = None

    def update(self, X: Tensor, y: Labels, previous_class: Sequence[int]) -> EnsembleFit:
        """Return the ensemble for the labels y (n,), which are negative for unlabelled samples.

        `X` (n, d) are the training samples of the fit; only the first call reads them. `previous_class` (C,) holds for each
        class its number in the last labels, or -1 for a new class. Every class must have a label. If a call is interrupted, the
        next one starts from the last complete update.
        """
        if self._solver is None or self._state is None:
            solver = _Solver(X, self._y, self.fit, self._samples)
            self._samples = solver.samples
            self._state, self._solver = solver.initial(self._y), solver
        if self.class_prior is not None and len(self.class_prior) != len(previous_class):
            raise SettingError(
                f"class_prior has {len(self.class_prior)} fractions, but the labels now have {len(previous_class)} "
                "classes. Call fit with one fraction for each class."
            )
        state = self._solver.step(self._state, y, previous_class)
        fit = self._solver.result(state, self.class_prior)
        self._state = state
        return fit

    def after(self, fit: EnsembleFit, y: Labels) -> EnsembleUpdater:
        """Return the updater for a later fit of the same samples with the labels y (n,)."""
        later = EnsembleUpdater(y, fit, self.class_prior)
        later._samples = self._samples
        return later


class _Solver:
    """Computes the parts of the ensemble that depend on the labels, from their last values. It holds all other parts.

    Arrays (n, C) are stored by column, because otherwise sums over classes are slow; only linear systems need them by row.
    """

    def __init__(self, X: Tensor, y: Labels, fit: EnsembleFit, samples: CenteredSamples | None) -> None:
        self.fit, self.weights, self.temperatures = fit, fit.weights, fit.temperatures
        self._systems: dict[tuple[str, float], csr_array] = {}
        # the Gaussian mixtures start from the average of the base classifiers, so they need it even if it has no weight itself
        counted = {AVERAGE if c.base in MIXTURES else c.base for c in self.weights if c.base != POTENTIAL}
        self.parts = [part for part in fit.bases if part.base.name in counted or AVERAGE in counted]
        self.tree_models = [name for name in fit.trees if name in counted or AVERAGE in counted]
        self.X, self.samples = X.flatten(1), samples
        if self.parts:
            self.samples = CenteredSamples(X.flatten(1), fit.columns) if samples is None else samples
            centers = {part.base.name: part.centers.numpy() for part in self.parts if part.centers is not None}
            self.spans = LabelledSpans(self.samples, np.flatnonzero(y >= 0), centers)

    def _fractions(self, y: Labels, n_classes: int) -> Floats:
        """Return the class fractions (C,) that the classifiers assume for the labels y (m,)."""
        return label_fractions(y, n_classes, table=bool(self.fit.trees))

    # ---------------------------------------------------------------- states of the ensemble

    def initial(self, y: Labels) -> _State:
        """Return the parts of the ensemble that depend on the labels, for the labels of the fit."""
        C, index = len(self.fit.class_factors), np.flatnonzero(y >= 0)
        logits = {}
        for part in self.parts:
            weights = self._span(part).weights(part.coefficients.numpy())
            logits[part.base.name] = Logits(weights, part.bias.numpy())
        zeros = {c: np.zeros((len(y), C), dtype=np.float32) for c in self._smoothed_candidates()}
        P = self.base_predictions(logits, self.fit.trees)
        smoothed = self._smooth(zeros, P, index, y[index])
        ones = np.ones(len(index))
        sources = {name: self._potentials_of(name, index, y[index], ones, C) for name in self._potential_graphs()}
        return _State(y, logits, self.fit.trees, P, smoothed, sources)

    def step(self, state: _State, y: Labels, columns: Sequence[int]) -> _State:
        """Return the state for the labels y. `columns` has for each class of y its number in the given state, or -1."""
        labelled = np.flatnonzero(y >= 0)
        logits = self._fit_bases(state.logits, labelled, y[labelled], columns)
        smoothed = {c: pad(F, len(y), columns) for c, F in state.smoothed.items()}
        trees = self._fit_trees(labelled, y[labelled], len(columns))
        P = self.base_predictions(logits, trees)
        smoothed = self._smooth(smoothed, P, labelled, y[labelled])
        return _State(y, logits, trees, P, smoothed, self._move_sources(state, y, columns))

    def result(self, state: _State, class_prior: Floats | None) -> EnsembleFit:
        """Return the ensemble that belongs to a state."""
        fit, labels = self.fit, state.y[state.y >= 0]
        fractions = self._fractions(labels, len(np.unique(labels)))
        tempered = self._tempered(state, labels, fractions, class_prior)
        factors = class_factors(class_prior, fractions)
        probabilities = mixed_probabilities(tempered, self.weights, fit.temperature, factors)
        return replace(
            fit,
            bases=tuple(self._base_part(part, state.logits, len(fractions)) for part in fit.bases),
            graphs=tuple(
                graph_mean(part, name, tempered, self.weights) for name, part in zip(fit.smoothers, fit.graphs, strict=True)
            ),
            class_factors=factors,
            probabilities=normalize_rows(probabilities.astype(np.float64)),
            trees={name: state.trees.get(name, _no_trees(len(fractions))) for name in fit.trees},
        )

    def _tempered(
        self, state: _State, labels: Labels, fractions: Floats, class_prior: Floats | None
    ) -> dict[Candidate, Floats]:
        """Return the probabilities (n, C) by each candidate model, scaled by its temperature."""
        potentials = {name: _potential(sources, labels, fractions) for name, sources in state.class_sources.items()}
        mixtures = self._mixtures(state, potentials, fractions, class_prior)
        tempered = {}
        for c in self.weights:
            if c.graph is None:
                found = state.P[c.base]
            elif c.base == POTENTIAL:
                found = _mean(list(potentials.values())) if c.graph == BOTH else potentials[c.graph]
            elif c.base in MIXTURES:
                found = mixtures[c.base]
            else:
                found = normalize_rows(np.asfortranarray(state.smoothed[c]))
            temperature = self.temperatures[c]
            tempered[c] = found if temperature == 1.0 else scale_temperature(found, temperature)
        return tempered

    # ---------------------------------------------------------------- base classifiers

    def base_predictions(self, logits: Mapping[str, Logits], trees: Mapping[TreeModel, Trees]) -> dict[str, Floats]:
        """Return the probabilities (n, C) by each base classifier that has a weight, and by their average."""
        P = {}
        for part in self.parts:
            weights, bias = logits[part.base.name]
            found: Singles = weights.T.astype(np.float32) @ self._span(part).coordinates.values
            divisor = self._divisor(part)
            if divisor is not None:
                found /= divisor
            found += bias[:, None]
            P[part.base.name] = softmax(found.T)
        for name in self.tree_models:
            P[name] = np.asfortranarray(tree_probabilities(name, trees[name], self.X).numpy(), dtype=np.float32)
        if not P:
            return {}
        weighted = (np.float32(w) * one for w, one in zip(average_weights(list(P)), P.values(), strict=True))
        return {**P, AVERAGE: reduce(np.add, weighted)}

    def _fit_trees(self, labelled: Labels, y: Labels, n_classes: int) -> dict[TreeModel, Trees]:
        """Return new trees for the labels y (m,) of some samples; they do not start at earlier ones."""
        rows = self.X[torch.from_numpy(labelled)].double().numpy()
        weight = class_balance_weights(y, self._fractions(y, n_classes))
        return {name: fit_trees(name, rows, y, weight, n_classes, self.fit.seed) for name in self.tree_models}

    def _fit_bases(self, start: Mapping[str, Logits], labelled: Labels, y: Labels, columns: Sequence[int]) -> dict[str, Logits]:
        """Return the base classifiers for the labels y (m,) of some samples.

        The optimization starts at the classifiers `start`.
        """
        if not self.parts:
            return {}
        self.spans.extend(labelled)
        weight = class_balance_weights(y, self._fractions(y, len(columns)))
        found = {}
        for part in self.parts:
            inputs, last = self._inputs(part, labelled), start[part.base.name]
            begin = Logits(pad(last.weights, inputs.shape[1], columns), pad(last.bias[None, :], 1, columns)[0])
            found[part.base.name] = fit_logistic(inputs, y, len(columns), part.base.C, weight, begin)
        return found

    def _span(self, part: BasePart) -> LinearSpan | RbfSpan:
        if part.base.rbf:
            return self.spans.rbf[part.base.name]
        return self.spans.raw if part.base.view in ("unit", "unscaled") else self.spans.standardized

    def _divisor(self, part: BasePart) -> Singles | None:
        """Return the lengths (n,) by which the rows of a view are divided; None if the rows keep their length."""
        if part.base.view in ("standardized", "unscaled"):
            return None
        samples = self.spans.samples
        norms = samples.raw_norms if part.base.view == "unit" else samples.standardized_norms
        return np.maximum(norms, np.finfo(np.float32).tiny)

    def _inputs(self, part: BasePart, index: Labels) -> Floats:
        """Return the inputs (m, r) of the logistic regression for the samples with these indices."""
        inputs, divisor = self._span(part).coordinates.of(index), self._divisor(part)
        return inputs if divisor is None else inputs / divisor[index][:, None]

    def _base_part(self, part: BasePart, logits: Mapping[str, Logits], n_classes: int) -> BasePart:
        """Return a base classifier in the form for new samples. One without weight gets coefficients of 0."""
        if part.base.name not in logits:
            zeros = torch.zeros((len(part.coefficients), n_classes), dtype=torch.float64)
            return replace(part, coefficients=zeros, bias=zeros.new_zeros(n_classes))
        span, (weights, bias) = self._span(part), logits[part.base.name]
        centers = torch.from_numpy(span.centers) if isinstance(span, RbfSpan) else None
        return BasePart(part.base, centers, torch.from_numpy(span.primal(weights)), torch.from_numpy(bias))

    # ---------------------------------------------------------------- smoothed predictions and potentials

    def _smoothed_candidates(self) -> list[Candidate]:
        return [c for c in self.weights if c.graph is not None and c.base not in (POTENTIAL, *MIXTURES)]

    def _potential_graphs(self) -> list[str]:
        graphs = {BOTH if c.base in MIXTURES else c.graph for c in self.weights if c.base in (POTENTIAL, *MIXTURES)}
        return [name for name in self.fit.smoothers if graphs & {name, BOTH}]

    def _smooth(
        self, start: Mapping[Candidate, Singles], P: Mapping[str, Floats], index: Labels, y: Labels
    ) -> dict[Candidate, Singles]:
        """Return the smoothed predictions of each candidate model. The solver starts at the given predictions."""
        found = {}
        for c, F in start.items():
            assert c.graph is not None
            fixed = with_labels(P[c.base], index, y)
            tolerance = TOLERANCE / max(self.weights[c], TOLERANCE)
            found[c] = joint_conjugate_gradients(self._system(c.graph, c.alpha), fixed, F, tolerance)
        return found

    def _move_sources(self, state: _State, y: Labels, columns: Sequence[int]) -> dict[str, Singles]:
        """Return the class sources for the labels y, by adding and removing the sources of those samples whose label
        changed.
        """
        number = np.full(int(state.y.max()) + 1, -1)  # for each class of `state` its number among the classes of y
        for new, old in enumerate(columns):
            if old >= 0:
                number[old] = new
        before = np.where(state.y >= 0, number[state.y], -1)
        changed = np.flatnonzero(before != y)
        removed, added = changed[before[changed] >= 0], changed[y[changed] >= 0]
        index = np.concatenate([removed, added])
        classes = np.concatenate([before[removed], y[added]])
        signs = np.concatenate([-np.ones(len(removed)), np.ones(len(added))])
        moved = {}
        for name, sources in state.class_sources.items():
            kept = pad(sources, len(y), columns)
            moved[name] = kept + self._potentials_of(name, index, classes, signs, len(columns)) if len(index) else kept
        return moved

    def _potentials_of(self, name: str, index: Labels, classes: Labels, signs: Floats, n_classes: int) -> Singles:
        """Return the potentials (n, C) of unit sources with these signs at some samples, summed for each class."""
        root = self.fit.smoothers[name].inverse_root
        columns, place = np.unique(classes, return_inverse=True)
        right: Singles = np.zeros((len(root), len(columns)), dtype=np.float32)
        np.add.at(right, (index, place), root[index] * signs)
        system = self._system(name, POTENTIAL_ALPHA)
        solved = joint_conjugate_gradients(system, right, np.zeros_like(right), POTENTIAL_TOLERANCE)
        potentials = np.zeros((len(root), n_classes), dtype=np.float32, order="F")
        potentials[:, columns] = root[:, None] * solved
        return potentials

    def _mixtures(
        self, state: _State, potentials: Mapping[str, Singles], fractions: Floats, class_prior: Floats | None
    ) -> dict[str, Singles]:
        """Return the probabilities (n, C) by the Gaussian mixtures that have a weight in the ensemble."""
        names = [c.base for c in self.weights if c.base in MIXTURES]
        if self.fit.mixtures is None or not names:
            return {}
        known = None if class_prior is None else normalize_class_fractions(class_prior, len(class_prior))
        index = np.flatnonzero(state.y >= 0)

        def start(samples: Labels) -> Floats:
            potential = _mean([P[samples] for P in potentials.values()])
            return mixture_start(state.P[AVERAGE][samples].astype(np.float64), potential.astype(np.float64))

        return self.fit.mixtures.refit(names, start, index, state.y[index], known, fractions)

    def _system(self, name: str, alpha: float) -> csr_array:
        """Return the matrix I - alpha S of a graph, in single precision."""
        key = (name, alpha)
        if key not in self._systems:
            smoother: Smoother = self.fit.smoothers[name]
            n = smoother.S.shape[0]
            self._systems[key] = csr_array(diags_array(np.ones(n)) - alpha * smoother.S, dtype=np.float32)
        return self._systems[key]


def _no_trees(n_classes: int) -> Trees:
    """Return trees in place of those that have no weight."""
    none = torch.zeros((0, 0), dtype=torch.float64)
    start = torch.zeros(n_classes, dtype=torch.float64)
    return Trees(none, none, none[..., None].repeat(1, 1, 2), none[..., None].repeat(1, 1, n_classes), start)


def _mean(arrays: Sequence[Singles]) -> Singles:
    """Return the mean of arrays. Unlike with numpy, the result is stored by column if the arrays are."""
    return reduce(np.add, arrays) / np.float32(len(arrays))


def _potential(sources: Singles, y: Labels, fractions: Floats) -> Floats:
    """Return the probabilities (n, C) by the potential of the labels y (m,).

    The sources are those that `smoothing.label_sources` describes.
    """
    counts = np.bincount(y, minlength=len(fractions))
    U = sources * (fractions / counts).astype(np.float32)
    U -= sources.sum(axis=1, keepdims=True) * (fractions / len(y)).astype(np.float32)
    return softmax(U * np.float32(CONTRAST / root_mean_square(U)))
