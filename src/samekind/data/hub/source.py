"""Description of a benchmark dataset: its files with their official checksums, its hosts, and how to read its files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from samekind.errors import DataError

Pixels = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
CHUNK = 1 << 20  # number of bytes read at a time


class Digest(NamedTuple):
    """Size and checksums of a file."""

    size: int
    md5: str
    sha256: str


@dataclass(frozen=True)
class DatasetFile:
    """An official file of a benchmark dataset, with its size and checksums.

    `content` is the SHA-256 of the data in the file, which does not depend on how they are packed; "" if it is not known.
    """

    name: str
    size: int
    md5: str
    sha256: str
    content: str = ""

    @property
    def digest(self) -> Digest:
        """Return the official size and checksums of the file."""
        return Digest(self.size, self.md5, self.sha256)


@dataclass(frozen=True)
class SplitFiles:
    """Files of one split (training, test or extra), its number of images, and how many images each class has.

    `class_counts` is empty if the numbers are not known.
    """

    files: tuple[DatasetFile, ...]
    n_images: int
    class_counts: tuple[int, ...] = ()


@dataclass(frozen=True)
class DatasetSource:
    """A benchmark dataset. It is downloaded to the first of `folders` in the root folder, and found in any of them."""

    name: str
    folders: tuple[str, ...]
    hosts: tuple[str, ...]  # URL prefixes; if one fails, the next is tried
    shape: tuple[int, int, int]  # height, width and channels of an image
    classes: tuple[str, ...]
    train: SplitFiles
    test: SplitFiles
    load_split: LoadSplit
    terms: str
    cite: str
    content_hash: ContentHash | None = None  # function that computes the `content` checksum of a file
    extra: SplitFiles | None = None
    names: DatasetFile | None = None  # file that contains the class names
    archive: DatasetFile | None = None  # archive that contains all files; None: each file is downloaded by itself

    @property
    def needed(self) -> tuple[DatasetFile, ...]:
        """Return the files that the dataset needs."""
        return (*self.train.files, *self.test.files, *((self.names,) if self.names else ()))

    @property
    def optional(self) -> tuple[DatasetFile, ...]:
        """Return the files that are only downloaded with the option `extra`."""
        return self.extra.files if self.extra else ()

    @property
    def download_size(self) -> int:
        """Return the number of bytes of a download, without the optional files."""
        return sum(file.size for file in ((self.archive,) if self.archive else self.needed))


# from (source, split, folder) to images (n, H, W, C) and labels (n,)
LoadSplit = Callable[["DatasetSource", SplitFiles, Path], tuple[Pixels, Integers]]
# from (source, file, path) to the SHA-256 of the content, which does not depend on how it is packed
ContentHash = Callable[["DatasetSource", DatasetFile, Path], str]


# ---------------------------------------------------------------- comparing files on disk


def is_file(path: Path) -> bool:
    """Return whether there is a file at `path`; False if its folder may not be opened."""
    return os.path.isfile(path)


def digest(chunks: Iterable[bytes]) -> Digest:
    """Return the size and checksums of bytes that come in chunks."""
    md5, sha256, size = hashlib.md5(usedforsecurity=False), hashlib.sha256(), 0
    for chunk in chunks:
        md5.update(chunk)
        sha256.update(chunk)
        size += len(chunk)
    return Digest(size, md5.hexdigest(), sha256.hexdigest())


def file_digest(path: Path) -> Digest:
    """Return the size and checksums of a file, which is read in chunks."""
    try:
        with path.open("rb") as file:
            return digest(iter(lambda: file.read(CHUNK), b""))
    except OSError as error:
        raise unreadable(path, error) from error


def describe_difference(found: Digest, expected: Digest) -> str:
    """Return in words how a file differs from the official one."""
    if found.size != expected.size:
        return f"{found.size} bytes instead of {expected.size}"
    return f"sha256 {found.sha256[:12]}… instead of {expected.sha256[:12]}…"


def unreadable(path: Path, error: OSError) -> DataError:
    """Return the DataError for a file that the operating system does not open."""
    return DataError(f"{path} cannot be read ({error.strerror or error}). Check its permissions and the disk.")
