"""Texts as the X of a fit and of predictions: the encoder of the fit turns strings into features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from samekind.data.texts import require_texts
from samekind.nets.encoders.frozen_features import FeatureCache, SliceableImages, extract_features
from samekind.nets.text.text_encoder import TextEncoder
from samekind.preprocessing.lazy_features import Floats, as_cache, features_of_new, input_description, require_same_features
from samekind.progress import counting_bar

BATCH = 256  # number of texts that are encoded at a time; an encoder that works faster on equal lengths sorts them
PROBE = "Label a handful of texts, and the rest is sorted. Etikettiere einige Texte. 给几个文本打标签。"


@dataclass(frozen=True)
class TextPreprocessor:
    """Turns new texts into features with the encoder of the fit. It has the same members as `Preprocessor`."""

    encoder: TextEncoder | None = None
    shape: tuple[int, ...] = (1,)
    feature_names: None = None

    def samples(self, X: Any, cache: str | Path | FeatureCache | None = None, *, verbose: bool = False) -> SliceableImages:
        """Return the features of new texts."""
        assert self.encoder is not None
        return features_of_new(self.encoder, require_texts(X), cache, batch=BATCH, title="encoding texts", verbose=verbose)

    def probe(self) -> Floats:
        """Return the features (1, d) of a fixed test text. When a model is loaded, its encoder is recognized by them."""
        assert self.encoder is not None
        return extract_features(self.encoder, [PROBE])

    def require_probe(self, expected: Floats) -> None:
        """Raise ModelFileError if the encoder is not the same as at the fit, because its features of the test text then
        differ.
        """
        require_same_features(self.probe(), expected, "test text")

    def description(self) -> dict[str, Any]:
        """Return the entry "input" of model.json, which describes the input of the model."""
        return input_description(self.shape, kind="text")

    def state(self) -> Mapping[str, npt.NDArray[Any]]:
        """Return the arrays that were learned when the encoder was fitted, such as the terms of TF-IDF."""
        return {} if self.encoder is None else self.encoder.state()


@dataclass(frozen=True)
class TextInput:
    """The texts of a fit, before they are encoded. `features` are those of all texts, if they are known already."""

    texts: list[str]
    cache: FeatureCache | None = None
    verbose: bool = False
    preprocessor: TextPreprocessor = TextPreprocessor()
    features: Floats | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def samples(self) -> Floats:
        """Return the features (n, d) of the texts, on which the model is trained."""
        assert self.preprocessor.encoder is not None
        return self.encode(self.preprocessor.encoder) if self.features is None else self.features

    def encode(self, encoder: TextEncoder) -> Floats:
        """Return the features of all texts, computed by this encoder. The features of a pretrained encoder are cached."""
        cache = None if encoder.state() else self.cache
        with counting_bar(len(self), "encoding texts", visible=self.verbose) as on_samples:
            return extract_features(encoder, self.texts, cache=cache, batch=BATCH, on_samples=on_samples)

    def part(self, indices: npt.NDArray[np.int64]) -> TextInput:
        """Return an input with the texts at these positions."""
        return replace(self, texts=[self.texts[i] for i in indices])

    def with_encoder(self, encoder: TextEncoder, features: Floats | None = None) -> TextInput:
        """Return the input with an encoder, and with the features of all texts if they are known."""
        return replace(self, preprocessor=TextPreprocessor(encoder), features=features)


def text_input(texts: list[str], cache: str | Path | FeatureCache | None, *, verbose: bool) -> TextInput:
    """Return the texts of a fit as an input."""
    return TextInput(texts, None if cache is None else as_cache(cache), verbose)
