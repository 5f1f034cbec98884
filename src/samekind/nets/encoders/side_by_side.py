"""SideBySide: several encoders whose features are concatenated."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from samekind.nets.encoders.fingerprints import fingerprint_of
from samekind.nets.encoders.frozen_features import Encoder, encode_batch


class SideBySide:
    """Encoder: concatenates the features of several encoders.

    Each part is scaled to length 1, so that all have the same weight.
    """

    def __init__(self, parts: Sequence[Encoder]) -> None:
        self.parts = tuple(parts)
        sides = [side for side in (getattr(part, "side", None) for part in parts) if isinstance(side, int)]
        self.side = max(sides) if sides else None

    def __call__(self, images: Any) -> npt.NDArray[np.float32]:
        found = [encode_batch(part, images) for part in self.parts]
        return np.concatenate([z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12) for z in found], axis=1)

    @property
    def fingerprint(self) -> str | None:
        """Return a hash of all encoders; None if one of them has no hash."""
        digest = hashlib.sha256()
        for part in self.parts:
            fingerprint = fingerprint_of(part)
            if fingerprint is None:
                return None
            layers = repr(part) if isinstance(part, nn.Module) else ""
            digest.update(f"{fingerprint} {layers}\n".encode())
        return digest.hexdigest()
