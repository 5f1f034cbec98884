"""Splits into labelled, unlabelled, validation and test samples, determined by a seed and stratified by class.

A `Split` has only the labels that training may use. The hidden labels, and those of the validation samples, stay in the
dataset, where only the evaluation reads them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.data.dataset import UNLABELLED
from samekind.errors import LabelError, SettingError

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Split of a training set: sorted indices of its parts, and the labels (n_labelled,) of its labelled samples."""

    seed: int
    labelled: Integers
    unlabelled: Integers
    validation: Integers
    labels: Integers

    @property
    def train(self) -> Integers:
        """Return the sorted indices of the training samples, labelled and unlabelled."""
        return np.sort(np.concatenate([self.labelled, self.unlabelled]))

    @property
    def y(self) -> Integers:
        """Return the label of each training sample, with -1 for unlabelled ones."""
        y = np.full(len(self.labelled) + len(self.unlabelled), UNLABELLED, dtype=np.int64)
        y[np.searchsorted(self.train, self.labelled)] = self.labels
        return y

    @property
    def hash(self) -> str:
        """Return 16 hex digits of the SHA-256 of all indices and labels. Equal hashes mean equal splits."""
        parts = (self.labelled, self.unlabelled, self.validation, self.labels)
        sizes = np.array([len(part) for part in parts])
        return hashlib.sha256(np.concatenate([sizes, *parts]).astype("<i8").tobytes()).hexdigest()[:16]

    def record(self) -> dict[str, Any]:
        """Return a JSON record from which the split can be drawn again. The hash in it shows whether it is the same split."""
        sizes = {"labelled": len(self.labelled), "unlabelled": len(self.unlabelled), "validation": len(self.validation)}
        return {"seed": self.seed, **sizes, "hash": self.hash}


def draw_split(y: Integers, n_labels: int, seed: int, *, n_validation: int = 0) -> Split:
    """Draw labelled samples, equally many of each class, then validation samples from the others, stratified by class.

    A class with too few samples is labelled completely, and the other classes get more labels. With the same seed, the labelled
    samples are the same with and without validation samples.
    """
    _require(y, n_labels, n_validation)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    rank = _rank_within_class(y, order)
    classes = rng.permutation(int(y.max()) + 1)  # order in which the classes get the labels that cannot be divided equally
    labelled = order[np.lexsort((classes[y[order]], rank[order]))][:n_labels]
    rest = np.setdiff1d(np.arange(len(y)), labelled)
    return make_split(y, labelled, rest[train_test_indices(y[rest], n_validation, seed)[1]], seed)


def make_split(y: Integers, labelled: Integers, validation: Integers, seed: int) -> Split:
    """Return the split with these indices. Of y, only the labels of the labelled samples are stored."""
    labelled = np.unique(labelled)
    unlabelled = np.setdiff1d(np.arange(len(y)), np.concatenate([labelled, validation]))
    return Split(seed, labelled, unlabelled, np.setdiff1d(validation, labelled), y[labelled].astype(np.int64))


def hide_labels(y: Integers, per_class: int, seed: int) -> Integers:
    """Return y with only `per_class` random labels of each class, or all labels of a smaller class, and -1 elsewhere."""
    if per_class < 1:
        raise SettingError(f"per_class is {per_class}; expected 1 or more labels of each class")
    rng = np.random.default_rng(seed)
    visible = np.full(len(y), UNLABELLED, dtype=np.int64)
    for c in np.unique(y):
        members = np.flatnonzero(y == c)
        visible[rng.choice(members, min(per_class, len(members)), replace=False)] = c
    return visible


def labels_at_random(y: Integers, n_labels: int, seed: int) -> Integers:
    """Return y with only `n_labels` labels, drawn at random from all samples, and -1 elsewhere.

    The drawing is repeated until there are labels of at least two classes.
    """
    n_classes = len(np.unique(y))
    if not 2 <= n_labels <= len(y) or n_classes < 2:
        raise SettingError(
            f"n_labels is {n_labels} and y has {n_classes} classes; expected 2 or more classes, and 2 to {len(y)} "
            "labels, the number of samples"
        )
    rng = np.random.default_rng(seed)
    while True:
        chosen = rng.choice(len(y), n_labels, replace=False)
        if len(np.unique(y[chosen])) > 1:
            visible = np.full(len(y), UNLABELLED, dtype=np.int64)
            visible[chosen] = y[chosen]
            return visible


def train_test_indices(y: Integers, n_test: int, seed: int) -> tuple[Integers, Integers]:
    """Return the sorted indices of the training samples and of the `n_test` test samples, stratified by class."""
    if not 0 <= n_test <= len(y):
        raise SettingError(f"n_test is {n_test}; expected 0 to {len(y)}, the number of samples")
    order = np.random.default_rng(seed).permutation(len(y))
    # Sorted by (rank within the class) / (size of the class), the first n samples are stratified for any n.
    _, class_index, sizes = np.unique(y, return_inverse=True, return_counts=True)
    position = (_rank_within_class(y, order) + 0.5) / sizes[class_index]
    order = order[np.argsort(position[order], kind="stable")]
    return np.sort(order[n_test:]), np.sort(order[:n_test])


def _rank_within_class(y: Integers, order: Integers) -> Integers:
    """Return for each sample how many samples of its class come before it in `order`."""
    ranks = np.empty(len(y), dtype=np.int64)
    for c in np.unique(y):
        members = order[y[order] == c]
        ranks[members] = np.arange(len(members))
    return ranks


def _require(y: Integers, n_labels: int, n_validation: int) -> None:
    if len(y) == 0 or y.min() < 0:
        raise LabelError(
            "a split needs the label of every sample; found a sample without one (-1), or no samples. Pass all labels."
        )
    n_classes = len(np.unique(y))
    if not n_classes <= n_labels <= len(y):
        raise SettingError(
            f"n_labels is {n_labels}; expected {n_classes} or more, one for each class, and at most {len(y)}, the "
            "number of samples"
        )
    if not 0 <= n_validation <= len(y) - n_labels:
        raise SettingError(
            f"n_validation is {n_validation}; expected 0 to {len(y) - n_labels}, the number of samples without a label"
        )
