"""Model files that were changed: each ends in one sentence, before memory is used and without a file being touched."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as read_arrays
from safetensors.numpy import save as write_arrays
from sklearn.datasets import make_blobs

from samekind import SemiSupervisedClassifier
from samekind.errors import ModelFileError, SamekindError

X, TRUE = make_blobs(60, n_features=4, centers=3, random_state=1)
Y = np.where(np.arange(60) < 15, TRUE, -1)
METHODS = ("learned_graph", "ensemble", "lgc", "laprls")


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a model of each kind of predictor."""
    folder = tmp_path_factory.mktemp("models")
    for method in METHODS:
        epochs: Any = 1 if method == "learned_graph" else "auto"
        SemiSupervisedClassifier(method, epochs=epochs, random_state=0).fit(X, Y).save(folder / method)
    return folder


@pytest.fixture(params=METHODS)
def model(request: pytest.FixtureRequest, originals: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals / request.param, tmp_path / "model"))


@pytest.fixture
def deep(originals: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals / "learned_graph", tmp_path / "model"))


def manifest_of(model: Path) -> Any:
    return json.loads((model / "model.json").read_text())


def change(model: Path, place: str, value: Any) -> None:
    """Set the value at a place such as input.shape in model.json."""
    content = manifest_of(model)
    *above, last = place.split(".")
    node = content
    for key in above:
        node = node[key]
    node[last] = value
    (model / "model.json").write_text(json.dumps(content))


def rewrite_weights(model: Path, function: Callable[[bytes], bytes]) -> None:
    """Change the bytes of the weights, and let their name and model.json fit again."""
    (path,) = model.glob("weights-*")
    blob = function(path.read_bytes())
    path.unlink()
    name = f"weights-{hashlib.sha256(blob).hexdigest()[:16]}.safetensors"
    (model / name).write_bytes(blob)
    change(model, "weights", name)


def with_arrays(**changed: Any) -> Callable[[bytes], bytes]:
    """Return a function that replaces arrays, or removes those that are None; `__` in a name stands for a dot."""

    def function(blob: bytes) -> bytes:
        arrays = read_arrays(blob)
        for name, array in changed.items():
            arrays.pop(name.replace("__", "."), None)
            if array is not None:
                arrays[name.replace("__", ".")] = array
        return bytes(write_arrays(arrays))

    return function


def with_header(change_it: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def function(blob: bytes) -> bytes:
        size = int.from_bytes(blob[:8], "little")
        header = json.loads(blob[8 : 8 + size])
        change_it(header)
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + blob[8 + size :]

    return function


def assert_refused(model: Path, match: str) -> None:
    with pytest.raises(ModelFileError, match=match) as caught:
        SemiSupervisedClassifier.load(model)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- what a file may say


@pytest.mark.parametrize("name", ["history", "checkpoint", "tensorboard", "cache", "progress", "net", "save_every", "lambda"])
def test_a_model_file_cannot_name_a_file_that_fit_would_write(deep: Path, name: str) -> None:
    victim = deep.parent / "victim"
    victim.write_text("precious")
    change(deep, f"metadata.parameters.{name}", str(victim))
    assert_refused(deep, "which is never saved")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("weights", "../model/weights.safetensors"),
        ("weights", 3),
        ("shape", [4, 4]),
        ("shape", [2**40]),
        ("shape", [5]),
        ("input.shape", [5]),
        ("input.side", 1),
        ("input", []),
        ("classes", []),
        ("classes", [0, 1]),
        ("classes", [2, 1, 0]),
        ("classes", [0, 1, 10**400]),
        ("classes", ["a", 1, 2]),
        ("classes_dtype", "<U999999"),
        ("classes_dtype", "|O"),
        ("classes_dtype", "<i3"),
        ("classes_dtype", "|b1"),
        ("predictor", {"kind": "deep", "code": "x"}),
        ("predictor.kind", "graph"),
        ("predictor.kind", "ensemble"),
        ("predictor.kind", ["deep"]),
        ("predictor.log_odds", float("nan")),
        ("predictor.beta", "3"),
        ("predictor.similarity_layers", [10**6, 1000]),
        ("predictor.similarity_layers", [2**24] * 64),
        ("predictor.similarity_layers", [1] * 10**5),
        ("predictor.similarity_layers", [-1]),
        ("predictor.similarity_layers", None),
        ("net", "conv13"),
        ("net", {}),
        ("device", "../x"),
        ("encoder", "resnet"),
        ("custom_encoder", True),
        ("metadata", None),
        ("metadata.parameters", []),
        ("metadata.parameters.method", 5),
        ("metadata.parameters.settings", "x"),
        ("metadata.parameters.batch_size", {"a": 1}),
        ("metadata.history", "x"),
        ("metadata.cost", {"seconds": "x"}),
        ("metadata.n_iter", -1),
        ("metadata.epochs", float("inf")),
    ],
)
def test_a_description_that_save_does_not_write_is_refused(deep: Path, place: str, value: Any) -> None:
    change(deep, place, value)
    with pytest.raises(SamekindError) as caught:
        SemiSupervisedClassifier.load(deep)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


@pytest.mark.parametrize(("size", "value"), [("n_points", 2**50), ("n_classes", 0), ("n_features", 7), ("n_neighbors", 10**9)])
@pytest.mark.parametrize("method", ["lgc", "laprls"])
def test_sizes_of_a_graph_that_its_tensors_do_not_have_are_refused(
    originals: Path, tmp_path: Path, method: str, size: str, value: int
) -> None:
    model = Path(shutil.copytree(originals / method, tmp_path / "model"))
    if (method, size) == ("laprls", "n_neighbors"):
        return  # a kernel has no neighbours
    change(model, f"predictor.{size}", value)
    assert_refused(model, "was changed")


# ---------------------------------------------------------------- what the tensors may be


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"train__codes": np.full(60, 9)}, "class numbers of 3 or more"),
        ({"train__codes": np.zeros(60, dtype=np.float32)}, "has the dtype F32; expected I64"),
        ({"train__codes": None}, "the training set of the model is missing"),
        ({"train__features": np.zeros((60, 1))}, "train.features has the shape"),
        ({"train__features": np.zeros((2, 2), dtype=np.int64)}, "train.features has the shape"),
        ({"train__probabilities": np.zeros((60, 9))}, "train.probabilities has the shape"),
        ({"scaler__mean": np.zeros(9)}, "scaler.mean has the shape"),
        ({"scaler__scale": None}, "scaler.scale is missing"),
        ({"scaler__basis": np.zeros((9, 2))}, "scaler.basis has the shape"),
        ({"encoder__probe": np.zeros((1, 4), dtype=np.float32)}, "does not fit its encoder"),
        ({"predictor__more": np.zeros(3)}, "expected no such tensor"),
    ],
    ids=str,
)
def test_tensors_of_another_shape_or_type_are_refused(model: Path, changed: dict[str, Any], match: str) -> None:
    rewrite_weights(model, with_arrays(**changed))
    assert_refused(model, match)


@pytest.mark.parametrize(
    "change_it",
    [
        lambda header: header.popitem(),
        lambda header: header["train.codes"].update(dtype="X9"),
        lambda header: header["train.codes"].update(shape=[2**62, 2**62]),
        lambda header: header["train.codes"].update(shape="60"),
        lambda header: header["train.codes"].update(data_offsets=[8, 0]),
        lambda header: header["train.codes"].update(data_offsets=[0, 2**63]),
        lambda header: header.update({"train.codes": 3}),
        lambda header: header.update({"__metadata__": {"a": 1}}),
    ],
)
def test_a_header_that_does_not_describe_the_file_is_refused(deep: Path, change_it: Callable[[dict[str, Any]], object]) -> None:
    rewrite_weights(deep, with_header(change_it))
    assert_refused(deep, "was changed after it was written")


@pytest.mark.parametrize(
    "function",
    [
        lambda blob: b"",
        lambda blob: blob[:7],
        lambda blob: blob[:-1],
        lambda blob: blob + b"\0",
        lambda blob: b"\xff" * 8 + blob[8:],
        lambda blob: (2**20).to_bytes(8, "little") + b"[" * 2**20,
        lambda blob: (2).to_bytes(8, "little") + b"[]",
        lambda blob: (22).to_bytes(8, "little") + b'{"a":{}, "a":{}      }',
    ],
)
def test_bytes_that_are_no_tensor_file_are_refused(deep: Path, function: Callable[[bytes], bytes]) -> None:
    rewrite_weights(deep, function)
    assert_refused(deep, "was changed after it was written")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink(path, path)])
@pytest.mark.parametrize("name", ["weights-*", "model.json"])
def test_only_regular_files_are_read(deep: Path, make: Callable[[Path], None], name: str) -> None:
    (path,) = deep.glob(name)
    path.unlink()
    make(path)
    assert_refused(deep, "missing|cannot be read")


def test_weights_larger_than_the_memory_are_not_read(deep: Path) -> None:
    (path,) = deep.glob("weights-*")
    os.truncate(path, 2**42)  # a sparse file
    assert_refused(deep, "more than the memory of this machine")


def test_another_net_than_that_of_the_fit_is_refused(tmp_path: Path) -> None:
    from torch import nn

    SemiSupervisedClassifier("supervised", net=nn.Linear(4, 8), epochs=1, random_state=0).fit(X, Y).save(tmp_path)
    for net in (nn.Linear(4, 9), nn.Linear(3, 8)):
        with pytest.raises(ModelFileError, match="Pass the same net as at the fit"):
            SemiSupervisedClassifier.load(tmp_path, net=net)


@pytest.mark.parametrize("seed", range(3))
def test_random_changes_end_in_a_model_or_in_one_of_our_errors(model: Path, seed: int) -> None:
    rng, text = random.Random(seed), (model / "model.json").read_bytes()
    for _ in range(15):
        at = rng.randrange(len(text))
        changed = text[:at] + rng.choice((b"0", b"9", b"-", b"[", b"e9", b'"', b"", b"null", b"true")) + text[at + 1 :]
        (model / "model.json").write_bytes(changed)
        with suppress(SamekindError):
            SemiSupervisedClassifier.load(model).predict(X)
