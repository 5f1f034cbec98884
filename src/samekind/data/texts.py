"""Texts as X: a list, tuple, array or series of strings. A missing entry counts as an empty text."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from samekind.errors import DataError


class TextArray(np.ndarray[Any, np.dtype[np.object_]]):
    """Array (n,) of strings that are texts, whatever they look like: "cats/1.jpg" in it does not mean an image file."""


def text_array(texts: Iterable[str]) -> TextArray:
    """Return strings as a TextArray, which marks them as texts."""
    # the None at the end makes an empty list an array of objects too
    return np.array([*texts, None], dtype=object)[:-1].view(TextArray)


def parse_texts(X: Any) -> list[str] | None:
    """Return the texts in a list or one-dimensional array of strings; None if X contains anything else."""
    if isinstance(X, str):
        raise DataError(f"X is one string ({X[:60]!r}); expected a list of texts, or of image paths. Pass [X].")
    if not (isinstance(X, Sequence) or len(getattr(X, "shape", ())) == 1) or hasattr(X, "tocsr") or isinstance(X, bytes):
        return None
    if len(X) == 0:
        return None
    missing = getattr(sys.modules.get("pandas"), "NA", None)
    texts = ["" if _is_missing(one, missing) else one for one in X]
    if not all(isinstance(text, str) for text in texts) or not any(isinstance(one, str) for one in X):
        return None
    return [str(text) for text in texts]


def require_texts(X: Any) -> list[str]:
    """Return the texts in X; raise DataError if X contains anything else."""
    texts = parse_texts(X)
    if texts is None:
        raise DataError(
            f"X is {_described(X)}, and the model was fitted on texts. Pass a list of strings, such as ['one text', 'another']."
        )
    return texts


def _is_missing(one: Any, missing: Any) -> bool:
    return one is None or one is missing or (isinstance(one, float) and one != one)


def _described(X: Any) -> str:
    shape = getattr(X, "shape", None)
    return f"a {type(X).__name__}" + (f" of shape {tuple(shape)}" if shape is not None else f" of {len(X)}")
