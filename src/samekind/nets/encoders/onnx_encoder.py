"""OnnxEncoder: an encoder in an ONNX file, run by onnxruntime. Such a file contains a graph of operators, and no code.

The size and the scaling of the images are arguments, or are read from the metadata of the file (`side`, `mean`, `std`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from samekind.errors import ModelFileError, SettingError
from samekind.nets.encoders.normalized import IMAGENET_MEAN, IMAGENET_STD, pool_features, resize_and_normalize

Floats = npt.NDArray[np.float32]
RANKS = (2, 4)  # accepted numbers of dimensions of the output: features (n, d), or feature maps (n, d, h, w)
NEXT = "Export the encoder again, with images (n, 3, H, W) as input and features (n, d) as output."


class OnnxEncoder:
    """Encoder: computes features of images with the network in an ONNX file.

    Parameters
    ----------
    path : str or Path
        The file. Its input is one float tensor (n, 3, H, W); its first output of rank 2 or 4 is taken as features.
    side : int or None, default=None
        Size of the images in pixels; None: the size of the input, or `side` in the metadata of the file.
    mean, std : sequence of three floats or None, default=None
        Normalization of values from 0 to 1; None: `mean` and `std` in the metadata, or else those of ImageNet.
    """

    takes_tensors = True  # called with tensors (n, C, H, W) from 0 to 1, like a module

    def __init__(
        self,
        path: str | Path,
        *,
        side: int | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        self.path = Path(path)
        blob = _read(self.path)
        self.session = _open_session(self.path, blob)
        metadata = dict(self.session.get_modelmeta().custom_metadata_map)
        self._input = _only_image_input(self.path, self.session)
        self._output = _feature_output(self.path, self.session)
        self.side = _choose_side(self.path, self._input.shape, side, metadata)
        self.mean = _three_numbers(self.path, "mean", mean, metadata, IMAGENET_MEAN)
        self.std = _three_numbers(self.path, "std", std, metadata, IMAGENET_STD)
        settings = f"{self.side} {self.mean.flatten().tolist()} {self.std.flatten().tolist()}"
        self.fingerprint = hashlib.sha256(hashlib.sha256(blob).digest() + settings.encode()).hexdigest()

    def __call__(self, images: Tensor) -> Floats:
        x = resize_and_normalize(images, self.side, self.mean, self.std, source=self.path.name).contiguous().numpy()
        size = self._input.shape[0]
        outputs = np.concatenate(
            [self._run(batch) for batch in _batches_of(x, size)] if isinstance(size, int) else [self._run(x)]
        )
        return pool_features(torch.from_numpy(outputs[: len(x)]), source=self.path.name).numpy()

    def _run(self, x: Floats) -> Floats:
        try:
            found: Floats = self.session.run([self._output], {self._input.name: x})[0]
        except Exception as error:  # onnxruntime raises errors of several classes, which have no public base class
            raise ModelFileError(f"{self.path} cannot encode images of {self.side} pixels ({_short(error)}). {NEXT}") from error
        return found


def _batches_of(x: Floats, size: int) -> list[Floats]:
    """Return the images in batches of exactly `size`, for a network that takes no others. The last image fills the last
    batch.
    """
    filled = np.concatenate([x, np.repeat(x[-1:], -len(x) % size, axis=0)])
    return np.split(filled, len(filled) // size)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"the encoder {path} cannot be read ({error.strerror or error}). Check the path.") from error


def _open_session(path: Path, blob: bytes) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise SettingError(f"{path} needs onnxruntime. Run: pip install 'samekind[onnx]'") from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = torch.get_num_threads()
    with TemporaryDirectory(prefix="samekind-") as empty:
        # onnxruntime opens no other file: the model comes from the bytes read before, and weights in other files are looked
        # for in an empty folder
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", empty)
        try:
            return onnxruntime.InferenceSession(blob, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            if "external data" in str(error).lower():
                raise ModelFileError(
                    f"{path} keeps its weights in another file; expected one file with all weights, so that its hash covers "
                    "them. Write it again with onnx.save(onnx.load(FILE), NEW_FILE)."
                ) from error
            raise ModelFileError(f"{path} is not a complete ONNX model ({_short(error)}). {NEXT}") from error


def _only_image_input(path: Path, session: Any) -> Any:
    inputs = session.get_inputs()
    shape = inputs[0].shape if len(inputs) == 1 else None
    if (
        shape is None
        or inputs[0].type != "tensor(float)"
        or len(shape) != 4
        or (shape[1] not in (3, None) and not isinstance(shape[1], str))
    ):
        found = ", ".join(f"{one.type} {one.shape}" for one in inputs)
        raise ModelFileError(f"{path} takes {found}; expected one input of images, float (n, 3, H, W). {NEXT}")
    return inputs[0]


def _feature_output(path: Path, session: Any) -> str:
    outputs = session.get_outputs()
    for rank in RANKS:
        for one in outputs:
            if one.type == "tensor(float)" and len(one.shape) == rank:
                return str(one.name)
    found = ", ".join(f"{one.type} {one.shape}" for one in outputs)
    raise ModelFileError(f"{path} returns {found}; expected float features (n, d) or maps (n, d, h, w). {NEXT}")


def _choose_side(path: Path, shape: Sequence[Any], given: int | None, metadata: dict[str, str]) -> int:
    """Return the size of images in pixels: as given, else from the metadata of the file, else that of the network's input.

    SettingError is raised if the size contradicts the input of the network, or if none is known.
    """
    fixed = [size for size in shape[2:] if isinstance(size, int)]
    text = metadata.get("side", "")
    chosen = given or (int(text) if text.isdecimal() else None) or (fixed[0] if fixed else None)
    if chosen is None:
        raise SettingError(
            f"{path} does not contain the size of its input images. Add the size in pixels to the name: encoder='{path}@224'."
        )
    if any(size != chosen for size in fixed):
        raise SettingError(
            f"{path} takes images of {shape[2]} x {shape[3]} pixels, but the size {chosen} was given. Leave the size out."
        )
    return chosen


def _three_numbers(
    path: Path, name: str, given: Sequence[float] | None, metadata: dict[str, str], default: Sequence[float]
) -> Tensor:
    """Return three numbers, one for each channel: as given, else from the metadata of the file, else the default."""
    try:
        values = given if given is not None else json.loads(metadata[name]) if name in metadata else default
        found = torch.tensor([float(value) for value in values])
    except (ValueError, TypeError) as error:
        raise ModelFileError(
            f"{path} has {name} = {metadata.get(name)!r}; expected three numbers, as [0.5, 0.5, 0.5]"
        ) from error
    if found.shape != (3,) or not torch.isfinite(found).all() or (name == "std" and not (found > 0).all()):
        raise ModelFileError(f"{path} has {name} = {found.tolist()}; expected three numbers, as [0.5, 0.5, 0.5]")
    return found.view(1, 3, 1, 1)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
