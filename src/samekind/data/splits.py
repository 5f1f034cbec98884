"""Which rows show their label, and which are kept for the test: by seed, and fair to every class."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from samekind.data.pool import UNLABELLED
from samekind.errors import SettingError

Integers = npt.NDArray[np.int64]


def show_labels(y: Integers, per_class: int, seed: int) -> Integers:
    """y with all labels hidden (-1) but `per_class` of each class; a class with fewer rows shows them all."""
    if per_class < 1:
        raise SettingError(f"per_class is {per_class}; expected 1 or more labels of each class")
    rng = np.random.default_rng(seed)
    shown = np.full(len(y), UNLABELLED, dtype=np.int64)
    for c in np.unique(y):
        rows = np.flatnonzero(y == c)
        shown[rng.choice(rows, min(per_class, len(rows)), replace=False)] = c
    return shown


def train_test(y: Integers, n_test: int, seed: int) -> tuple[Integers, Integers]:
    """Row numbers for training and for the test, both in rising order; each class gives its share to the test."""
    if not 0 <= n_test <= len(y):
        raise SettingError(f"n_test is {n_test}; expected 0 to {len(y)}, the number of rows")
    order = np.random.default_rng(seed).permutation(len(y))
    # where a row stands in its own class, from 0 to 1: the lowest of all classes together hold each in its share
    place = np.empty(len(y))
    for c in np.unique(y):
        rows = order[y[order] == c]
        place[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    order = order[np.argsort(place[order], kind="stable")]
    return np.sort(order[n_test:]), np.sort(order[:n_test])
