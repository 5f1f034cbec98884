"""Features of new samples, cached or computed when they are read; and the check that an encoder is the same as at the fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.errors import ModelFileError
from samekind.nets.encoders.frozen_features import Encoder, FeatureCache, SliceableImages, extract_features
from samekind.progress import counting_bar

Floats = npt.NDArray[np.float32]
MIN_CACHED = 1024  # least number of samples whose features are cached, because many small requests would fill the disk


@dataclass(frozen=True)
class LazyFeatures:
    """Features that are computed when they are accessed by a slice."""

    encoder: Encoder
    samples: SliceableImages
    batch: int = 32

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, which: slice) -> Floats:
        return extract_features(self.encoder, self.samples[which], batch=self.batch)


def features_of_new(
    encoder: Encoder,
    samples: SliceableImages,
    cache: str | Path | FeatureCache | None,
    *,
    batch: int,
    title: str,
    verbose: bool,
) -> SliceableImages:
    """Return the features of new samples.

    With a cache they are computed now and stored; without, they are computed when accessed.
    """
    if cache is None:
        return LazyFeatures(encoder, samples, batch)
    with counting_bar(len(samples), title, visible=verbose) as on_samples:
        folder = replace(as_cache(cache), min_samples=MIN_CACHED)
        return extract_features(encoder, samples, cache=folder, batch=batch, on_samples=on_samples)


def as_cache(cache: str | Path | FeatureCache) -> FeatureCache:
    """Return a cache with default settings in this directory. A FeatureCache is returned unchanged."""
    return cache if isinstance(cache, FeatureCache) else FeatureCache(cache)


def require_same_features(found: Floats, expected: Floats, what: str) -> None:
    """Raise ModelFileError if the features of a test sample differ from those at the fit. `what` is the word for the sample."""
    near = 1e-3 * float(np.abs(expected).max())
    if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-3, atol=near):
        raise ModelFileError(
            f"the encoder differs from the one that the model was fitted with: for the same {what} it returned "
            f"{expected.shape[1]} features at the fit, and now returns {found.shape[1]}, with other values. Pass the "
            "same encoder with the same weights, or fit again."
        )


def input_description(shape: tuple[int, ...], **more: Any) -> dict[str, Any]:
    """Return the entry "input" of model.json, which describes the input of the model."""
    return {"shape": list(shape), "is_uint8": False, "feature_names": None, "side": None, **more}
