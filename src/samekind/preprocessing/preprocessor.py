"""Preprocessor: turns a user's X into samples for the network. Reads image files, and encodes images and texts.

with open_input(X, encoder="efficientnet_lite0", cache="cache") as fit_input:
    samples = fit_input.samples()
new_samples = fit_input.preprocessor.samples(X_new)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from samekind.data.columns.frames import is_frame
from samekind.data.feature_names import feature_names, require_feature_names
from samekind.data.inputs import read_images, read_inputs
from samekind.data.readers.path_list import LazyImages, parse_path_list, read_path_list
from samekind.data.resize import ReducedImages
from samekind.data.target_shape import PlannedSide, PreferredSide, Size, target_shape
from samekind.data.texts import parse_texts
from samekind.errors import DataError
from samekind.image_layout import array_sample_shape, channels_last_shape, to_channels_first_floats
from samekind.nets.encoders.frozen_features import Encoder, FeatureCache, OnSamples, SliceableImages, extract_features
from samekind.nets.encoders.names import AUTO, AnyEncoder, resolve_encoder
from samekind.nets.encoders.plan import SMALLEST_ENCODED, plan_encoder
from samekind.nets.text.text_encoder_names import is_text_encoder
from samekind.preprocessing.lazy_features import as_cache, features_of_new, require_same_features
from samekind.preprocessing.table_input import TableInput, TablePreprocessor, table_input
from samekind.preprocessing.text_input import TextInput, TextPreprocessor, text_input
from samekind.progress import counting_bar

Anything = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
BATCH = 32  # number of images that are encoded at a time


@dataclass(frozen=True)
class Preprocessor:
    """Reads new X in the same way as the X of the fit. `shape` is the shape of one sample, (d,) or (C, H, W).

    `feature_names` are the column names of X if it was a data frame. New data frames must have the same names in the same
    order.
    """

    shape: tuple[int, ...]
    is_uint8: bool
    encoder: Encoder | None = None
    feature_names: tuple[str, ...] | None = None
    # side to which images are reduced for a network that is trained from scratch; None: they are not reduced
    side: int | None = None

    def samples(self, X: Any, cache: str | Path | FeatureCache | None = None, *, verbose: bool = False) -> SliceableImages:
        """Return the samples of new X: unchanged, decoded from files, or encoded."""
        require_feature_names(X, self.feature_names)
        paths = parse_path_list(X)
        if paths is None and (texts := parse_texts(X)) is not None:
            raise DataError(
                f"X holds {len(texts)} texts, and the model was fitted on {self._kind()}. Pass the same kind of input."
            )
        if self.encoder is None and paths is None:
            return self._reduced(read_inputs(X, shape=self.shape))
        images: SliceableImages = self._images(X) if paths is None else LazyImages(paths, self._decoded_shape())
        if self.encoder is None:
            return self._reduced(images)
        return features_of_new(self.encoder, images, cache, batch=BATCH, title="encoding images", verbose=verbose)

    def probe(self) -> Floats:
        """Return the features (1, d) of a fixed test image. When a model is loaded, its encoder is recognized by them."""
        assert self.encoder is not None
        ramp = (np.arange(np.prod(self.shape)) % 251).astype(np.uint8)
        values = ramp if self.is_uint8 else ramp.astype(np.float32) / 255.0
        return extract_features(self.encoder, values.reshape(1, *channels_last_shape(self.shape)))

    def require_probe(self, expected: Floats) -> None:
        """Raise ModelFileError if the encoder is not the same as at the fit, because its features of the test image then
        differ.
        """
        require_same_features(self.probe(), expected, "test image")

    def description(self) -> dict[str, Any]:
        """Return the entry "input" of model.json, which describes the input of the model."""
        return {
            "shape": list(self.shape),
            "is_uint8": self.is_uint8,
            "feature_names": self.feature_names,
            "side": self.side,
        }

    def state(self) -> Mapping[str, Anything]:
        """Return an empty dict, because an encoder of images has no arrays from the fit."""
        return {}

    def _reduced(self, images: Any) -> SliceableImages:
        return images if self.side is None else ReducedImages(images, self.side)

    def _images(self, X: Any) -> Anything:
        images = read_images(X, shape=self.shape)
        if (images.dtype == np.uint8) != self.is_uint8:
            fitted, found = ("bytes (uint8)", "floats") if self.is_uint8 else ("floats", "bytes (uint8)")
            raise DataError(f"X holds {found}, but the model was fitted on {fitted}. Pass images on the same scale.")
        return images

    def _decoded_shape(self) -> tuple[int, int, int]:
        if not self.is_uint8 or len(self.shape) != 3 or self.shape[0] not in (1, 3):
            raise DataError(
                f"X is a list of paths, and the model was fitted on {self._kind()}. Pass the same kind of input as at fit."
            )
        channels, height, width = self.shape
        return height, width, channels

    def _kind(self) -> str:
        if len(self.shape) == 1:
            return "vectors"
        return "images" if self.is_uint8 and self.shape[0] in (1, 3) else "images that are not bytes in 1 or 3 channels"


AnyPreprocessor = Preprocessor | TextPreprocessor | TablePreprocessor


@dataclass(frozen=True)
class FitInput:
    """Samples X of a fit that are opened but not encoded yet: encoding takes long, so the labels are checked before it."""

    preprocessor: Preprocessor
    images: Anything
    cache: FeatureCache | None
    verbose: bool
    features: Floats | None = None  # features of all images, if they are known already

    def __len__(self) -> int:
        return len(self.images)

    def samples(self) -> Anything:
        """Return the samples to train on: vectors or images, or the features (n, d) of encoded images."""
        encoder, side = self.preprocessor.encoder, self.preprocessor.side
        if encoder is None:
            return to_channels_first_floats(self.images) if side is None else ReducedImages(self.images, side).in_memory()
        return self.encode(encoder) if self.features is None else self.features

    def encode(self, encoder: Encoder, watch: OnSamples | None = None) -> Floats:
        """Return the features of all images, computed by this encoder; `watch(done, total)` is called after each batch."""
        with counting_bar(len(self), "encoding images", visible=self.verbose) as draw:

            def on_samples(done: int, total: int) -> None:
                for call in (draw, watch):
                    if call is not None:
                        call(done, total)

            return extract_features(encoder, self.images, cache=self.cache, on_samples=on_samples)

    def with_encoder(self, encoder: Encoder, features: Floats | None = None) -> FitInput:
        """Return the input with an encoder, and with the features of all images if they are known."""
        return replace(self, preprocessor=replace(self.preprocessor, encoder=encoder), features=features)

    def with_side(self, side: int | None) -> FitInput:
        """Return the input with images that are reduced so that the longer side has `side` pixels."""
        return replace(self, preprocessor=replace(self.preprocessor, side=side))


@contextmanager
def open_input(
    X: Any,
    *,
    encoder: AnyEncoder | None = None,
    cache: str | Path | FeatureCache | None = None,
    device: torch.device | None = None,
    verbose: bool = False,
    minutes: float | None = None,
) -> Iterator[FitInput | TextInput | TableInput]:
    """Yield the X of a fit as an input. Decoded image files are stored in `cache`; without one, in a temporary directory.

    With encoder="auto", the encoder is chosen and built later, but image files are already decoded to the size that suits the
    one planned for these images and `minutes`. The encoder of texts is chosen and built later too.
    """
    if is_frame(X):
        yield table_input(X, encoder)
        return
    paths = parse_path_list(X)
    if paths is None and (texts := parse_texts(X)) is not None:
        yield text_input(texts, cache, verbose=verbose)
        return
    built = None if encoder is None or encoder == AUTO else build_encoder(encoder, device)
    folder = None if cache is None else as_cache(cache)
    with ExitStack() as stack:
        if paths is None:
            images: Anything = read_images(X)
        else:
            place = folder.folder if folder else stack.enter_context(_temporary_directory())
            images = read_path_list(
                paths, target_shape(decode_size(encoder if built is None else built, minutes), "auto"), Path(place)
            )
        preprocessor = Preprocessor(array_sample_shape(images), images.dtype == np.uint8, built, feature_names(X))
        yield FitInput(preprocessor, images, folder, verbose)


def build_encoder(encoder: AnyEncoder, device: torch.device | None = None) -> Encoder:
    """Return the encoder. A name is resolved, and built on `device`; an encoder of the user stays on its device."""
    built = resolve_encoder(encoder)
    return built.to(device) if encoder is not built and isinstance(built, nn.Module) else built


def decode_size(encoder: AnyEncoder | None, minutes: float | None = None) -> Size:
    """Return the size to which image files are decoded for an encoder: its attribute `side` if it has one, else "auto".

    For encoder="auto", it is the size for the encoder that suits the number of images, their size, and `minutes`.
    """
    if isinstance(encoder, str) and is_text_encoder(encoder):
        return "auto"
    if encoder == AUTO:
        return PlannedSide(f"encoder within {minutes} minutes", partial(_planned_side, minutes))
    side = None if encoder is None else getattr(resolve_encoder(encoder), "side", None)
    return PreferredSide(side) if isinstance(side, int) and side > 0 else "auto"


def _planned_side(minutes: float | None, n_images: int, image_side: int) -> int | None:
    plan = plan_encoder(n_images, image_side, minutes) if image_side >= SMALLEST_ENCODED else None
    return None if plan is None else plan.side


def _temporary_directory() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="samekind-", ignore_cleanup_errors=True)
