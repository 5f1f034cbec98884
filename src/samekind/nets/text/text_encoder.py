"""TextEncoder: a frozen function from strings to vectors, and several text encoders side by side.

encoder = build_text_encoder("use").fitted(texts)   # only TF-IDF learns from the texts; others are returned unchanged
z = encoder(texts)                                  # float32 (n, d)
same = restore_text_encoder("use", encoder.state()) # as a saved model does
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.nets.text.cleaning import CLEANING, MAX_PIECES, PIECE_CHARACTERS, clean_text, cut_text

Floats = npt.NDArray[np.float32]
State = Mapping[str, npt.NDArray[Any]]  # the arrays, by name, from which a fitted encoder is restored
OnTexts = Callable[[int, int], None]  # called with (number of texts done, number of all texts)


class TextEncoder(ABC):
    """Encoder: strings to features (n, d).

    A text is cleaned and cut into pieces; its features are the average over the pieces.
    """

    name: str
    takes_texts = True  # tells `extract_features` to pass a list of strings instead of images

    def __call__(self, texts: Sequence[str]) -> Floats:
        """Return the features (n, d) of the texts."""
        pieces = [cut_text(clean_text(text)) for text in texts]
        z = self.encode([piece for parts in pieces for piece in parts])
        counts = np.array([len(parts) for parts in pieces])
        if (counts == 1).all():
            return z
        sizes = np.array([1.0 + len(piece) for parts in pieces for piece in parts], dtype=np.float32)
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        total = np.add.reduceat(sizes, starts)
        return np.asarray(np.add.reduceat(z * sizes[:, None], starts, axis=0) / total[:, None], dtype=np.float32)

    @abstractmethod
    def encode(self, pieces: Sequence[str]) -> Floats:
        """Return the features (n, d) of cleaned pieces of text."""

    @property
    @abstractmethod
    def fingerprint(self) -> str | None:
        """Return a hash of everything that determines the features; None if that is unknown."""

    def fitted(self, texts: Sequence[str]) -> TextEncoder:
        """Return this encoder, fitted to the texts. A pretrained encoder needs no fit and returns itself."""
        return self

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays that were learned in a fit, by name, for a saved model."""
        return {}


class TextsSideBySide(TextEncoder):
    """Encoder: concatenates the features of several encoders.

    Each part is scaled to length 1, so that all have the same weight.
    """

    def __init__(self, parts: Sequence[TextEncoder]) -> None:
        self.parts = tuple(parts)
        self.name = ",".join(part.name for part in parts)

    def __call__(self, texts: Sequence[str]) -> Floats:
        found = [part(texts) for part in self.parts]
        return np.concatenate([z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12) for z in found], axis=1)

    def encode(self, pieces: Sequence[str]) -> Floats:
        return self(pieces)

    @property
    def fingerprint(self) -> str | None:
        found = [part.fingerprint for part in self.parts]
        known = [one for one in found if one is not None]
        return hash_of("side by side", *known) if len(known) == len(found) else None

    def fitted(self, texts: Sequence[str]) -> TextEncoder:
        return TextsSideBySide([part.fitted(texts) for part in self.parts])

    def state(self) -> dict[str, npt.NDArray[Any]]:
        return {f"{at}.{name}": array for at, part in enumerate(self.parts) for name, array in part.state().items()}


def hash_of(*parts: str | bytes) -> str:
    """Return a hash of texts and bytes, and of the settings that determine how texts are cleaned and cut."""
    digest = hashlib.sha256(f"{CLEANING} {PIECE_CHARACTERS} {MAX_PIECES}\n".encode())
    for part in parts:
        blob = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(blob)}\n".encode() + blob)
    return digest.hexdigest()
