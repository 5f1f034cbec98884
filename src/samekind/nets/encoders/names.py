"""Encoders by name, file or object: "efficientnet_lite0", "timm:NAME", "hub:REPO:NAME", "hf:NAME", "model.onnx", or several.

resolve_encoder("efficientnet_lite2@224")            # with images of 224 pixels
resolve_encoder("efficientnet_lite0,model.onnx")     # features of two encoders side by side; a list means the same
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from samekind.errors import SettingError, did_you_mean
from samekind.nets.encoders.efficientnet import VARIANTS, efficientnet_lite
from samekind.nets.encoders.external_models import hub_encoder, huggingface_encoder, timm_encoder
from samekind.nets.encoders.frozen_features import Encoder
from samekind.nets.encoders.onnx_encoder import OnnxEncoder
from samekind.nets.encoders.side_by_side import SideBySide

AUTO = "auto"  # encoder_choice.py then chooses an encoder that suits the images
AnyEncoder = str | Encoder | Sequence[str | Encoder]
Builder = Callable[..., nn.Module]

ENCODERS: dict[str, Builder] = {name: partial(efficientnet_lite, name) for name in VARIANTS}
SHORT_NAMES = {name.removeprefix("efficientnet_"): name for name in VARIANTS}
LIBRARIES: dict[str, Callable[[str, int | None], nn.Module]] = {
    "timm": timm_encoder,
    "hub": hub_encoder,
    "hf": huggingface_encoder,
}
PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib")
FORMS = "a name, timm:NAME, hub:REPO:NAME, hf:NAME, a .onnx file, a torch.nn.Module, a function of images, or a list of them"


def resolve_encoder(encoder: AnyEncoder) -> Encoder:
    """Return the encoder for a name or a list of names. A module or a function is returned unchanged."""
    if isinstance(encoder, str):
        parts = [_by_name(name.strip()) for name in encoder.split(",")]
        return parts[0] if len(parts) == 1 else SideBySide(parts)
    if isinstance(encoder, (list, tuple)):
        if not encoder:
            raise SettingError("encoder is an empty list; expected one encoder or more, or None to train from scratch")
        return SideBySide([resolve_encoder(one) for one in encoder]) if len(encoder) > 1 else resolve_encoder(encoder[0])
    if not callable(encoder):
        raise SettingError(f"encoder is {encoder!r}; expected {FORMS}")
    return encoder


def encoder_name(encoder: Any) -> str | None:
    """Return the name from which a saved model can build its encoder again; None if there is no such name.

    That is the case for modules and functions of the user, and for torch.hub, because loading a model must not run code.
    """
    if isinstance(encoder, (list, tuple)) and all(isinstance(one, str) for one in encoder):
        encoder = ",".join(encoder)
    return encoder if isinstance(encoder, str) and not runs_code(encoder) else None


def runs_code(name: str) -> bool:
    """Return whether building this encoder runs code that was downloaded with it."""
    return any(part.strip().startswith("hub:") for part in name.split(","))


def _by_name(name: str) -> Encoder:
    bare, at, digits = name.rpartition("@")
    side = int(digits) if at and digits.isdecimal() else None
    bare = name if side is None else bare
    library, colon, rest = bare.partition(":")
    if colon and library in LIBRARIES:
        return LIBRARIES[library](rest, side)
    suffix = Path(bare).suffix.lower()
    if suffix == ".onnx":
        return OnnxEncoder(bare, side=side)
    if suffix in PICKLES:
        raise SettingError(
            f"{bare} is not loaded: a {suffix} file may run code when it is opened. Export the model as .onnx, or build it "
            "yourself and pass the module."
        )
    bare = SHORT_NAMES.get(bare, bare)
    if bare not in ENCODERS:
        raise SettingError(f"there is no encoder {bare!r} (expected {FORMS}); {did_you_mean(bare, ENCODERS)}")
    return ENCODERS[bare]() if side is None else ENCODERS[bare](side=side)
