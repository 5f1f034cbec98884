"""Small ONNX files for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx: Any = pytest.importorskip("onnx")
FLOAT, INT64 = 1, 7  # numbers of the dtypes in ONNX


def model_file(
    path: Path,
    *,
    shape: Sequence[int | str] = ("n", 3, 8, 8),
    operator: str = "mean",
    kind: int = FLOAT,
    **metadata: str,
) -> str:
    """Write a network that returns its input, the mean of each channel, or the mean of the whole image.

    The operator "broken" needs a number of values per image that can be divided by 7, so it fails when the network is run.
    """
    axes = {"maps": [], "mean": [2, 3], "vector": [1, 2, 3], "broken": []}[operator]
    sizes = [onnx.numpy_helper.from_array(np.array([-1, 7]), "sizes")] if operator == "broken" else []
    if axes:
        node = onnx.helper.make_node("ReduceMean", ["x"], ["z"], axes=axes, keepdims=0)
    else:
        node = onnx.helper.make_node("Reshape" if sizes else "Identity", ["x", "sizes"] if sizes else ["x"], ["z"])
    out = ["m", 7] if sizes else [size for at, size in enumerate(shape) if at not in axes]
    _write(path, [node], (kind, shape), (kind, out), sizes, metadata)
    return str(path)


def external_model_file(path: Path, place: str) -> str:
    """Write a network whose weights, nine ones, are in the file `place`, and not in the network's own file."""
    weights = onnx.numpy_helper.from_array(np.ones((3, 3, 1, 1), np.float32), "w")
    onnx.external_data_helper.set_external_data(weights, place)
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["maps"]),
        onnx.helper.make_node("GlobalAveragePool", ["maps"], ["z"]),
    ]
    _write(path, nodes, (FLOAT, ["n", 3, 8, 8]), (FLOAT, ["n", 3, 1, 1]), [weights], {})
    return str(path)


def _write(path: Path, nodes: list[Any], image: Any, features: Any, constants: list[Any], metadata: dict[str, str]) -> None:
    """Write a network from the input "x" to the output "z", which are given as (dtype, shape)."""
    ends = [[onnx.helper.make_tensor_value_info(name, *form)] for name, form in (("x", image), ("z", features))]
    graph = onnx.helper.make_graph(nodes, "tiny", *ends, constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.helper.set_model_props(model, metadata)
    path.write_bytes(model.SerializeToString())
