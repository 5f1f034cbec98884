"""The data of a run by name or path: images and classes to train on, and those to be tested on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.bench.presets.paper_preset import VALIDATION
from samekind.data.hub import toys
from samekind.data.hub.catalogue import DATASETS, require_downloaded
from samekind.data.hub.loaders import load_dataset
from samekind.data.splits import train_test_indices
from samekind.data.user_data import open_data
from samekind.errors import DataError, LabelError, did_you_mean

Array = npt.NDArray[Any]
TOYS: dict[str, Callable[[], tuple[Array, Array]]] = {"moons": toys.moons, "circles": toys.circles, "digits": toys.digits}
NAMES = (*DATASETS, *TOYS)
PLANES = ("moons", "circles")  # judged on the rows of the pool that show no label, as in the figures of the paper
TEST_SEED = 0  # own data gives the same rows to the test in every split


@dataclass(frozen=True, eq=False)
class BenchData:
    """Rows x with classes y, as numbers, and rows for the test; none if the rows without a label are what is judged."""

    x: Array
    y: npt.NDArray[np.int64]
    x_test: Array
    y_test: npt.NDArray[np.int64]
    classes: tuple[str, ...]


def validation_size(data: str, n_rows: int) -> int:
    """Rows that are held out of training while settings are chosen: the paper's number, elsewhere a tenth, 5000 at most."""
    return VALIDATION.get(data, min(5000, n_rows // 10))


def require_data(data: str) -> None:
    """Refuses data that is not in place, before any work is done; says how to fetch it."""
    if data in DATASETS:
        require_downloaded(data)
    elif data not in TOYS and not Path(data).exists():
        raise DataError(f"{data} is neither a path nor a data set; {did_you_mean(data, NAMES)}")


@lru_cache(maxsize=1)  # runs of one table follow each other on the same data
def load_bench_data(data: str, test: float, cache: Path | None = None) -> BenchData:
    """The data by name or path. `test` is the share of own data that is kept for the test; `cache` is for its pictures."""
    require_data(data)
    if data in DATASETS:
        found = load_dataset(data)
        return BenchData(found.x, found.y, found.x_test, found.y_test, found.classes)
    if data in TOYS:
        x, y = TOYS[data]()
        return _held_out(x, y, 0.0 if data in PLANES else test, tuple(str(c) for c in np.unique(y)))
    if cache is not None:
        return _own(Path(data), test, cache)
    with TemporaryDirectory(prefix="samekind-") as passing:
        return _own(Path(data), test, Path(passing))


def _own(path: Path, test: float, cache: Path) -> BenchData:
    own = open_data(path, cache=cache)
    named = np.array([label is not None for label in own.y])
    if not named.any():
        raise LabelError(f"{path} holds no labels; a bench needs them all, to hide most and to judge by the rest")
    classes, y = np.unique(np.array([str(label) for label in own.y[named]]), return_inverse=True)
    return _held_out(np.asarray(own.x)[named], y.astype(np.int64), test, tuple(classes.tolist()))


def _held_out(x: Array, y: npt.NDArray[np.int64], test: float, classes: tuple[str, ...]) -> BenchData:
    train, out = train_test_indices(y, round(test * len(y)), TEST_SEED)
    return BenchData(x[train], y[train], x[out], y[out], classes)
