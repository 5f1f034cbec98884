"""Path list: images given as a list of paths, decoded into a cache or on demand."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from samekind.data.cache import cached_images, decode_images
from samekind.data.readers.image_decoder import SUFFIXES, Pixels
from samekind.data.readers.reader import Skipped
from samekind.data.target_shape import Shape, TargetShape, fixed_shape
from samekind.errors import DataError


def parse_path_list(X: Any) -> list[Path] | None:
    """Return the paths in a list or one-dimensional array, or None if X holds anything else."""
    if isinstance(X, (str, os.PathLike)):
        raise DataError(f"X is one path ({os.fspath(X)!r}); expected a list of image paths. Pass [path].")
    one_dimensional = getattr(X, "ndim", 0) == 1 and not hasattr(X, "tocsr")
    if not (isinstance(X, Sequence) or one_dimensional) or len(X) == 0:
        return None
    if not all(isinstance(one, (str, os.PathLike)) for one in X):
        return None
    paths = [Path(one) for one in X]
    if not any(path.suffix.lower() in SUFFIXES or path.is_file() for path in paths):
        raise DataError(
            f"X is a list of {len(paths)} strings, the first {str(paths[0])!r}, and none is the path of an image. "
            "Expected numbers, images, or paths such as photos/1.jpg."
        )
    return paths


@dataclass(frozen=True)
class LazyImages:
    """Images that are decoded on access: a slice is a uint8 array (n, H, W, C)."""

    files: Sequence[Path]
    shape: Shape  # (H, W, C)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, which: slice) -> Pixels:
        files = self.files[which]
        return decode_images(files, fixed_shape(self.shape), on_failure=partial(_refuse, files)).x


def read_path_list(files: Sequence[Path], target: TargetShape, cache: Path) -> Pixels:
    """Return images as uint8 (n, H, W, C), a memory map in `cache`; raise DataError if a file cannot be decoded."""
    refuse = partial(_refuse, files)
    images = cached_images(files, target, cache, source=_list_name(files), on_failure=refuse)
    # unreadable images are only recorded here if the cache was written by a call that skips them
    for i, reason in images.failed.items():
        refuse(i, reason)
    return images.x


def _refuse(files: Sequence[Path], i: int, reason: str) -> None:
    raise DataError(
        f"{Skipped(str(files[i]), reason)}. Repair it, or remove it and its label; `samekind fit` skips such files."
    )


def _list_name(files: Sequence[Path]) -> str:
    """Return a name for the list of files that depends only on their paths."""
    digest = hashlib.sha256("\0".join(os.path.abspath(file) for file in files).encode("utf-8", "surrogateescape"))
    return f"the list of {len(files)} images that begins with {files[0]} ({digest.hexdigest()[:16]})"
