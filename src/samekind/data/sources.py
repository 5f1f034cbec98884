"""Data sets by name, from files that are already in place: load() reads one, verify() looks whether its files are right.

Needs numpy, and scipy for SVHN; no torch. `root` is the folder of all sets: the argument, else $SAMEKIND_DATA, else "data".
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shlex
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from samekind.data.catalogue import SETS, Digest, File, Source, Split, find
from samekind.data.pickles import read_pickle
from samekind.errors import DataError, SettingError

Pixels = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]

OK, REPACKED, OPTIONAL, MISSING, DAMAGED = "ok", "repacked", "optional", "missing", "damaged"
BLOCK = 1 << 20


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images x (n, H, W, C) and labels y (n,), those for the test, and what each label stands for."""

    name: str
    x: Pixels
    y: Integers
    x_test: Pixels
    y_test: Integers
    classes: tuple[str, ...]
    x_extra: Pixels | None = None
    y_extra: Integers | None = None


class Finding(NamedTuple):
    """What verify() has to say about one file: state is ok, repacked, optional, missing or damaged."""

    file: str
    state: str
    reason: str


class Line(NamedTuple):
    """What there is to know about a set before it is fetched."""

    name: str
    images: str  # for training + for the test
    shape: str
    classes: str
    download: str
    in_place: str


def load(name: str, root: str | Path | None = None, *, extra: bool = False) -> Dataset:
    """The data set `name`; `extra` adds the 531,131 further images of SVHN."""
    source = find(name)
    require_in_place(name, root, extra=extra)
    folder = folder_of(source, root)
    x, y = _split(source, source.train, folder)
    x_test, y_test = _split(source, source.test, folder)
    x_extra, y_extra = _split(source, source.extra, folder) if extra and source.extra else (None, None)
    return Dataset(name, x, y, x_test, y_test, source.classes, x_extra, y_extra)


def require_in_place(name: str, root: str | Path | None = None, *, extra: bool = False) -> None:
    """Refuses a set of which files are missing, and says how to fetch them; does not open any."""
    source = find(name)
    require_extra(source, extra)
    splits = [source.train, source.test, *([source.extra] if extra and source.extra else [])]
    folder = folder_of(source, root)
    missing = [file.name for split in splits for file in split.files if not is_file(folder / file.name)]
    if missing:
        more = f" and {len(missing) - 1} more file(s) are" if len(missing) > 1 else " is"
        raise DataError(f"{name} is not in {folder}: {missing[0]}{more} missing. Run: {fetch_command(source, root, extra)}")


def verify(name: str, root: str | Path | None = None) -> list[Finding]:
    """One finding for each file of the set, read from the disk only.

    A file with the official bytes is ok. One with other bytes but the official pixels and labels was only packed again, by
    another gzip or another pickle, and is fit for use. Anything else is damaged.
    """
    source = find(name)
    folder = folder_of(source, root)
    return [_finding(source, file, folder) for file in (*source.needed, *source.optional)]


def require_sound(name: str, findings: Iterable[Finding], root: str | Path | None = None) -> None:
    """One sentence if a finding is bad."""
    findings = list(findings)
    counts = {state: sum(found.state == state for found in findings) for state in (DAMAGED, MISSING)}
    bad = [f"{count} {state}" for state, count in counts.items() if count]
    if bad:
        source = find(name)
        needs_extra = any(found.state == DAMAGED and found.file in {f.name for f in source.optional} for found in findings)
        raise DataError(
            f"{name} in {folder_of(source, root)} is not whole: of {len(findings)} files {' and '.join(bad)}. "
            f"Run: {fetch_command(source, root, needs_extra)}"
        )


def overview(root: str | Path | None = None) -> list[Line]:
    """A line for each set. Whether it is in place is judged by the names of its files only."""
    return [_line(source, folder_of(source, root)) for source in SETS.values()]


def root_of(root: str | Path | None = None) -> Path:
    """The folder of all data sets."""
    return Path(root if root is not None else os.environ.get("SAMEKIND_DATA") or "data").expanduser()


def folder_of(source: Source, root: str | Path | None = None) -> Path:
    """Where the set is, or where it would be put."""
    folders = [root_of(root) / name for name in source.folders]
    files = (*source.needed, *source.optional)
    return next((folder for folder in folders if any(is_file(folder / file.name) for file in files)), folders[0])


def fetch_command(source: Source, root: str | Path | None = None, extra: bool = False) -> str:
    """The command that puts the set into place."""
    where = f" --root {shlex.quote(str(root))}" if root is not None else ""
    return f"samekind data fetch {source.name}{where}{' --extra' if extra else ''}"


def is_file(path: Path) -> bool:
    """Whether there is a file; a folder that may not be looked into holds none."""
    return os.path.isfile(path)


def require_extra(source: Source, extra: bool) -> None:
    """Refuses `extra` where there is none."""
    if extra and source.extra is None:
        having = ", ".join(other.name for other in SETS.values() if other.extra)
        raise SettingError(f"{source.name} has no extra images; only {having} has. Leave extra out.")


def digest_of(path: Path) -> Digest:
    """Size and checksums of a file, read in blocks."""
    try:
        with path.open("rb") as file:
            return digest(iter(lambda: file.read(BLOCK), b""))
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"{path} cannot be read ({error.strerror or error}). Look at its permissions and the disk.")


def digest(blocks: Iterable[bytes]) -> Digest:
    """Size and checksums of bytes."""
    md5, sha256, size = hashlib.md5(usedforsecurity=False), hashlib.sha256(), 0
    for block in blocks:
        md5.update(block)
        sha256.update(block)
        size += len(block)
    return Digest(size, md5.hexdigest(), sha256.hexdigest())


def difference(found: Digest, expected: Digest) -> str:
    """In what a file differs from the official one."""
    if found.size != expected.size:
        return f"{found.size} bytes instead of {expected.size}"
    return f"sha256 {found.sha256[:12]}… instead of {expected.sha256[:12]}…"


# verify


def _finding(source: Source, file: File, folder: Path) -> Finding:
    path = folder / file.name
    if not is_file(path) and file in source.optional:
        return Finding(file.name, OPTIONAL, f"not in place; {_size(file.size)} more with --extra")
    if not is_file(path):
        return Finding(file.name, MISSING, "not in place")
    try:
        found = digest_of(path)
        if found == file.digest:
            return Finding(file.name, OK, "the official file")
        other = difference(found, file.digest)
        if not file.content:
            return Finding(file.name, DAMAGED, other)
        if _content(source, file, path) == file.content:
            return Finding(file.name, REPACKED, "other bytes than the official file, the same content")
        return Finding(file.name, DAMAGED, f"other content than the official file ({other})")
    except DataError as error:
        return Finding(file.name, DAMAGED, str(error).removeprefix(f"{path} ").removesuffix(" Get a fresh copy of it."))


def _content(source: Source, file: File, path: Path) -> str:
    """The sha256 of what is inside, as the catalogue defines it for this kind of set."""
    if source.kind == "idx":
        return hashlib.sha256(_unzipped(path, _unzipped_size(source, file))).hexdigest()
    if file == source.names:
        return hashlib.sha256("\n".join(_names(path, file)).encode()).hexdigest()
    pixels, labels = _cifar_batch(path, file)
    return hashlib.sha256(pixels.tobytes() + labels.astype(np.uint8).tobytes()).hexdigest()


def _line(source: Source, folder: Path) -> Line:
    there = sum(is_file(folder / file.name) for file in source.needed)
    share = f"{there} of {len(source.needed)} files"
    return Line(
        source.name,
        f"{source.train.rows:,} + {source.test.rows:,}",
        "x".join(map(str, source.shape)),
        str(len(source.classes)),
        _size(source.download_size),
        "yes" if there == len(source.needed) else share if there else "no",
    )


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


# load


def _split(source: Source, split: Split, folder: Path) -> tuple[Pixels, Integers]:
    """The images and labels of one part of a set, checked against what the catalogue says of it."""
    x, y = READERS[source.kind](source, split, folder)
    wrong = _wrong(source, split, x, y)
    if wrong:
        raise DataError(
            f"{folder} holds {wrong} (in {split.files[0].name}{' …' * (len(split.files) > 1)}). "
            f"Look closer with: samekind data verify {source.name}"
        )
    return x, y


def _wrong(source: Source, split: Split, x: Pixels, y: Integers) -> str:
    """What differs from the catalogue, if anything does."""
    if x.shape != (split.rows, *source.shape) or y.shape != (split.rows,):
        return f"images {x.shape} and labels {y.shape}; expected {(split.rows, *source.shape)} and {(split.rows,)}"
    if y.min() < 0 or y.max() >= len(source.classes):
        return f"labels from {y.min()} to {y.max()}; expected 0 to {len(source.classes) - 1}"
    counts = np.bincount(y, minlength=len(source.classes)).tolist()
    for name, found, expected in zip(source.classes, counts, split.counts or counts, strict=True):
        if found != expected:
            return f"{found} images of class {name!r}; expected {expected}"
    return ""


def _read_cifar(source: Source, split: Split, folder: Path) -> tuple[Pixels, Integers]:
    """Rows of red, green and blue planes become images with channels last."""
    height, width, channels = source.shape
    x, y = np.empty((split.rows, *source.shape), np.uint8), np.empty(split.rows, np.int64)
    at = 0
    for file in split.files:
        pixels, labels = _cifar_batch(folder / file.name, file)
        if pixels.shape[1] != x[0].size or at + len(pixels) > split.rows:
            raise DataError(
                f"{folder / file.name} holds rows {pixels.shape}; expected {split.rows - at} or fewer of {x[0].size} numbers. "
                "Get a fresh copy of it."
            )
        x[at : at + len(pixels)] = pixels.reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
        y[at : at + len(pixels)] = labels
        at += len(pixels)
    return x[:at], y[:at]


def _cifar_batch(path: Path, file: File) -> tuple[Pixels, Integers]:
    """The rows (n, pixels) and labels (n,) of one file. CIFAR-100 has two kinds of labels; the fine ones are taken."""
    batch = read_pickle(_bounded(path, file), str(path))
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


def _names(path: Path, file: File) -> list[str]:
    words = read_pickle(_bounded(path, file), str(path))
    names = words.get("fine_label_names", words.get("label_names"))
    if not (isinstance(names, list) and all(isinstance(name, (str, bytes)) for name in names)):
        raise DataError(f"{path} holds no list of names. Get a fresh copy of it.")
    return [name.decode("latin-1") if isinstance(name, bytes) else name for name in names]


def _bounded(path: Path, file: File) -> bytes:
    """The bytes of a file, unless it is far larger than it can be."""
    most = 4 * file.size + BLOCK
    try:
        with path.open("rb") as stream:
            blob = stream.read(most + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(blob) > most:
        raise DataError(f"{path} is larger than {most} bytes; expected about {file.size}. Get a fresh copy of it.")
    return blob


def _read_idx(source: Source, split: Split, folder: Path) -> tuple[Pixels, Integers]:
    """A file of images and a file of labels, each a header of numbers and then one byte for each value."""
    images, labels = split.files
    height, width, _ = source.shape
    x = _idx(folder / images.name, (split.rows, height, width))
    y = _idx(folder / labels.name, (split.rows,))
    return x[..., None], y.astype(np.int64)


def _idx(path: Path, shape: tuple[int, ...]) -> Pixels:
    blob = _unzipped(path, _idx_size(shape))
    header = struct.pack(f">{1 + len(shape)}I", 0x0800 + len(shape), *shape)
    if not blob.startswith(header) or len(blob) != _idx_size(shape):
        raise DataError(f"{path} is no idx file of shape {shape}. Get a fresh copy of it.")
    return np.frombuffer(blob, np.uint8, offset=len(header)).reshape(shape).copy()


def _idx_size(shape: tuple[int, ...]) -> int:
    return 4 * (1 + len(shape)) + int(np.prod(shape))


def _unzipped_size(source: Source, file: File) -> int:
    split = source.train if file in source.train.files else source.test
    return _idx_size((split.rows, *source.shape[:2]) if file == split.files[0] else (split.rows,))


def _unzipped(path: Path, size: int) -> bytes:
    """What is inside a .gz file, which must be `size` bytes; no more than that is unpacked."""
    try:
        with gzip.open(path) as file:
            blob = file.read(size + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be unzipped ({error}). Get a fresh copy of it.") from error
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(blob) != size:
        found = f"more than {size}" if len(blob) > size else f"only {len(blob)}"
        raise DataError(f"{path} holds {found} bytes unzipped; expected {size}. Get a fresh copy of it.")
    return blob


def _read_mat(source: Source, split: Split, folder: Path) -> tuple[Pixels, Integers]:
    """MATLAB's X (H, W, C, n) and y (n, 1), where label 10 is the digit 0."""
    from scipy.io import loadmat

    (file,) = split.files
    path = folder / file.name
    found = digest_of(path)
    if found != file.digest:  # scipy's reader may crash on bytes that make no sense, so it never sees any
        raise DataError(f"{path} is not the official file: {difference(found, file.digest)}. Get a fresh copy of it.")
    tables = loadmat(path, variable_names=["X", "y"])
    return np.ascontiguousarray(np.moveaxis(tables["X"], 3, 0)), tables["y"].ravel().astype(np.int64) % 10


READERS: dict[str, Callable[[Source, Split, Path], tuple[Any, Any]]] = {
    "cifar": _read_cifar,
    "idx": _read_idx,
    "mat": _read_mat,
}
