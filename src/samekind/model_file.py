"""Reading of saved models. The parts are checked against each other before memory is allocated, and no code is run.

The description (model.json) must have a form that `save` writes. The shapes of all tensors in the header of the weights file
must match the description. The expected shapes are found by building the network on torch's meta device, which takes no memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from torch import Tensor, nn

from samekind import defaults
from samekind.data.resize import reduced_size
from samekind.data.scaling import Scaler
from samekind.errors import ModelFileError
from samekind.files.manifest import read_model_manifest
from samekind.files.tensor_file import FLOATS, TensorFile, TensorHeader
from samekind.methods.blueprint import Blueprint
from samekind.methods.predictors import AnyPredictor, build_predictor
from samekind.nets.classifier import Classifier, classifier_from_features

Shape = tuple[int, ...]
MAX_CLASS_BYTES = 2**27  # largest size in bytes of the array of class labels
# Exceptions that torch and numpy raise if sizes, names or dtypes do not fit together.
MISFITS = (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError)


@dataclass(frozen=True)
class SavedModel:
    """Content of a model folder, after all checks."""

    manifest: Mapping[str, Any]
    classes: npt.NDArray[Any]
    scaler: Scaler
    predictor: AnyPredictor
    tensors: Mapping[str, Tensor]  # tensors of the training set and of the encoder


def read_model(folder: Path, net: nn.Module | None, dtype_of: Callable[[Shape], torch.dtype]) -> SavedModel:
    """Return the model in a folder; raise ModelFileError if a part is missing or damaged, or does not fit the other parts.

    `net` must be passed if the fit had a network of the user. `dtype_of` returns the precision of predictions for samples of a
    shape.
    """
    manifest = read_model_manifest(folder)
    path = folder / manifest["weights"]
    try:
        with TensorFile(path) as file:
            if file.digest() not in path.name:
                raise ValueError("the content of the file does not match the hash in its name")
            description = _Description(manifest, file.header, net, dtype_of(tuple(manifest["shape"])))
            description.require_tensors()
            tensors = read_tensors(file.read())
        scaler = Scaler(tensors.pop("scaler.mean"), tensors.pop("scaler.scale"), tensors.pop("scaler.basis", None))
        state = {name: tensors.pop(name) for name in list(tensors) if name.startswith("predictor.")}
        predictor = description.load_predictor(state)
        _require_codes(tensors["train.codes"], len(description.classes))
    except OSError as error:
        raise ModelFileError(f"the weights {path.name} are missing ({error}). Save the model again.") from error
    except (ValueError, SafetensorError) as error:
        next_step = "Save the model again." if net is None else "Pass the same net as at the fit, or save the model again."
        raise ModelFileError(f"{path.name} was changed after it was written: {error}. {next_step}") from error
    return SavedModel(manifest, description.classes, scaler, predictor, tensors)


class _Description:
    """Description of a model (model.json), and the header of its weights file."""

    def __init__(self, manifest: Mapping[str, Any], header: TensorHeader, net: nn.Module | None, dtype: torch.dtype) -> None:
        self.manifest, self.header, self.net, self.dtype = manifest, header, net, dtype
        self.shape: Shape = tuple(manifest["shape"])
        self.classes = _classes(manifest["classes"], manifest["classes_dtype"])
        self.blueprint = Blueprint.from_json(manifest["predictor"])
        self.scaled_shape = self._require_scaler()

    def require_tensors(self) -> None:
        """Raise ValueError unless the file has exactly the tensors that the description requires."""
        self._require_encoder()
        self._require_training_set()
        try:
            with torch.device("meta"):
                expected = self._build().state_dict()
        except MISFITS as error:
            raise ValueError(f"the parts that model.json describes do not fit together ({_first_line(error)})") from error
        found = self.header.shapes("predictor.")
        for name in {**found, **expected}:
            shape = tuple(expected[name].shape) if name in expected else None
            _require_shape(f"predictor.{name}", found.get(name), shape)

    def load_predictor(self, state: Mapping[str, Tensor]) -> AnyPredictor:
        """Return the predictor with the tensors of the file, after trying it on a sample of zeros."""
        predictor = self._build().to(self.dtype)
        predictor.load_state_dict({name.removeprefix("predictor."): tensor for name, tensor in state.items()})
        predictor.requires_grad_(False).eval()
        # for predictors without a network, the shapes come from the file, so they may not fit together
        if not self.blueprint.deep:
            self._try(predictor)
        return predictor

    def _build(self) -> AnyPredictor:
        blueprint, n_classes, width = self.blueprint, len(self.classes), math.prod(self.scaled_shape)
        sized = blueprint.kind in ("graph", "kernel")
        if sized and (blueprint.n_classes, blueprint.n_features) != (n_classes, width):
            raise ValueError(
                f"its predictor is for {blueprint.n_features} features and {blueprint.n_classes} classes; expected "
                f"{width} and {n_classes}"
            )
        if blueprint.kind == "propagated" and blueprint.n_classes != n_classes:
            raise ValueError(f"its predictor is for {blueprint.n_classes} classes; expected {n_classes}")
        if blueprint.kind == "propagated" and not 1 <= blueprint.n_neighbors <= blueprint.n_points:
            raise ValueError(
                f"model.json averages predictions over {blueprint.n_neighbors} of {blueprint.n_points} training samples; "
                "expected at least 1 and no more than all"
            )
        return build_predictor(blueprint, self._classifier(n_classes) if blueprint.deep else None)

    def _classifier(self, n_classes: int) -> Classifier:
        if self.manifest["net"] is not None:
            return defaults.net_for(self.scaled_shape, n_classes, self.manifest["net"])
        if self.net is None:
            raise ModelFileError(
                "this model was fitted with a net of your own, which is not in the file. Pass this net: load(path, net=...)."
            )
        with torch.device("cpu"):
            return classifier_from_features(self.net, torch.zeros(2, *self.scaled_shape), n_classes)

    def _require_scaler(self) -> Shape:
        """Return the shape of a sample after scaling; raise ValueError if the tensors of the scaler do not fit."""
        n = self.shape[0]
        for name in ("scaler.mean", "scaler.scale"):
            self._require(name, (n,), FLOATS)
        basis = self.header.tensors.get("scaler.basis")
        if basis is None:
            return self.shape
        if len(self.shape) != 1 or len(basis.shape) != 2:
            raise ValueError("the basis of the scaler does not fit the shape of the samples")
        self._require("scaler.basis", (n, max(1, basis.shape[1])), FLOATS)
        return (basis.shape[1],)

    def _require_encoder(self) -> None:
        manifest, probe = self.manifest, self.header.tensors.get("encoder.probe")
        if manifest["input"].get("kind") == "table":
            self._require_table(manifest["input"])
            return
        is_encoded = manifest["encoder"] is not None or manifest["custom_encoder"]
        shape, side = manifest["input"]["shape"], manifest["input"]["side"]
        if side is not None:
            if len(shape) != 3 or is_encoded or not manifest["input"]["is_uint8"]:
                raise ValueError(
                    f"model.json reduces images of bytes to a side of {side} pixels, but the model's input are no images of "
                    "bytes"
                )
            shape = [shape[0], *reduced_size(shape[1], shape[2], side)]
        if is_encoded != (probe is not None) or (not is_encoded and shape != list(self.shape)):
            raise ValueError("the shape of the model's input does not fit its encoder")
        names = manifest["input"]["feature_names"]
        if names is not None and manifest["input"]["shape"] != [len(names)]:
            raise ValueError(
                f"model.json names {len(names)} columns, but the model's input has the shape {manifest['input']['shape']}"
            )
        if is_encoded:
            self._require("encoder.probe", (1, self.shape[0]), ("F32",))

    def _require_table(self, read: Mapping[str, Any]) -> None:
        """Raise ValueError unless a table has as many columns as names. TableEncoder checks the features."""
        counts = {len(read["table"]["columns"]), *([] if read["feature_names"] is None else [len(read["feature_names"])])}
        if read["shape"] != [*counts]:
            raise ValueError(
                f"model.json describes {len(read['table']['columns'])} columns, but the model's input has the shape "
                f"{read['shape']}"
            )

    def _require_training_set(self) -> None:
        codes = self.header.tensors.get("train.codes")
        features = self.header.tensors.get("train.features")
        if codes is None or features is None or len(codes.shape) != 1:
            raise ValueError("the training set of the model is missing")
        n = codes.shape[0]
        self._require("train.codes", (n,), ("I64",))
        if features.shape != (0,) or n:  # a model may be saved without its training set
            width = self._feature_width()
            self._require("train.features", (n, width), ("F64" if self.dtype == torch.float64 else "F32",))
        if "train.probabilities" in self.header.tensors:
            self._require("train.probabilities", (n, len(self.classes)), FLOATS)

    def _feature_width(self) -> int:
        if not self.blueprint.deep:
            return math.prod(self.scaled_shape)
        head = self.header.tensors.get("predictor.classifier.head.weight")
        if head is None or len(head.shape) != 2:
            raise ValueError("the head of the classifier is missing")
        return head.shape[1]

    def _require(self, name: str, shape: Shape, dtypes: tuple[str, ...]) -> None:
        found = self.header.tensors.get(name)
        _require_shape(name, None if found is None else found.shape, shape)
        if found is not None and found.dtype not in dtypes:
            raise ValueError(f"{name} has the dtype {found.dtype}; expected {' or '.join(dtypes)}")

    def _try(self, predictor: AnyPredictor) -> None:
        try:
            with torch.inference_mode():
                z = predictor.features(torch.zeros(1, *self.scaled_shape, dtype=self.dtype))
                shapes = tuple(predictor.probabilities(z).shape), tuple(predictor.similarity(z, z).shape)
        except MISFITS as error:
            raise ValueError(f"the tensors do not fit together ({_first_line(error)})") from error
        if shapes != ((1, len(self.classes)), (1, 1)):
            raise ValueError(
                f"the tensors do not fit together: they predict {shapes[0][-1]} classes instead of {len(self.classes)}"
            )


def _classes(labels: list[Any], dtype: str) -> npt.NDArray[Any]:
    """Return the class labels as an array; raise ValueError unless they are sorted labels of this dtype."""
    try:
        if np.dtype(dtype).itemsize * len(labels) > MAX_CLASS_BYTES:
            raise ValueError(f"the dtype {dtype} of the classes is too wide")
        classes = np.array(labels, dtype=dtype)
        same = classes.tolist() == labels and bool((classes[1:] > classes[:-1]).all())
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(f"the classes are not labels of dtype {dtype} ({error})") from error
    if not same:
        raise ValueError(f"the classes are not sorted labels of dtype {dtype}")
    return classes


def _require_codes(codes: Tensor, n_classes: int) -> None:
    if len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < n_classes:
        raise ValueError(
            f"the training set of the model has class numbers of {n_classes} or more, but the model has only "
            f"{n_classes} classes"
        )


def _require_shape(name: str, found: Shape | None, expected: Shape | None) -> None:
    if found is None:
        raise ValueError(f"the tensor {name} is missing")
    if found != expected:
        described = "no such tensor" if expected is None else f"{expected}"
        raise ValueError(f"the tensor {name} has the shape {found}; expected {described}")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
