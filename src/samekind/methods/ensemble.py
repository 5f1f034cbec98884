"""Ensemble: linear and kernel classifiers, and their predictions smoothed on two graphs; held-out labels give the weights.

This is the default method for vectors. It has no training steps, and a fit takes about a second. The parts are known: logistic
regression, smoothing of its predictions over a graph (after Zhou et al. 2004), and stacking (Wolpert 1992).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from samekind.config import Config, NonNegativeInt, PositiveInt
from samekind.data.dataset import Batch, Dataset
from samekind.errors import ClassFractionWarning, DataError
from samekind.graphs.linear_systems import Floats, Labels
from samekind.methods.base import LabelEvidence, Method, Refitted, Task
from samekind.methods.ensemble_predictor import EnsemblePredictor
from samekind.methods.fixed_graph import require_class_fractions
from samekind.methods.spec import NEIGHBORS_SPACE, MethodSpec
from samekind.nets.classifier import Classifier
from samekind.stacking.ensemble_candidates import Weighting
from samekind.stacking.ensemble_fit import EnsembleFit
from samekind.stacking.ensemble_updates import EnsembleUpdater
from samekind.stacking.one_thread import one_thread
from samekind.stacking.stacked_ensemble import N_NEIGHBORS, fit_stacked_ensemble

# largest difference of predicted from estimated class fractions without a warning, as total variation distance
MAX_FRACTION_DISTANCE = 0.35


@dataclass(frozen=True)
class EnsembleConfig(Config):
    """Settings of the ensemble of classifiers and graphs."""

    n_neighbors: PositiveInt = N_NEIGHBORS  # neighbours of each sample in both graphs
    class_prior: Sequence[float] | None = None  # class fractions of the unlabelled samples; None: estimated from the labels
    seed: NonNegativeInt = 0  # random seed of the division of the labels into folds, each of which is held out once

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.class_prior is not None:
            require_class_fractions("class_prior", self.class_prior)


class Validated(NamedTuple):
    """Weights of the ensemble's models, and the probabilities and labels of the samples that determined them.

    Features that were trained on the labels predict these labels too well, so held-out labels cannot give the weights. They
    must come from samples whose labels no part of the training has seen.
    """

    weighting: Weighting
    held_out: tuple[Floats, Labels] | None


class Ensemble(Method):
    """Stacked ensemble of classifiers for vectors; images are flattened to vectors."""

    iterative = False
    scales_inputs = True
    labelled_views = ()
    unlabelled_views = ()

    def __init__(self, net: Classifier | None, task: Task, config: EnsembleConfig | None = None) -> None:
        super().__init__()
        self.config = config or EnsembleConfig()
        self.table = task.table
        self.fitted: EnsembleFit | None = None
        self.validated: Validated | None = None  # weights that are known before the fit; None: held-out labels give them
        self.labels: NDArray[np.int64] | None = None  # labels (n,) of the last call of `refresh`

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Return no terms: this method has no training steps."""
        return {}

    def refresh(self, dataset: Dataset) -> None:
        X = dataset.inputs(slice(None)).flatten(1).cpu().double()
        y = dataset.y.cpu().numpy()
        with one_thread():
            self.fitted = fit_stacked_ensemble(
                X,
                y,
                dataset.n_classes,
                seed=self.config.seed,
                class_prior=self._prior,
                n_neighbors=self.config.n_neighbors,
                weighting=None if self.validated is None else self.validated.weighting,
                table=self.table,
            )
        if self.validated is not None:
            self.fitted = replace(self.fitted, held_out=self.validated.held_out)
        self.labels = y
        check_fractions(self.fitted, y)
        self.diagnostics = {"mean_f": torch.from_numpy(self.fitted.probabilities.mean(0))}

    def train_probabilities(self) -> Tensor | None:
        return None if self.fitted is None else torch.from_numpy(self.fitted.probabilities)

    def label_evidence(self) -> LabelEvidence | None:
        return None if self.fitted is None else label_evidence(self.fitted)

    @property
    def _prior(self) -> NDArray[np.float64] | None:
        return None if self.config.class_prior is None else np.asarray(self.config.class_prior, dtype=np.float64)

    def label_updater(self) -> EnsembleLabelUpdater | None:
        if self.fitted is None or self.labels is None:
            return None
        updater = EnsembleUpdater(self.labels, self.fitted, self._prior)
        return EnsembleLabelUpdater(updater, self.config.seed, keeps_weighting=self.validated is not None)

    def predictor(self) -> nn.Module:
        if self.fitted is None:
            raise DataError("the ensemble is not fitted yet. Call refresh(dataset) before predictor().")
        return EnsemblePredictor.from_fit(self.fitted)


class EnsembleLabelUpdater:
    """Updates the predictor of an ensemble for other labels of its training samples.

    With `keeps_weighting`, also a refit keeps the weights of the models, and assesses no labels.
    """

    def __init__(self, updater: EnsembleUpdater, seed: int, *, keeps_weighting: bool = False) -> None:
        self._updater, self._seed, self._keeps_weighting = updater, seed, keeps_weighting

    def update(self, X: Tensor, y: NDArray[np.int64], previous_class: Sequence[int]) -> tuple[nn.Module, Tensor]:
        with one_thread():
            fitted = self._updater.update(X, y, previous_class)
        return EnsemblePredictor.from_fit(fitted), torch.from_numpy(fitted.probabilities)

    def refit(self, X: Tensor, y: NDArray[np.int64], n_classes: int) -> Refitted:
        earlier = self._updater
        with one_thread():
            fitted = fit_stacked_ensemble(
                X.flatten(1).double(),
                y,
                n_classes,
                seed=self._seed,
                class_prior=earlier.class_prior,
                earlier=earlier.fit,
                weighting=earlier.fit.weighting if self._keeps_weighting else None,
                table=bool(earlier.fit.trees),
            )
        check_fractions(fitted, y)
        updater = EnsembleLabelUpdater(earlier.after(fitted, y), self._seed, keeps_weighting=self._keeps_weighting)
        probabilities = torch.from_numpy(fitted.probabilities)
        evidence = None if self._keeps_weighting else label_evidence(fitted)
        return Refitted(EnsemblePredictor.from_fit(fitted), probabilities, evidence, updater)


def label_evidence(fitted: EnsembleFit) -> LabelEvidence:
    """Return the predictions that a fitted ensemble makes for held-out labels."""
    graph_weight = sum(weight for candidate, weight in fitted.weights.items() if candidate.graph is not None)
    if fitted.held_out is None:
        none = np.empty(0, dtype=np.int64)
        return LabelEvidence(none, none, graph_weight)
    P, y = fitted.held_out
    return LabelEvidence(P.argmax(axis=1), y, graph_weight)


def check_fractions(fitted: EnsembleFit, y: NDArray[np.int64]) -> None:
    """Warn if the predicted class fractions of the unlabelled samples are far from every estimate of these fractions."""
    if (y >= 0).all():
        return
    predicted = fitted.probabilities[y < 0].argmax(axis=1)
    found = np.bincount(predicted, minlength=len(fitted.class_factors)) / len(predicted)
    distance = min(0.5 * float(np.abs(found - estimate).sum()) for estimate in fitted.fraction_estimates)
    if distance > MAX_FRACTION_DISTANCE:
        warnings.warn(
            f"the predicted class fractions differ by {100 * distance:.0f} points or more from those of the labels and from "
            "those of the classifiers without a graph. Check a few predictions of the largest class, and label more samples "
            "or give class_prior if you know the fractions.",
            ClassFractionWarning,
            stacklevel=2,
        )


SPEC = MethodSpec(
    "ensemble",
    Ensemble,
    EnsembleConfig,
    "classifiers and graphs, weighted by held-out labels; for vectors",
    paper="after Zhou, Bousquet, Lal, Weston & Schölkopf 2004 and Wolpert 1992",
    search_space=NEIGHBORS_SPACE,
)
