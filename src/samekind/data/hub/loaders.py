"""Benchmark datasets as arrays: read from the downloaded files, and compared with the catalogue. Works without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from samekind.data.hub.catalogue import dataset_folder, find_dataset, require_downloaded
from samekind.data.hub.source import DatasetSource, Integers, Pixels, SplitFiles
from samekind.errors import DataError


@dataclass(frozen=True, eq=False)
class BenchmarkData:
    """Images x (n, H, W, C) and labels y (n,) for training, the same for the test, and the names of the classes.

    `x_extra` and `y_extra` are additional training images, which only SVHN has.
    """

    name: str
    x: Pixels
    y: Integers
    x_test: Pixels
    y_test: Integers
    classes: tuple[str, ...]
    x_extra: Pixels | None = None
    y_extra: Integers | None = None


def load_dataset(name: str, root: str | Path | None = None, *, extra: bool = False) -> BenchmarkData:
    """Return the dataset `name` as arrays. With `extra`, the 531,131 additional images of SVHN are loaded too."""
    source = find_dataset(name)
    require_downloaded(name, root, extra=extra)
    folder = dataset_folder(source, root)
    x, y = _load_split(source, source.train, folder)
    x_test, y_test = _load_split(source, source.test, folder)
    x_extra, y_extra = _load_split(source, source.extra, folder) if extra and source.extra else (None, None)
    return BenchmarkData(name, x, y, x_test, y_test, source.classes, x_extra, y_extra)


def _load_split(source: DatasetSource, split: SplitFiles, folder: Path) -> tuple[Pixels, Integers]:
    """Return the images and labels of one split, after comparing their numbers with the catalogue."""
    x, y = source.load_split(source, split, folder)
    problem = _difference_from_catalogue(source, split, x, y)
    if problem:
        raise DataError(
            f"{folder} holds {problem} (in {split.files[0].name}{' …' * (len(split.files) > 1)}). "
            f"Find the damaged file with: samekind data verify {source.name}"
        )
    return x, y


def _difference_from_catalogue(source: DatasetSource, split: SplitFiles, x: Pixels, y: Integers) -> str:
    """Return in words how the arrays differ from the catalogue; an empty string if they do not."""
    if x.shape != (split.n_images, *source.shape) or y.shape != (split.n_images,):
        return f"images {x.shape} and labels {y.shape}; expected {(split.n_images, *source.shape)} and {(split.n_images,)}"
    if y.min() < 0 or y.max() >= len(source.classes):
        return f"labels from {y.min()} to {y.max()}; expected 0 to {len(source.classes) - 1}"
    counts = np.bincount(y, minlength=len(source.classes)).tolist()
    for name, found, expected in zip(source.classes, counts, split.class_counts or counts, strict=True):
        if found != expected:
            return f"{found} images of class {name!r}; expected {expected}"
    return ""
