"""Predictions of a model for all items, as arrays on disk. They are memory-mapped, so they can be read without loading a model.

    model-N/predictions.json   the ids of the classes, the weights file, and the last label event known to the training
    model-N/f.npy              class probabilities (n, C)
    model-N/z.npy              features (n, d)

model-0 is used until the first model is trained. It has baseline features, but no classes and no probabilities.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.errors import ModelFileError
from samekind.files.io import atomic_write, atomic_write_array
from samekind.files.manifest import PREDICTIONS_FORMAT, read_predictions_manifest

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
# {class id: id of the class into which it was merged, its own id if it was not, None if it was deleted}
MergeTargets = Mapping[int, int | None]
N_CANDIDATES = 5000  # number of random items from which farthest-first traversal chooses
N_DIVERSE = 500  # number of items that farthest-first traversal chooses


@dataclass(frozen=True)
class Predictions:
    """Class probabilities f (n, C) and features z (n, d) of all items.

    `class_ids` has the id of the class of each column of f.
    """

    version: int
    metadata: Mapping[str, Any]  # content of predictions.json
    class_ids: tuple[int, ...]
    f: Floats
    z: Floats
    n_predicted: int  # number of items that have a prediction; items that were added after the training have none
    columns: tuple[int, ...]  # for each class of the model its column in f; merged classes share one, and deleted ones have -1
    revision: int = 0  # number of earlier updates of the predictions in this session
    _diverse: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.f)

    @property
    def trained(self) -> bool:
        """Return whether a trained model made these predictions. If not, only z is valid, and each `pred` is -1."""
        return bool(self.class_ids)

    @cached_property
    def ranked(self) -> Integers:
        """Return for each item the columns of its most probable classes, at most five, best first."""
        if not self.trained:
            return np.empty((len(self), 0), dtype=np.int64)
        k = min(5, self.f.shape[1])
        top = np.argpartition(-self.f, k - 1, axis=1)[:, :k]
        probabilities = np.take_along_axis(self.f, top, axis=1)
        return np.asarray(np.take_along_axis(top, np.argsort(-probabilities, axis=1, kind="stable"), axis=1))

    @cached_property
    def pred(self) -> npt.NDArray[np.int32]:
        """Return the id of each item's most probable class; -1 if there is no model."""
        if not self.trained:
            return np.full(len(self), -1, dtype=np.int32)
        return np.asarray(self.class_ids, dtype=np.int32)[self.ranked[:, 0]]

    @cached_property
    def confidence(self) -> Floats:
        """Return the probability of each item's most probable class."""
        if not self.trained:
            return np.zeros(len(self), dtype=np.float32)
        return np.asarray(self.f[np.arange(len(self)), self.ranked[:, 0]])

    @cached_property
    def margin(self) -> Floats:
        """Return the difference between the probabilities of each item's two most probable classes."""
        if self.f.shape[1] < 2:
            return self.confidence
        return np.asarray(self.confidence - self.f[np.arange(len(self)), self.ranked[:, 1]])

    @cached_property
    def entropy(self) -> Floats:
        """Return the entropy -SUM_c f_c ln f_c of each item, divided by its maximum ln C."""
        safe = np.clip(self.f, 1e-12, 1.0)
        return np.asarray((-(safe * np.log(safe)).sum(axis=1) / np.log(max(2, self.f.shape[1]))).astype(np.float32))

    def diversity_rank(self, seed: int) -> Floats:
        """Return the position of each item in farthest-first order. The order for the last seed is cached."""
        if self._diverse.get("seed") != seed:
            self._diverse.update(seed=seed, ranks=farthest_first(self.z, seed))
        return np.asarray(self._diverse["ranks"])

    def updated(
        self, f: Floats, class_ids: Sequence[int], merge_targets: MergeTargets, metadata: Mapping[str, Any]
    ) -> Predictions:
        """Return these predictions with other probabilities f (n, C), for the labels that `metadata` describes.

        The classes may be others than before, and there may be fewer rows than items.
        """
        own, columns = _merged_columns(class_ids, merge_targets)
        merged = _pad(_sum_columns(f, columns, len(own)), len(self), 1.0 / len(own))
        combined = {**self.metadata, "class_ids": list(class_ids), **metadata}
        return Predictions(
            self.version, combined, own, merged, self.z, self.n_predicted, columns, self.revision + 1, self._diverse
        )

    def is_up_to_date(self, merge_targets: MergeTargets) -> bool:
        """Return whether f takes account of the present merges and deletions of classes."""
        return (self.class_ids, self.columns) == _merged_columns(self.metadata["class_ids"], merge_targets)

    def merge_columns(self, f: npt.NDArray[Any]) -> Floats:
        """Return probabilities f of this model for other samples, with the columns of merged and deleted classes changed
        as here.
        """
        return _sum_columns(np.asarray(f), self.columns, len(self.class_ids))

    def top(self, item: int, k: int) -> list[tuple[int, float]]:
        """Return the k most probable classes of an item, as [(class id, probability), ...]."""
        return [(self.class_ids[c], round(float(self.f[item, c]), 5)) for c in self.ranked[item, :k]]


def farthest_first(z: Floats, seed: int) -> Floats:
    """Return the position of each item in farthest-first order: the next item is the one farthest from all items before it.

    To save time, only N_DIVERSE items are chosen in this way, out of N_CANDIDATES random ones. All others follow in random
    order.
    """
    shuffled = np.random.default_rng(seed).permutation(len(z))
    some = shuffled[:N_CANDIDATES]
    near = np.asarray(z[np.sort(some)], dtype=np.float32)[np.argsort(np.argsort(some))]
    places = np.empty(len(z), dtype=np.float32)
    places[shuffled] = np.arange(len(z)) + N_DIVERSE
    centered = near - near.mean(axis=0)
    distance = (centered**2).sum(axis=1)
    squares = (near**2).sum(axis=1)
    for place in range(min(N_DIVERSE, len(some))):
        farthest = int(distance.argmax())
        places[some[farthest]] = place
        own = np.maximum(squares - 2.0 * (near @ near[farthest]) + squares[farthest], 0.0)
        distance = own if place == 0 else np.minimum(distance, own)
        distance[farthest] = -1.0
    return places


def write_predictions(folder: Path, f: Floats, z: Floats, metadata: Mapping[str, Any]) -> None:
    """Write the predictions of a model. The metadata is written last, so that it never describes incomplete arrays."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, array in (("f", f), ("z", z)):
        atomic_write_array(folder / f"{name}.npy", np.ascontiguousarray(array, dtype=np.float32), ModelFileError)
    blob = json.dumps({"format": PREDICTIONS_FORMAT, **metadata}, indent=2) + "\n"
    atomic_write(folder / "predictions.json", blob.encode(), ModelFileError)


def read_predictions(folder: Path, version: int, n: int, merge_targets: MergeTargets) -> Predictions:
    """Return the predictions of a model for n items, with the present merges and deletions of classes.

    `merge_targets` maps each class to the class into which it was merged, and a deleted class to None.
    """
    metadata = read_predictions_manifest(folder)
    try:
        f, z = (np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in "fz")
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"the predictions in {folder} cannot be read ({error}). Remove that folder, then start samekind serve again."
        ) from error
    given = tuple(metadata["class_ids"])
    if f.shape != (len(f), len(given)) or len(z) != len(f) or len(f) > n:
        raise ModelFileError(
            f"the predictions in {folder} do not fit together: f has shape {f.shape}, z {z.shape}, for {len(given)} classes "
            f"and {n} items. Remove that folder, then start samekind serve again."
        )
    class_ids, columns = _merged_columns(given, merge_targets)
    if class_ids != given:
        f = _sum_columns(np.asarray(f), columns, len(class_ids))
    all_f, all_z = _pad(f, n, 1.0 / max(1, len(class_ids))), _pad(z, n, 0.0)
    return Predictions(version, metadata, class_ids, all_f, all_z, len(f), columns)


def _merged_columns(given: Sequence[int], merge_targets: MergeTargets) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the class ids without merged and deleted classes, and for each given class its column among them, or -1.

    If all classes are deleted, they are kept, because the model has nothing else to predict.
    """
    targets = [merge_targets.get(class_id, class_id) for class_id in given]
    if all(target is None for target in targets):
        targets = list(given)
    class_ids = tuple(sorted({target for target in targets if target is not None}))
    return class_ids, tuple(-1 if target is None else class_ids.index(target) for target in targets)


def _sum_columns(f: Floats, columns: tuple[int, ...], n_columns: int) -> Floats:
    """Return the probabilities with one summed column for merged classes, and without the columns of deleted classes."""
    merged = np.zeros((len(f), n_columns), dtype=np.float32)
    for column, at in enumerate(columns):
        if at >= 0:
            merged[:, at] += f[:, column]
    if -1 in columns:
        total = merged.sum(axis=1, keepdims=True)
        merged = np.where(total > 0, merged / np.maximum(total, np.finfo(np.float32).tiny), np.float32(1.0 / n_columns))
    return merged


def _pad(array: Floats, n: int, value: float) -> Floats:
    """Append rows of a constant value for the items that were added after the model was trained."""
    if len(array) == n:
        return array
    return np.concatenate([array, np.full((n - len(array), array.shape[1]), value, dtype=np.float32)])
