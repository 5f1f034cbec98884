"""Datasets of a benchmark, by name or path, as training and test samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.bench.presets.paper_preset import VALIDATION_SIZES
from samekind.data.columns.typed_table import TypedTable
from samekind.data.hub import toys
from samekind.data.hub.catalogue import DATASETS, require_downloaded
from samekind.data.hub.loaders import load_dataset
from samekind.data.splits import train_test_indices
from samekind.data.user_data import open_data
from samekind.errors import DataError, LabelError, did_you_mean
from samekind.tabular.table_encoder import TableEncoder

Array = npt.NDArray[Any]
TOYS: dict[str, Callable[[], tuple[Array, Array]]] = {"moons": toys.moons, "circles": toys.circles, "digits": toys.digits}
NAMES = (*DATASETS, *TOYS)
# datasets of points in the plane; as in the paper's figures, the error is that of their unlabelled points
PLANES = ("moons", "circles")
TEST_SEED = 0  # random seed of the division of user data, so that the test set is the same in every split


@dataclass(frozen=True, eq=False)
class BenchData:
    """Training samples x with class indices y, and test samples.

    If there are no test samples, the error is measured on the unlabelled training samples.
    """

    x: Array
    y: npt.NDArray[np.int64]
    x_test: Array
    y_test: npt.NDArray[np.int64]
    classes: tuple[str, ...]


def validation_size(data: str, n_samples: int) -> int:
    """Return the number of validation samples: as in the paper for its datasets, else a tenth of the samples, at most 5000."""
    return VALIDATION_SIZES.get(data, min(5000, n_samples // 10))


def require_data(data: str) -> None:
    """Raise DataError if the dataset does not exist or is not downloaded. The message says which command downloads it."""
    if data in DATASETS:
        require_downloaded(data)
    elif data not in TOYS and not Path(data).exists():
        raise DataError(f"{data} is neither a path nor the name of a dataset; {did_you_mean(data, NAMES)}")


@lru_cache(maxsize=1)  # consecutive runs of a benchmark often use the same dataset
def load_bench_data(data: str, test: float, cache: Path | None = None) -> BenchData:
    """Return a dataset by name or path. Of user data, the fraction `test` becomes the test set.

    `cache` is the folder for decoded images of user data; without it, a temporary folder is used.
    """
    require_data(data)
    if data in DATASETS:
        found = load_dataset(data)
        return BenchData(found.x, found.y, found.x_test, found.y_test, found.classes)
    if data in TOYS:
        x, y = TOYS[data]()
        return _hold_out_test_set(x, y, 0.0 if data in PLANES else test, tuple(str(c) for c in np.unique(y)))
    if cache is not None:
        return _load_user_data(Path(data), test, cache)
    with TemporaryDirectory(prefix="samekind-") as temporary:
        return _load_user_data(Path(data), test, Path(temporary))


def _load_user_data(path: Path, test: float, cache: Path) -> BenchData:
    found = open_data(path, cache=cache)
    labelled = np.array([label is not None for label in found.y])
    if not labelled.any():
        raise LabelError(
            f"{path} has no labels, but a benchmark needs labels to train and to measure errors. Add a label file or "
            "class folders (docs/own_data.md)."
        )
    classes, y = np.unique(np.array([str(label) for label in found.y[labelled]]), return_inverse=True)
    x = TableEncoder.fit(found.x).transform(found.x) if isinstance(found.x, TypedTable) else np.asarray(found.x)
    return _hold_out_test_set(x[labelled], y.astype(np.int64), test, tuple(classes.tolist()))


def _hold_out_test_set(x: Array, y: npt.NDArray[np.int64], test: float, classes: tuple[str, ...]) -> BenchData:
    train, held_out = train_test_indices(y, round(test * len(y)), TEST_SEED)
    return BenchData(x[train], y[train], x[held_out], y[held_out], classes)
