"""The preprocessor of a saved model: built again from model.json and the tensors, and checked to be the one of the fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from samekind.errors import ModelFileError
from samekind.nets.encoders.finetuned import load_finetuned
from samekind.nets.encoders.fingerprints import fingerprint_of
from samekind.nets.encoders.frozen_features import Encoder
from samekind.nets.encoders.names import runs_code
from samekind.nets.text.text_encoder import TextEncoder
from samekind.nets.text.text_encoder_names import resolve_text_encoder, restore_text_encoder
from samekind.preprocessing.preprocessor import AnyPreprocessor, Preprocessor, build_encoder
from samekind.preprocessing.table_input import TablePreprocessor
from samekind.preprocessing.text_input import TextPreprocessor

Array = npt.NDArray[Any]


def restore_preprocessor(
    manifest: Mapping[str, Any],
    custom: Encoder | None,
    tensors: Mapping[str, Tensor],
    folder: Path,
    device: torch.device,
) -> AnyPreprocessor:
    """Return the preprocessor of a saved model.

    `manifest` is the content of model.json in `folder`, and `tensors` that of its weights file. The encoder is built by its
    name; if the manifest names a file with its weights, these are loaded. `custom` is the encoder that the user passed again.
    """
    name = manifest["encoder"]
    _require_fitting(manifest, custom)
    chosen, read = name or custom, manifest["input"]
    preprocessor: AnyPreprocessor
    if read.get("kind") == "table":
        return TablePreprocessor.restored(read, encoder_state(tensors))
    if read.get("kind") == "text":
        preprocessor = TextPreprocessor(_load_text_encoder(chosen, tensors))
    else:
        weights = manifest.get("encoder_weights")
        encoder: Encoder | None = None
        if weights is not None:
            encoder = load_finetuned(str(name), folder / weights).to(device)
        elif chosen is not None:
            encoder = build_encoder(chosen, device)
        names = None if read["feature_names"] is None else tuple(read["feature_names"])
        preprocessor = Preprocessor(tuple(read["shape"]), read["is_uint8"], encoder, names, read["side"])
    if preprocessor.encoder is not None:
        _require_hash(name or "that was passed", fingerprint_of(preprocessor.encoder), manifest["encoder_hash"])
        preprocessor.require_probe(tensors["encoder.probe"].numpy())
    return preprocessor


def _require_fitting(manifest: Mapping[str, Any], custom: Encoder | None) -> None:
    """Raise ModelFileError unless an encoder was passed exactly if the fit had an encoder of the user."""
    name, needs_custom = manifest["encoder"], manifest["custom_encoder"]
    if needs_custom and custom is None:
        raise ModelFileError(
            "this model was fitted with an encoder of your own, which is not in the file. Pass this encoder: "
            "load(path, encoder=...)."
        )
    if custom is not None and not needs_custom:
        fitted = f"with the encoder {name!r}, which is built by itself" if name else "without an encoder"
        raise ModelFileError(f"this model was fitted {fitted}, so load() accepts no other encoder. Leave encoder out.")
    if name and runs_code(name):
        raise ModelFileError(
            f"this model names the encoder {name}, which would run code, so it was not written by save(). Do not load it."
        )


def _load_text_encoder(encoder: Any, tensors: Mapping[str, Tensor]) -> TextEncoder:
    """Return the text encoder of the fit: restored by its name and arrays, or the one that the user passes again."""
    if encoder is None:
        raise ModelFileError("model.json was changed: a model of texts has no encoder. Save the model again.")
    if not isinstance(encoder, str):
        return resolve_text_encoder(encoder)
    return restore_text_encoder(encoder, encoder_state(tensors))


def encoder_state(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    """Return the arrays of a fitted encoder from the tensors of a saved model, by name."""
    prefix = "encoder.state."
    return {name.removeprefix(prefix): value.numpy() for name, value in tensors.items() if name.startswith(prefix)}


def _require_hash(name: str, found: str | None, expected: str | None) -> None:
    """Raise ModelFileError if the hash of an encoder is not that at the fit. Functions have no hash, and are not checked."""
    if found != expected and expected is not None:
        raise ModelFileError(
            f"the encoder {name} differs from the one that the model was fitted with: its hash is "
            f"{(found or 'none')[:12]}, expected {expected[:12]}. Pass the same encoder with the same weights, or fit "
            "again."
        )
