"""Changes of labels after a fit: which training sample has which label, and the model that follows from the labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from samekind.data.dataset import UNLABELLED
from samekind.data.inputs import Labels, n_samples, read_given_labels, read_labels
from samekind.errors import LabelError
from samekind.fitting.label_quality import LabelQuality, assess
from samekind.methods.base import LabelEvidence, LabelUpdater
from samekind.methods.predictors import AnyPredictor
from samekind.model import FittedModel, prepare_for_inference

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class UpdatableFit:
    """The labels of a fitted model, and the object that updates the model when they change."""

    labels: Labels
    updater: LabelUpdater

    def update(self, model: FittedModel, indices: Any, labels: Any) -> tuple[FittedModel, UpdatableFit]:
        """Return the model and its labels after the training samples `indices` were given new labels, or lost their labels."""
        changed = change_labels(self.labels, read_indices(indices, len(self.labels.codes)), labels)
        position = {name: number for number, name in enumerate(self.labels.classes.tolist())}
        previous_class = [position.get(name, -1) for name in changed.classes.tolist()]
        predictor, probabilities = self.updater.update(model.train_features, changed.codes, previous_class)
        return _with_predictor(model, changed, predictor, probabilities), replace(self, labels=changed)

    def refit(self, model: FittedModel) -> tuple[FittedModel, LabelQuality | None, UpdatableFit]:
        """Return the model, its quality and its next updates, after a full training with the present labels."""
        n_classes = len(self.labels.classes)
        predictor, probabilities, evidence, updater = self.updater.refit(model.train_features, self.labels.codes, n_classes)
        refitted = _with_predictor(model, self.labels, predictor, probabilities)
        return refitted, assess_evidence(evidence, self.labels), UpdatableFit(self.labels, updater)


def _with_predictor(model: FittedModel, labels: Labels, predictor: nn.Module, probabilities: Tensor) -> FittedModel:
    """Return the model with the predictor and the probabilities that belong to changed labels of its training samples."""
    return replace(
        model,
        classes=labels.classes,
        predictor=prepare_for_inference(cast(AnyPredictor, predictor.eval()), model.shape),
        train_codes=np.where(labels.codes == UNLABELLED, probabilities.argmax(1).numpy(), labels.codes),
        train_probabilities=probabilities,
    )


def read_indices(indices: Any, n: int) -> Integers:
    """Return positions (m,) of training samples, from a number or a sequence of numbers. Negative ones count from the end."""
    given = np.atleast_1d(np.asarray(indices))
    if given.size == 0:
        return np.empty(0, dtype=np.int64)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise LabelError(
            f"indices are of type {given.dtype} and shape {given.shape}; expected the positions of training samples as whole "
            "numbers, such as [3, 17]. For a mask, pass np.flatnonzero(mask)."
        )
    outside = given[(given < -n) | (given >= n)]
    if len(outside):
        raise LabelError(
            f"index {outside[0]} is not the position of a training sample; the model was fitted on {n} samples, so "
            f"expected -{n} to {n - 1}. To add samples, call fit again."
        )
    found = np.where(given < 0, given + n, given).astype(np.int64)
    if len(np.unique(found)) < len(found):
        twice = np.flatnonzero(np.bincount(found) > 1)[0]
        raise LabelError(f"indices hold sample {twice} more than once; expected each sample once. Pass its last label only.")
    return found


def change_labels(labels: Labels, indices: Integers, given: Any) -> Labels:
    """Return the labels after the samples `indices` (m,) got other labels. The labels -1, None, '' and NaN remove a label.

    `given` has one label for each of these samples, or is one label for all of them.
    """
    if np.ndim(given) == 0:
        given = [given] * len(indices)
    if n_samples(given) != len(indices):
        raise LabelError(
            f"indices name {len(indices)} samples, and labels has {n_samples(given)} entries. Pass one label per index, or a "
            "single label for all of them."
        )
    if not len(indices):
        return labels
    at, new = read_given_labels(given, len(indices))
    kept = np.setdiff1d(np.flatnonzero(labels.codes != UNLABELLED), indices)
    positions = np.concatenate([kept, indices[at]])
    names = labels.classes[labels.codes[kept]].tolist() + [_plain(label) for label in new]
    if not names:
        raise LabelError(
            "after this update no sample would have a label, but two classes are needed. Keep a label of each of two classes."
        )
    read = read_labels(names, len(names))
    codes = np.full(len(labels.codes), UNLABELLED, dtype=np.int64)
    codes[positions] = read.codes
    return Labels(read.classes, codes)


def _plain(label: Any) -> Any:
    """Return a numpy scalar as a Python object; return any other label unchanged."""
    return label.item() if isinstance(label, np.generic) else label


def assess_evidence(evidence: LabelEvidence | None, labels: Labels) -> LabelQuality | None:
    """Return the quality of a fit from its predictions of held-out labels; None if the method holds out no labels."""
    if evidence is None:
        return None
    counts = np.bincount(labels.codes[labels.codes >= 0], minlength=len(labels.classes))
    return assess(evidence.predicted, evidence.true, counts, labels.classes.tolist(), evidence.graph_weight)
