"""Images given as a list of paths: decoded once into a cache, or a block at a time while they are needed."""

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
    """The paths in a list or a one-dimensional array of them; None if X holds anything else."""
    if isinstance(X, (str, os.PathLike)):
        raise DataError(f"X is one path ({os.fspath(X)!r}); expected a list of the paths of images. Pass [path].")
    one_dimensional = getattr(X, "ndim", 0) == 1 and not hasattr(X, "tocsr")
    if not (isinstance(X, Sequence) or one_dimensional) or len(X) == 0:
        return None
    if not all(isinstance(one, (str, os.PathLike)) for one in X):
        return None
    paths = [Path(one) for one in X]
    if not any(path.suffix.lower() in SUFFIXES or path.is_file() for path in paths):
        raise DataError(
            f"X is a list of {len(paths)} words, the first {str(paths[0])!r}, and none is the path of an image. "
            "Expected numbers, images, or paths such as photos/1.jpg."
        )
    return paths


@dataclass(frozen=True)
class LazyImages:
    """Images that are decoded when they are asked for: slices are bytes (n, H, W, C)."""

    files: Sequence[Path]
    shape: Shape  # (H, W, C)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, which: slice) -> Pixels:
        files = self.files[which]
        return decode_images(files, fixed_shape(self.shape), on_failure=partial(_refuse, files)).x


def read_path_list(files: Sequence[Path], wish: TargetShape, cache: Path) -> Pixels:
    """Bytes (n, H, W, C), decoded into `cache` and opened as a memory map. An image that cannot be read is an error."""
    refuse = partial(_refuse, files)
    rows = cached_images(files, wish, cache, source=_name_of(files), on_failure=refuse)
    for i, reason in rows.failed.items():  # read before by somebody who left them out
        refuse(i, reason)
    return rows.x


def _refuse(files: Sequence[Path], i: int, reason: str) -> None:
    raise DataError(
        f"{Skipped(str(files[i]), reason)}. Mend it, or leave it and its label out, as `samekind fit` does with a folder."
    )


def _name_of(files: Sequence[Path]) -> str:
    """A name of the list, the same for the same paths."""
    hashed = hashlib.sha256("\0".join(os.path.abspath(file) for file in files).encode("utf-8", "surrogateescape"))
    return f"the list of {len(files)} images that begins with {files[0]} ({hashed.hexdigest()[:16]})"
