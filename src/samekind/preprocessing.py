"""What X goes through before it is rows of numbers: paths are read as pictures, and an encoder makes features of images.

with open_input(X, encoder="efficientnet_lite0", cache="cache") as taken:
    rows = taken.rows()
new_rows = taken.intake.rows(X_new)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from samekind.data.image_layout import array_sample_shape, channels_last_shape, to_channels_first_floats
from samekind.data.inputs import read_images, read_inputs
from samekind.data.readers.path_list import LazyImages, parse_path_list, read_path_list
from samekind.data.target_shape import PreferredSide, Size, target_shape
from samekind.errors import DataError, ModelFileError
from samekind.nets.encoders.frozen_features import Encoder, FeatureCache, SliceableImages, extract_features, resolve_encoder
from samekind.progress import counting_bar

Anything = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
KEPT_FROM = 1024  # rows: features of fewer new images are not kept, or a service that is asked one by one would fill the disk


@dataclass(frozen=True)
class Preprocessor:
    """How X was taken at fit, so that new X is taken in the same way. `shape` is that of one row of X: (d,) or (C, H, W)."""

    shape: tuple[int, ...]
    is_uint8: bool
    encoder: Encoder | None = None

    def samples(self, X: Any, cache: str | Path | FeatureCache | None = None, *, verbose: bool = False) -> SliceableImages:
        """New X as the rows that a model sees."""
        paths = parse_path_list(X)
        if self.encoder is None and paths is None:
            return read_inputs(X, shape=self.shape)
        images: SliceableImages = self._images(X) if paths is None else LazyImages(paths, self._size_of_pictures())
        if self.encoder is None:
            return images
        if cache is None:
            return _Encoded(self.encoder, images)
        with counting_bar(len(images), "encoding images", visible=verbose) as on_samples:
            return extract_features(
                self.encoder, images, cache=replace(as_cache(cache), min_samples=KEPT_FROM), on_samples=on_samples
            )

    def probe(self) -> Floats:
        """What the encoder says about one image that is always the same (1, d): an encoder is known again by this."""
        assert self.encoder is not None
        ramp = (np.arange(np.prod(self.shape)) % 251).astype(np.uint8)
        values = ramp if self.is_uint8 else ramp.astype(np.float32) / 255.0
        return extract_features(self.encoder, values.reshape(1, *channels_last_shape(self.shape)))

    def require_probe(self, expected: Floats) -> None:
        """Refuses an encoder that says something else about the image of `probe` than the one of the fit did."""
        found = self.probe()
        near = 1e-3 * float(np.abs(expected).max())
        if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-3, atol=near):
            raise ModelFileError(
                f"the encoder is not the one of the fit: it gives {found.shape[1]} features (then {expected.shape[1]}), "
                "and other values for the same image. Pass the same one with the same weights, or fit again."
            )

    def _images(self, X: Any) -> Anything:
        images = read_images(X, shape=self.shape)
        if (images.dtype == np.uint8) != self.is_uint8:
            fitted, found = ("bytes (uint8)", "floats") if self.is_uint8 else ("floats", "bytes (uint8)")
            raise DataError(f"X holds {found}, and the encoder was given {fitted} at fit. Pass images on the same scale.")
        return images

    def _size_of_pictures(self) -> tuple[int, int, int]:
        if not self.is_uint8 or len(self.shape) != 3 or self.shape[0] not in (1, 3):
            kind = "vectors" if len(self.shape) == 1 else "images that are not bytes in 1 or 3 channels"
            raise DataError(f"X is a list of paths, and the model was fitted on {kind}. Pass the same kind of input as at fit.")
        channels, height, width = self.shape
        return height, width, channels


@dataclass(frozen=True)
class FitInput:
    """X of a fit: bytes or floats, not yet encoded, so that labels can be looked at before the work begins."""

    preprocessor: Preprocessor
    images: Anything
    cache: FeatureCache | None
    verbose: bool

    def __len__(self) -> int:
        return len(self.images)

    def samples(self) -> Anything:
        """The rows that a model sees: the images themselves, or their features (n, d)."""
        if self.preprocessor.encoder is None:
            return to_channels_first_floats(self.images)
        with counting_bar(len(self), "encoding images", visible=self.verbose) as on_samples:
            return extract_features(self.preprocessor.encoder, self.images, cache=self.cache, on_samples=on_samples)


@contextmanager
def open_input(
    X: Any,
    *,
    encoder: str | Encoder | None = None,
    cache: str | Path | FeatureCache | None = None,
    device: torch.device | None = None,
    verbose: bool = False,
) -> Iterator[FitInput]:
    """X for a fit. Pictures lie decoded in `cache`; without one, in a folder that is gone when the fit is over."""
    built = None if encoder is None else build_encoder(encoder, device)
    folder = None if cache is None else as_cache(cache)
    with ExitStack() as stack:
        paths = parse_path_list(X)
        if paths is None:
            images: Anything = read_images(X)
        else:
            place = folder.folder if folder else stack.enter_context(_passing_folder())
            images = read_path_list(paths, target_shape(decode_size(built), "auto"), Path(place))
        yield FitInput(Preprocessor(array_sample_shape(images), images.dtype == np.uint8, built), images, folder, verbose)


def build_encoder(encoder: str | Encoder, device: torch.device | None = None) -> Encoder:
    """An encoder by its name, on `device`; one of the caller's own stays where it is."""
    built = resolve_encoder(encoder)
    return built.to(device) if isinstance(encoder, str) and isinstance(built, nn.Module) else built


def decode_size(encoder: str | Encoder | None) -> Size:
    """How large pictures should be decoded for an encoder: as it says with `side`, else as without one."""
    side = getattr(resolve_encoder(encoder) if isinstance(encoder, str) else encoder, "side", None)
    return PreferredSide(side) if isinstance(side, int) and side > 0 else "auto"


def as_cache(cache: str | Path | FeatureCache) -> FeatureCache:
    """A folder as a cache with the usual settings."""
    return cache if isinstance(cache, FeatureCache) else FeatureCache(cache)


@dataclass(frozen=True)
class _Encoded:
    """Features that are made when they are asked for."""

    encoder: Encoder
    images: SliceableImages

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, which: slice) -> Anything:
        return extract_features(self.encoder, self.images[which])


def _passing_folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="samekind-", ignore_cleanup_errors=True)
