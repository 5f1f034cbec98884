"""Path list: images that are given as a list of paths. They are decoded into a cache, or when they are accessed."""

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
from samekind.data.texts import TextArray
from samekind.errors import DataError

MAX_JUDGED = 1000  # in a longer list, this many evenly spaced strings decide whether the list contains paths
MAX_PATH = 4096  # a string with more characters is no path


def parse_path_list(X: Any) -> list[Path] | None:
    """Return the paths in a list or one-dimensional array; None if X contains anything else, for example texts.

    Strings are paths if at least half of them end like the name of an image, or are the path of a file.
    """
    if isinstance(X, os.PathLike):
        raise DataError(f"X is one path ({os.fspath(X)!r}); expected a list of image paths. Pass [path].")
    if isinstance(X, (str, bytes, TextArray)):
        return None
    one_dimensional = getattr(X, "ndim", 0) == 1 and not hasattr(X, "tocsr")
    if not (isinstance(X, Sequence) or one_dimensional) or len(X) == 0:
        return None
    if not all(isinstance(one, (str, os.PathLike)) for one in X):
        return None
    judged = list(X)[:: -(-len(X) // MAX_JUDGED)]
    n_paths = sum(map(_names_an_image, judged))
    if 2 * n_paths < len(judged):
        if all(isinstance(one, os.PathLike) or _is_bare_path(one) for one in judged):
            raise DataError(
                f"X is a list of {len(X)} paths that do not lead to images; the first is {os.fspath(judged[0])!r}. "
                "Expected paths such as photos/1.jpg. Check the folder."
            )
        return None
    return [Path(one) for one in X]


def _names_an_image(one: Any) -> bool:
    if isinstance(one, str) and (len(one) > MAX_PATH or "\n" in one):
        return False
    return os.path.splitext(one)[1].lower() in SUFFIXES or os.path.isfile(one)


def _is_bare_path(text: str) -> bool:
    """Return whether a text looks like a path such as photos/17: one word with a slash in it, but no web address."""
    return "/" in text and "://" not in text and len(text) <= MAX_PATH and len(text.split()) == 1


@dataclass(frozen=True)
class LazyImages:
    """Images that are decoded when they are accessed. A slice is a uint8 array (n, H, W, C)."""

    files: Sequence[Path]
    shape: Shape  # height, width and channels

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, which: slice) -> Pixels:
        files = self.files[which]
        return decode_images(files, fixed_shape(self.shape), on_failure=partial(_refuse, files)).x


def read_path_list(files: Sequence[Path], target: TargetShape, cache: Path) -> Pixels:
    """Return images as uint8 (n, H, W, C), a memory map in `cache`; raise DataError if a file cannot be decoded."""
    refuse = partial(_refuse, files)
    images = cached_images(files, target, cache, source=_list_name(files), on_failure=refuse)
    # An entry of the cache contains failed images only if a call that skips them has written it. Here they are an error.
    for i, reason in images.failed.items():
        refuse(i, reason)
    return images.x


def _refuse(files: Sequence[Path], i: int, reason: str) -> None:
    raise DataError(
        f"{Skipped(str(files[i]), reason)}. Repair the file, or remove it from X and its label from y; `samekind "
        "fit` skips such files."
    )


def _list_name(files: Sequence[Path]) -> str:
    """Return a name for the list of files. Equal lists of paths have equal names."""
    digest = hashlib.sha256("\0".join(os.path.abspath(file) for file in files).encode("utf-8", "surrogateescape"))
    return f"the list of {len(files)} images that begins with {files[0]} ({digest.hexdigest()[:16]})"
