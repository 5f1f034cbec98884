"""Benchmark datasets by name, read from downloaded files as arrays: CIFAR pickles, MNIST idx files, SVHN MATLAB files.

Needs numpy, and scipy for SVHN; no torch.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.data.hub.catalogue import DatasetFile, DatasetSource, SplitFiles, find_dataset
from samekind.data.hub.local_files import (
    CHUNK,
    dataset_folder,
    describe_difference,
    file_digest,
    require_downloaded,
    unreadable,
)
from samekind.data.hub.pickles import read_pickle
from samekind.errors import DataError

Pixels = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BenchmarkData:
    """Images x (n, H, W, C) and labels y (n,) for training, the same for the test, and the class names."""

    name: str
    x: Pixels
    y: Integers
    x_test: Pixels
    y_test: Integers
    classes: tuple[str, ...]
    x_extra: Pixels | None = None
    y_extra: Integers | None = None


def load_dataset(name: str, root: str | Path | None = None, *, extra: bool = False) -> BenchmarkData:
    """Return the dataset `name` as arrays; `extra` adds the 531,131 further images of SVHN."""
    source = find_dataset(name)
    require_downloaded(name, root, extra=extra)
    folder = dataset_folder(source, root)
    x, y = _load_split(source, source.train, folder)
    x_test, y_test = _load_split(source, source.test, folder)
    x_extra, y_extra = _load_split(source, source.extra, folder) if extra and source.extra else (None, None)
    return BenchmarkData(name, x, y, x_test, y_test, source.classes, x_extra, y_extra)


def _load_split(source: DatasetSource, split: SplitFiles, folder: Path) -> tuple[Pixels, Integers]:
    """Return the images and labels of one split, checked against the catalogue."""
    x, y = LOADERS[source.kind](source, split, folder)
    problem = _difference_from_catalogue(source, split, x, y)
    if problem:
        raise DataError(
            f"{folder} holds {problem} (in {split.files[0].name}{' …' * (len(split.files) > 1)}). "
            f"Find the damaged file with: samekind data verify {source.name}"
        )
    return x, y


def _difference_from_catalogue(source: DatasetSource, split: SplitFiles, x: Pixels, y: Integers) -> str:
    """Return what differs from the catalogue, or an empty string."""
    if x.shape != (split.n_images, *source.shape) or y.shape != (split.n_images,):
        return f"images {x.shape} and labels {y.shape}; expected {(split.n_images, *source.shape)} and {(split.n_images,)}"
    if y.min() < 0 or y.max() >= len(source.classes):
        return f"labels from {y.min()} to {y.max()}; expected 0 to {len(source.classes) - 1}"
    counts = np.bincount(y, minlength=len(source.classes)).tolist()
    for name, found, expected in zip(source.classes, counts, split.class_counts or counts, strict=True):
        if found != expected:
            return f"{found} images of class {name!r}; expected {expected}"
    return ""


# ---------------------------------------------------------------- CIFAR


def _load_cifar(source: DatasetSource, split: SplitFiles, folder: Path) -> tuple[Pixels, Integers]:
    height, width, channels = source.shape
    x, y = np.empty((split.n_images, *source.shape), np.uint8), np.empty(split.n_images, np.int64)
    at = 0
    for file in split.files:
        pixels, labels = read_cifar_batch(folder / file.name, file)
        if pixels.shape[1] != x[0].size or at + len(pixels) > split.n_images:
            raise DataError(
                f"{folder / file.name} holds an array {pixels.shape}; expected {split.n_images - at} or fewer rows "
                f"of {x[0].size} numbers. Get a fresh copy of it."
            )
        # a row holds the red, the green and the blue plane one after the other
        x[at : at + len(pixels)] = pixels.reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
        y[at : at + len(pixels)] = labels
        at += len(pixels)
    return x[:at], y[:at]


def read_cifar_batch(path: Path, file: DatasetFile) -> tuple[Pixels, Integers]:
    """Return the pixels (n, C * H * W) and labels (n,) of one file; of CIFAR-100 the fine labels."""
    batch = read_pickle(_read_bounded(path, file), str(path))
    pixels, labels = batch.get("data"), batch.get("fine_labels", batch.get("labels"))
    if not (isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.ndim == 2):
        raise DataError(f"{path} holds no table 'data' of pixels from 0 to 255. Get a fresh copy of it.")
    if isinstance(labels, np.ndarray):
        labels = labels.ravel().tolist()
    if not (isinstance(labels, list) and all(isinstance(y, int) and 0 <= y < 256 for y in labels)):
        raise DataError(f"{path} holds no list of labels from 0 to 255. Get a fresh copy of it.")
    if len(labels) != len(pixels):
        raise DataError(f"{path} holds {len(pixels)} images and {len(labels)} labels. Get a fresh copy of it.")
    return pixels, np.array(labels, np.int64)


def read_cifar_class_names(path: Path, file: DatasetFile) -> list[str]:
    """Return the class names of a CIFAR metadata file."""
    metadata = read_pickle(_read_bounded(path, file), str(path))
    names = metadata.get("fine_label_names", metadata.get("label_names"))
    if not (isinstance(names, list) and all(isinstance(name, (str, bytes)) for name in names)):
        raise DataError(f"{path} holds no list of names. Get a fresh copy of it.")
    return [name.decode("latin-1") if isinstance(name, bytes) else name for name in names]


def _read_bounded(path: Path, file: DatasetFile) -> bytes:
    """Return the bytes of a file; refuse one that is far larger than the official file."""
    limit = 4 * file.size + CHUNK
    try:
        with path.open("rb") as stream:
            blob = stream.read(limit + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(blob) > limit:
        raise DataError(f"{path} is larger than {limit} bytes; expected about {file.size}. Get a fresh copy of it.")
    return blob


# ---------------------------------------------------------------- MNIST and Fashion-MNIST


def _load_idx(source: DatasetSource, split: SplitFiles, folder: Path) -> tuple[Pixels, Integers]:
    images, labels = split.files
    height, width, _ = source.shape
    x = _read_idx(folder / images.name, (split.n_images, height, width))
    y = _read_idx(folder / labels.name, (split.n_images,))
    return x[..., None], y.astype(np.int64)


def _read_idx(path: Path, shape: tuple[int, ...]) -> Pixels:
    """Return the array of an idx file: a header with the shape, then one byte for each value."""
    blob = gunzip(path, _idx_size(shape))
    header = struct.pack(f">{1 + len(shape)}I", 0x0800 + len(shape), *shape)
    if not blob.startswith(header) or len(blob) != _idx_size(shape):
        raise DataError(f"{path} is no idx file of shape {shape}. Get a fresh copy of it.")
    return np.frombuffer(blob, np.uint8, offset=len(header)).reshape(shape).copy()


def _idx_size(shape: tuple[int, ...]) -> int:
    return 4 * (1 + len(shape)) + int(np.prod(shape))


def idx_file_size(source: DatasetSource, file: DatasetFile) -> int:
    """Return the size in bytes of an unzipped idx file of this dataset."""
    split = source.train if file in source.train.files else source.test
    return _idx_size((split.n_images, *source.shape[:2]) if file == split.files[0] else (split.n_images,))


def gunzip(path: Path, size: int) -> bytes:
    """Return the content of a .gz file, which must have `size` bytes; unpack no more than that."""
    try:
        with gzip.open(path) as file:
            blob = file.read(size + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be unzipped ({error}). Get a fresh copy of it.") from error
    except OSError as error:
        raise unreadable(path, error) from error
    if len(blob) != size:
        found = f"more than {size}" if len(blob) > size else f"only {len(blob)}"
        raise DataError(f"{path} holds {found} bytes unzipped; expected {size}. Get a fresh copy of it.")
    return blob


# ---------------------------------------------------------------- SVHN


def _load_mat(source: DatasetSource, split: SplitFiles, folder: Path) -> tuple[Pixels, Integers]:
    """Return the images and labels of a MATLAB file: X (H, W, C, n) and y (n, 1), where label 10 is the digit 0."""
    from scipy.io import loadmat

    (file,) = split.files
    path = folder / file.name
    found = file_digest(path)
    if found != file.digest:  # scipy's reader may crash on malformed bytes, so it only gets the official ones
        raise DataError(f"{path} is not the official file: {describe_difference(found, file.digest)}. Get a fresh copy of it.")
    arrays = loadmat(path, variable_names=["X", "y"])
    return np.ascontiguousarray(np.moveaxis(arrays["X"], 3, 0)), arrays["y"].ravel().astype(np.int64) % 10


LOADERS: dict[str, Callable[[DatasetSource, SplitFiles, Path], tuple[Any, Any]]] = {
    "cifar": _load_cifar,
    "idx": _load_idx,
    "mat": _load_mat,
}
