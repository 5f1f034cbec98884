"""Models on disk: one safetensors file of numbers and one JSON file of words. Reading them runs no code.

    model/
      model.json                 what the model is, and the name of its weights
      weights-<hash>.safetensors numbers; named by content, so that model.json can never point at others

The JSON file is replaced last and at once: a save that is killed leaves the previous model whole.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor, nn

from samekind import defaults
from samekind.data.scaling import Scaler
from samekind.errors import ModelFileError
from samekind.io import atomic_write
from samekind.manifest import MODEL_FORMAT, read_model_manifest
from samekind.methods.predictors import Blueprint, build_predictor
from samekind.nets.classifier import Classifier, classifier_from_features
from samekind.nets.encoders.frozen_features import Encoder
from samekind.preprocessing import Preprocessor, build_encoder

if TYPE_CHECKING:
    from samekind.estimator import SemiSupervisedClassifier

SIMPLE = (
    "method",
    "settings",
    "preset",
    "epochs",
    "minutes",
    "batch_size",
    "supervised_warmup",
    "optimizer",
    "learning_rate",
    "device",
    "verbose",
    "precision",
    "accumulation_steps",
)


def save(model: SemiSupervisedClassifier, folder: Path) -> None:
    """Writes the model into `folder`."""
    if folder.exists() and not folder.is_dir():
        raise ModelFileError(f"{folder} is a file; expected a folder, or a name that is free. Choose another path.")
    folder.mkdir(parents=True, exist_ok=True)
    blob = write_tensors(_tensors(model))
    weights = f"weights-{hashlib.sha256(blob).hexdigest()[:16]}.safetensors"
    atomic_write(folder / weights, blob, ModelFileError)
    atomic_write(folder / "model.json", json.dumps(_words(model, weights), indent=2).encode(), ModelFileError)
    for old in folder.glob("weights-*.safetensors"):
        if old.name != weights:
            old.unlink()


def load(
    cls: type[SemiSupervisedClassifier], folder: Path, net: nn.Module | None, encoder: Encoder | None
) -> SemiSupervisedClassifier:
    """The model that `save` wrote."""
    words = read_model_manifest(folder)
    blob = _read_weights(folder / words["weights"])
    tensors = read_tensors(blob)
    model = cls(**words["parameters"])
    model._intake = _intake(words, encoder, tensors.pop("encoder.probe", None))
    model.encoder = words["parameters"].get("encoder") or encoder
    model._shape = tuple(words["shape"])
    model.classes_ = np.array(words["classes"], dtype=words["classes_dtype"])
    model.n_features_in_, model.n_iter_, model.history_ = words["n_features_in"], words["n_iter"], words["history"]
    model.cost_, model.epochs_ = words["cost"], words["epochs"]
    model._scaler = Scaler(tensors.pop("scaler.mean"), tensors.pop("scaler.scale"), tensors.pop("scaler.basis", None))
    model._fitted_z = tensors.pop("fitted.z")
    model.transduction_ = model.classes_[tensors.pop("fitted.codes").numpy()]
    model.net = words.get("net", "auto") if net is None else net
    blueprint = Blueprint(**words["predictor"])
    shape = model._scaler.shape_after(model._shape)
    classifier = _classifier(words, net, shape, len(model.classes_)) if blueprint.deep else None
    predictor = build_predictor(blueprint, classifier).to(model._dtype)
    predictor.load_state_dict({name.removeprefix("predictor."): tensor for name, tensor in tensors.items()})
    model._predictor = predictor.requires_grad_(False).eval()
    return model


def _tensors(model: SemiSupervisedClassifier) -> dict[str, Tensor]:
    codes = torch.from_numpy(np.searchsorted(model.classes_, model.transduction_))
    tensors = {
        "scaler.mean": model._scaler.mean,
        "scaler.scale": model._scaler.scale,
        "fitted.z": model._fitted_z,
        "fitted.codes": codes,
    }
    if model._scaler.basis is not None:
        tensors["scaler.basis"] = model._scaler.basis
    if model._intake.encoder is not None:
        tensors["encoder.probe"] = torch.from_numpy(model._intake.probe())
    tensors |= {f"predictor.{name}": tensor for name, tensor in model._predictor.state_dict().items()}
    return {name: tensor.contiguous().clone() for name, tensor in tensors.items()}


def _words(model: SemiSupervisedClassifier, weights: str) -> dict[str, Any]:
    views = model.views if isinstance(model.views, str) else "auto"
    random_state = model.random_state if isinstance(model.random_state, (int, type(None))) else None
    encoder = model.encoder if isinstance(model.encoder, str) else None
    parameters = {name: getattr(model, name) for name in SIMPLE}
    return {
        "format": MODEL_FORMAT,
        "weights": weights,
        "parameters": parameters | {"random_state": random_state, "views": views, "encoder": encoder},
        "own_net": isinstance(model.net, nn.Module),
        "net": model.net if isinstance(model.net, str) else "auto",
        "own_encoder": model._intake.encoder is not None and encoder is None,
        "taken": {"shape": list(model._intake.shape), "is_uint8_images": model._intake.is_uint8_images},
        "shape": list(model._shape),
        "classes": model.classes_.tolist(),
        "classes_dtype": model.classes_.dtype.str,
        "n_features_in": model.n_features_in_,
        "n_iter": model.n_iter_,
        "epochs": model.epochs_,
        "history": model.history_,
        "cost": model.cost_,
        "predictor": model._predictor.blueprint().as_dict(),
    }


def _intake(words: dict[str, Any], own: Encoder | None, probe: Tensor | None) -> Preprocessor:
    """How X was taken, with the encoder of the fit: by name, or handed in again."""
    name = words["parameters"].get("encoder")
    if words.get("own_encoder") and own is None:
        raise ModelFileError(
            "this model was fitted with an encoder of your own, which is not in the file. Pass it: load(path, encoder=...)."
        )
    if own is not None and not words.get("own_encoder"):
        fitted = f"with the encoder {name!r}, which is built by itself" if name else "without an encoder"
        raise ModelFileError(f"this model was fitted {fitted}. Leave encoder out.")
    wanted = name or own
    encoder = None if wanted is None else build_encoder(wanted, defaults.device_for(words["parameters"]["device"]))
    taken = words.get("taken", {"shape": words["shape"], "is_uint8_images": False})
    intake = Preprocessor(tuple(taken["shape"]), taken["is_uint8_images"], encoder)
    if probe is not None:
        intake.require_probe(probe.numpy())
    return intake


def _read_weights(path: Path) -> bytes:
    try:
        blob = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"the weights {path.name} are missing ({error}). Save the model again.") from error
    if hashlib.sha256(blob).hexdigest()[:16] not in path.name:
        raise ModelFileError(
            f"{path.name} was changed after it was written: its content does not match its name. Save the model again."
        )
    return blob


def _classifier(words: dict[str, Any], net: nn.Module | None, shape: tuple[int, ...], n_classes: int) -> Classifier:
    if not words["own_net"]:
        return defaults.net_for(shape, n_classes, words.get("net", "auto"))
    if net is None:
        raise ModelFileError(
            "this model was fitted with a net of your own, which is not in the file. Pass it: load(path, net=...)."
        )
    return classifier_from_features(net, torch.zeros(2, *shape), n_classes)
