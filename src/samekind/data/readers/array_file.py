"""Reader of numpy arrays: .npy files, and .npz files with X and y. Pickled objects are refused, because they can run code."""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from samekind.data.readers.label_file import clean_labels, label_array, naming_by_row, read_label_file
from samekind.data.readers.reader import Encoding, Objects, Reader, UserData, require_regular_file, shorten
from samekind.errors import DataError, LabelError
from samekind.image_layout import to_channels_last

Array = npt.NDArray[Any]
SUFFIXES = (".npy", ".npz")
X_KEYS = ("X", "x", "images", "data", "features", "embeddings", "arr_0")
Y_KEYS = ("y", "Y", "labels", "label", "target", "targets", "arr_1")
NAME_KEYS = ("names", "ids", "paths")
MAGIC = b"\x93NUMPY"
EMPTY = np.empty(0)
MAX_HEADER = 10_000  # largest number of bytes in the header of an array, as in numpy
READ_HEADER: dict[tuple[int, ...], Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
MAX_RATIO = 100  # an archive is refused if its content is more than this many times as large as the archive itself
# bytes of unpacked content that are always accepted, because arrays of zeros become very small when packed
MAX_UNCHECKED = 1 << 30
MAX_NAMES = 20  # largest number of array names in an error message


def read_array_file(path: Path, labels: Path | None = None, label_column: str | None = None) -> UserData:
    """Return the samples and labels of an array file.

    If `labels` is given, the labels come from this file: a .csv with the columns row,label, or an array file.
    """
    arrays = _load(path)
    x = _check_samples(path, _pick(path, arrays, X_KEYS))
    given_names = next((arrays[name] for name in NAME_KEYS if name in arrays), None)
    names = _sample_names(path, given_names, len(x))
    if labels is not None and labels.suffix.lower() not in SUFFIXES:
        found = read_label_file(labels, naming_by_row(len(x), names if given_names is not None else None), label_column)
        return UserData(x, label_array(len(x), found.labels), names, found.missing, _encoding(x))
    y = _pick(labels, _load(labels), (*Y_KEYS, "X")) if labels else next((arrays[n] for n in Y_KEYS if n in arrays), None)
    return UserData(x, _labels_from_array(labels or path, y, len(x)), names, (), _encoding(x))


def read_array_like(path: Path, encoding: Encoding, labels: Path | None = None) -> UserData:
    """Return the samples of a new array file; raise DataError if their shape or value range differs from the data at fit."""
    data = read_array_file(path, labels)
    found = data.encoding
    # Uint8 images have levels from 0 to 255 and float images from 0 to 1, so a model fitted on one cannot predict the other.
    same_scale = encoding.kind == "vectors" or (encoding.dtype == "uint8") == (found.dtype == "uint8")
    if encoding.shape != found.shape or not same_scale:
        raise DataError(f"the model was fitted on {encoding}, and {path} holds {found}. Pass the same kind of data.")
    return replace(data, encoding=encoding)


def _encoding(x: Array) -> Encoding:
    return Encoding("vectors" if x.ndim == 2 else "images", "array", x.shape[1:], x.dtype.name)


def _load(path: Path) -> dict[str, Array]:
    """Return the arrays in a file, by name. The array of a .npy file gets the name "X", and is memory-mapped."""
    require_regular_file(path)
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                _require_content(file, path.stat().st_size, "the file")
                return {"X": np.load(path, mmap_mode="r", allow_pickle=False)}
            with zipfile.ZipFile(file) as archive:
                return _load_members(archive)
    except MemoryError as error:
        raise DataError(
            f"{path} does not fit into memory. Save X alone as a .npy file, which samekind reads in pieces."
        ) from error
    except (DataError, LabelError):
        raise
    except Exception as error:  # on a damaged file, numpy and zipfile can raise almost any exception
        raise DataError(_cannot_read(path, error)) from error


def _load_members(archive: zipfile.ZipFile) -> dict[str, Array]:
    """Return the arrays in a .npz archive whose names are known, such as X and y.

    If no name is known, return all names in the archive with empty arrays, so that the caller's error message can list the
    names.
    """
    members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
    known = {name: one for name, one in members.items() if name in (*X_KEYS, *Y_KEYS, *NAME_KEYS)}
    unpacked, packed = (sum(getattr(one, part) for one in known.values()) for part in ("file_size", "compress_size"))
    if unpacked > max(MAX_RATIO * packed, MAX_UNCHECKED):
        raise ValueError(f"the {packed} bytes of the archive unpack to {unpacked}, like a zip bomb; save X alone as .npy")
    for name, member in known.items():
        with archive.open(member) as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ValueError(f"the member {name} is not an array")
        with archive.open(member) as file:
            file.read(len(MAGIC))
            _require_content(file, member.file_size, name)
    arrays = {name: _read_member(archive, member) for name, member in known.items()}
    return arrays or dict.fromkeys(list(members)[:MAX_NAMES], EMPTY)


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    with archive.open(member) as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _require_content(file: IO[bytes], n_bytes: int, name: str) -> None:
    """Raise ValueError unless the header of an array is followed by as many bytes as it declares.

    `file` must be positioned after the magic bytes of the format. The check prevents that memory is allocated for a wrong
    header.
    """
    version = tuple(file.read(2))
    width = 2 if version == (1, 0) else 4
    length = int.from_bytes(file.read(width), "little")
    header = file.read(min(length, MAX_HEADER))
    offset = len(MAGIC) + 2 + width + length
    if version not in READ_HEADER or length > MAX_HEADER or len(header) < length:
        raise ValueError(f"{name} does not begin with the header of an array")
    whole = io.BytesIO(length.to_bytes(width, "little") + header)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy warns about files that were written by Python 2
        shape, _, dtype = READ_HEADER[version](whole)
    if dtype.hasobject:
        raise ValueError("the array holds Python objects, which samekind does not load")
    if any(isinstance(side, bool) or side < 0 for side in shape):
        raise ValueError(f"{name} has the impossible shape {shorten(shape)}")
    declared = math.prod(shape) * dtype.itemsize
    if declared > n_bytes - offset:
        raise ValueError(f"{name} has {max(0, n_bytes - offset)} bytes instead of {shorten(declared)}: truncated or damaged")


def _pick(path: Path, arrays: dict[str, Array], names: tuple[str, ...]) -> Array:
    for name in names:
        if name in arrays:
            return arrays[name]
    raise DataError(f"{path} holds {', '.join(arrays) or 'nothing'}; expected X and y (or images and labels).")


def _cannot_read(path: Path, error: Exception) -> str:
    if "pickle" in str(error).lower() or "object" in str(error).lower():
        return (
            f"{path} holds Python objects or no array; objects are not loaded, because loading them can run code. "
            "Save numbers as numbers, and text with .astype(str)."
        )
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"{path} cannot be read ({shorten(reason)}). Expected an array saved by numpy."


def _check_samples(path: Path, x: Array) -> Array:
    """Return vectors (n, d) or images (n, H, W, C); raise DataError for other types and shapes of arrays."""
    if x.dtype.kind not in "buif":
        raise DataError(f"X in {path} is of type {shorten(x.dtype)}; expected numbers.")
    if x.ndim not in (2, 3, 4) or 0 in x.shape:
        raise DataError(f"X in {path} has the shape {x.shape}; expected samples (n, d), (n, H, W) or (n, H, W, C).")
    return to_channels_last(x)


def _sample_names(path: Path, names: Array | None, n_samples: int) -> tuple[str, ...]:
    if names is None:
        return tuple(map(str, range(n_samples)))
    if names.shape != (n_samples,):
        raise DataError(f"{path} has {n_samples} samples and names of shape {names.shape}; expected one name for each sample.")
    return tuple(name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in names.tolist())


def _labels_from_array(path: Path, y: Array | None, n_samples: int) -> Objects:
    if y is None:
        return label_array(n_samples, {})
    flat = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if flat.shape != (n_samples,):
        raise LabelError(
            f"y in {path} has the shape {y.shape}, but X has {n_samples} samples; expected one label for each sample."
        )
    if flat.dtype.kind == "f" and not np.all(np.isnan(flat) | (flat == np.floor(flat))):
        raise LabelError(f"y in {path} holds fractions, like a regression target; expected classes as whole numbers or text.")
    return label_array(n_samples, dict(enumerate(clean_labels(flat.tolist()))))


READER = Reader(SUFFIXES, read_array_file, read_array_like)
