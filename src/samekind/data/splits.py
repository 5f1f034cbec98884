"""Which rows show their label, and which are kept for the test: by seed, and fair to every class.

A `Split` is what training gets to know of the labels of a set. It holds those that are shown and no other: hidden labels, and
those of the validation rows, stay in the data set and meet nothing but the evaluation.
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
    """Row numbers of a training set, all in rising order, and the labels (n_labelled,) that the labelled rows show."""

    seed: int
    labelled: Integers
    unlabelled: Integers
    validation: Integers
    labels: Integers

    @property
    def train(self) -> Integers:
        """The rows that are trained on: the labelled ones are part of the pool like any other."""
        return np.sort(np.concatenate([self.labelled, self.unlabelled]))

    @property
    def y(self) -> Integers:
        """For each row of the pool its label if it shows one, else -1. All that training is told."""
        y = np.full(len(self.labelled) + len(self.unlabelled), UNLABELLED, dtype=np.int64)
        y[np.searchsorted(self.train, self.labelled)] = self.labels
        return y

    @property
    def hash(self) -> str:
        """16 hex digits of the sha256 of the row numbers and the labels shown: two runs with the same saw the same."""
        parts = (self.labelled, self.unlabelled, self.validation, self.labels)
        sizes = np.array([len(part) for part in parts])
        return hashlib.sha256(np.concatenate([sizes, *parts]).astype("<i8").tobytes()).hexdigest()[:16]

    def record(self) -> dict[str, Any]:
        """For JSON: what it takes to draw the same split again, and the hash to see that it is."""
        sizes = {"labelled": len(self.labelled), "unlabelled": len(self.unlabelled), "validation": len(self.validation)}
        return {"seed": self.seed, **sizes, "hash": self.hash}


def draw_split(y: Integers, n_labels: int, seed: int, *, n_validation: int = 0) -> Split:
    """Labels as evenly over the classes as they go; a class with too few rows shows all, and the others make up for it.

    Then validation rows from the rest, each class in its share. The same seed shows the same labels with and without them.
    """
    _require(y, n_labels, n_validation)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    turn = _places(y, order)
    classes = rng.permutation(int(y.max()) + 1)  # who comes first where labels do not fall evenly
    labelled = order[np.lexsort((classes[y[order]], turn[order]))][:n_labels]
    rest = np.setdiff1d(np.arange(len(y)), labelled)
    return make_split(y, labelled, rest[train_test_indices(y[rest], n_validation, seed)[1]], seed)


def make_split(y: Integers, labelled: Integers, validation: Integers, seed: int) -> Split:
    """The split with these rows; of y it reads the labels of the labelled rows and no other."""
    labelled = np.unique(labelled)
    unlabelled = np.setdiff1d(np.arange(len(y)), np.concatenate([labelled, validation]))
    return Split(seed, labelled, unlabelled, np.setdiff1d(validation, labelled), y[labelled].astype(np.int64))


def hide_labels(y: Integers, per_class: int, seed: int) -> Integers:
    """y with all labels hidden (-1) but `per_class` of each class; a class with fewer rows shows them all."""
    if per_class < 1:
        raise SettingError(f"per_class is {per_class}; expected 1 or more labels of each class")
    rng = np.random.default_rng(seed)
    shown = np.full(len(y), UNLABELLED, dtype=np.int64)
    for c in np.unique(y):
        rows = np.flatnonzero(y == c)
        shown[rng.choice(rows, min(per_class, len(rows)), replace=False)] = c
    return shown


def train_test_indices(y: Integers, n_test: int, seed: int) -> tuple[Integers, Integers]:
    """Row numbers for training and for the test, both in rising order; each class gives its share to the test."""
    if not 0 <= n_test <= len(y):
        raise SettingError(f"n_test is {n_test}; expected 0 to {len(y)}, the number of rows")
    order = np.random.default_rng(seed).permutation(len(y))
    # where a row stands in its own class, from 0 to 1: the lowest of all classes together hold each in its share
    _, which, sizes = np.unique(y, return_inverse=True, return_counts=True)
    place = (_places(y, order) + 0.5) / sizes[which]
    order = order[np.argsort(place[order], kind="stable")]
    return np.sort(order[n_test:]), np.sort(order[:n_test])


def _places(y: Integers, order: Integers) -> Integers:
    """For each row, how many of its class come before it in this order."""
    places = np.empty(len(y), dtype=np.int64)
    for c in np.unique(y):
        rows = order[y[order] == c]
        places[rows] = np.arange(len(rows))
    return places


def _require(y: Integers, n_labels: int, n_validation: int) -> None:
    if len(y) == 0 or y.min() < 0:
        raise LabelError("a split is drawn from the label of every row; found a row without one (-1), or no row at all")
    n_classes = len(np.unique(y))
    if not n_classes <= n_labels <= len(y):
        raise SettingError(f"n_labels is {n_labels}; expected {n_classes}, one for each class, to {len(y)}, the number of rows")
    if not 0 <= n_validation <= len(y) - n_labels:
        raise SettingError(f"n_validation is {n_validation}; expected 0 to {len(y) - n_labels}, what {n_labels} labels leave")
