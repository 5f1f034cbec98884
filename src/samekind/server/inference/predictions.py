"""What a model says about every item, as arrays on disk: made once, opened as a map, and looked at without loading the model.

model-N/predictions.json   the classes by number, which weights said it, and on which labels they were trained
model-N/f.npy          probabilities (n, C)
model-N/z.npy          features (n, d)

model-0 is what there is before the first model: features without training, no class and no probability.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.errors import ModelFileError
from samekind.io import atomic_write, atomic_write_array
from samekind.manifest import PREDICTIONS_FORMAT, read_predictions_manifest

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
SPREAD_OVER = 5000  # items among which the most different are looked for,
SPREAD = 500  # and how many of them are put first


@dataclass(frozen=True)
class Predictions:
    """f (n, C) with one column for each class number in `class_ids`, and z (n, d)."""

    version: int
    words: Mapping[str, Any]
    class_ids: tuple[int, ...]
    f: Floats
    z: Floats
    n_known: int  # items that came later have no answer yet
    columns: tuple[int, ...]  # the column of each class that the model tells apart; merged ones share one
    _spread: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.f)

    @property
    def trained(self) -> bool:
        """Whether a model says this; else there is nothing but features, every `pred` is -1, and no number means anything."""
        return bool(self.class_ids)

    @cached_property
    def ranked(self) -> Integers:
        """Columns of the most probable classes of each item, at most five, best first."""
        if not self.trained:
            return np.empty((len(self), 0), dtype=np.int64)
        most = min(5, self.f.shape[1])
        top = np.argpartition(-self.f, most - 1, axis=1)[:, :most]
        shares = np.take_along_axis(self.f, top, axis=1)
        return np.asarray(np.take_along_axis(top, np.argsort(-shares, axis=1, kind="stable"), axis=1))

    @cached_property
    def pred(self) -> npt.NDArray[np.int32]:
        """The most probable class of each item, as a class number; -1 if there is no model."""
        if not self.trained:
            return np.full(len(self), -1, dtype=np.int32)
        return np.asarray(self.class_ids, dtype=np.int32)[self.ranked[:, 0]]

    @cached_property
    def confidence(self) -> Floats:
        """How probable the most probable class is."""
        if not self.trained:
            return np.zeros(len(self), dtype=np.float32)
        return np.asarray(self.f[np.arange(len(self)), self.ranked[:, 0]])

    @cached_property
    def margin(self) -> Floats:
        """How much more probable the first class is than the second."""
        if self.f.shape[1] < 2:
            return self.confidence
        return np.asarray(self.confidence - self.f[np.arange(len(self)), self.ranked[:, 1]])

    @cached_property
    def entropy(self) -> Floats:
        """- SUM_c f_c log f_c, as a share of its maximum."""
        safe = np.clip(self.f, 1e-12, 1.0)
        return np.asarray((-(safe * np.log(safe)).sum(axis=1) / np.log(max(2, self.f.shape[1]))).astype(np.float32))

    def spread(self, seed: int) -> Floats:
        """The place of each item in an order of the most different first; the last such order is kept."""
        if self._spread.get("seed") != seed:
            self._spread.update(seed=seed, places=farthest_first(self.z, seed))
        return np.asarray(self._spread["places"])

    def is_up_to_date(self, final: Mapping[int, int]) -> bool:
        """Whether its columns still are those of the classes that were merged into others, and of no more."""
        pairs = zip(self.words["class_ids"], self.columns, strict=True)
        return all(final.get(given, given) == self.class_ids[column] for given, column in pairs)

    def in_classes(self, f: npt.NDArray[Any]) -> Floats:
        """New probabilities of the same model (n, C as fitted), with the columns of this."""
        return _summed(np.asarray(f), self.columns, len(self.class_ids))

    def top(self, item: int, k: int) -> list[tuple[int, float]]:
        """The k most probable classes of an item, with their probabilities."""
        return [(self.class_ids[c], round(float(self.f[item, c]), 5)) for c in self.ranked[item, :k]]


def farthest_first(z: Floats, seed: int) -> Floats:
    """The place of each item when the next one is always the one farthest from all before it; the rest in random order.

    Looked for among a random few thousand, which is as good for a person and takes no time.
    """
    shuffled = np.random.default_rng(seed).permutation(len(z))
    some = shuffled[:SPREAD_OVER]
    near = np.asarray(z[np.sort(some)], dtype=np.float32)[np.argsort(np.argsort(some))]
    places = np.empty(len(z), dtype=np.float32)
    places[shuffled] = np.arange(len(z)) + SPREAD
    centre = near - near.mean(axis=0)
    distance = (centre**2).sum(axis=1)
    squares = (near**2).sum(axis=1)
    for place in range(min(SPREAD, len(some))):
        farthest = int(distance.argmax())
        places[some[farthest]] = place
        own = np.maximum(squares - 2.0 * (near @ near[farthest]) + squares[farthest], 0.0)
        distance = own if place == 0 else np.minimum(distance, own)
        distance[farthest] = -1.0
    return places


def write_predictions(folder: Path, f: Floats, z: Floats, words: Mapping[str, Any]) -> None:
    """Puts the answers of a model into its folder; the words last, so that they speak of whole arrays."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, array in (("f", f), ("z", z)):
        atomic_write_array(folder / f"{name}.npy", np.ascontiguousarray(array, dtype=np.float32), ModelFileError)
    blob = json.dumps({"format": PREDICTIONS_FORMAT, **words}, indent=2) + "\n"
    atomic_write(folder / "predictions.json", blob.encode(), ModelFileError)


def read_predictions(folder: Path, version: int, n: int, final: Mapping[int, int]) -> Predictions:
    """The answers of a model; `final` says for each class which one it was merged into."""
    words = read_predictions_manifest(folder)
    try:
        f, z = (np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in "fz")
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"the answers in {folder} cannot be read ({error}). Remove that folder and serve again."
        ) from error
    given = tuple(words["class_ids"])
    if f.shape != (len(f), len(given)) or len(z) != len(f) or len(f) > n:
        raise ModelFileError(f"the answers in {folder} do not fit: {f.shape}, {z.shape}, {len(given)} classes. Remove it.")
    class_ids = tuple(sorted({final.get(c, c) for c in given}))
    columns = tuple(class_ids.index(final.get(c, c)) for c in given)
    if class_ids != given:
        f = _summed(np.asarray(f), columns, len(class_ids))
    f_of_all, z_of_all = _padded(f, n, 1.0 / max(1, len(class_ids))), _padded(z, n, 0.0)
    return Predictions(version, words, class_ids, f_of_all, z_of_all, len(f), columns)


def _summed(f: Floats, columns: tuple[int, ...], n_columns: int) -> Floats:
    """Probabilities with the columns of merged classes added up."""
    merged = np.zeros((len(f), n_columns), dtype=np.float32)
    for column, at in enumerate(columns):
        merged[:, at] += f[:, column]
    return merged


def _padded(array: Floats, n: int, value: float) -> Floats:
    """Items that came later than the model have no answer yet: nothing is known of them."""
    if len(array) == n:
        return array
    return np.concatenate([array, np.full((n - len(array), array.shape[1]), value, dtype=np.float32)])
