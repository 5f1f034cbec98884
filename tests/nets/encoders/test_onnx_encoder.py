"""Encoders in ONNX files: what is read from the file, and files that are refused."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.nets.encoders.onnx_files import INT64, external_model_file, model_file

from samekind import SemiSupervisedClassifier
from samekind.errors import ModelFileError, SettingError
from samekind.nets.encoders.frozen_features import FeatureCache, extract_features
from samekind.nets.encoders.names import resolve_encoder
from samekind.nets.encoders.onnx_encoder import OnnxEncoder

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def images(n: int = 5) -> Any:
    return np.random.default_rng(0).integers(0, 256, (n, 8, 8, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("operator", "shape"),
    [("mean", ("n", 3, 8, 8)), ("maps", ("n", 3, 8, 8)), *[("mean", (size, 3, 8, 8)) for size in (1, 2, 4)]],
)
def test_features_are_those_of_the_network(operator: str, shape: Sequence[int | str], tmp_path: Path) -> None:
    path = model_file(tmp_path / "a.onnx", operator=operator, shape=shape, mean="[0, 0, 0]", std="[1, 1, 1]")
    found = extract_features(resolve_encoder(path), images(), cache=FeatureCache(tmp_path / "cache"), batch=2)
    np.testing.assert_allclose(found, images().mean(axis=(1, 2)) / 255.0, rtol=1e-4)


def test_size_and_normalization_are_read_from_the_metadata_or_given(tmp_path: Path) -> None:
    path = model_file(tmp_path / "a.onnx", shape=("n", 3, "h", "w"), side="8", mean="[0.5, 0.5, 0.5]")
    assert OnnxEncoder(path).side == 8 and OnnxEncoder(path).mean.flatten().tolist() == [0.5] * 3
    given = OnnxEncoder(path, side=16, std=(2.0, 2.0, 2.0))
    assert given.side == 16 and given.std.flatten().tolist() == [2.0] * 3
    assert given.fingerprint != OnnxEncoder(path).fingerprint
    assert resolve_encoder(f"{path}@24").side == 24  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shape": ("n", 5)}, r"takes tensor\(float\) \['n', 5\]; expected one input of images"),
        ({"shape": ("n", 4, 8, 8)}, "expected one input of images"),
        ({"shape": ("n", 8, 8, 3)}, "expected one input of images"),
        ({"kind": INT64, "operator": "maps"}, r"takes tensor\(int64\)"),
        ({"operator": "vector"}, r"returns tensor\(float\) \['n'\]; expected float features"),
        ({"shape": ("n", 3, "h", "w")}, r"does not contain the size.*a\.onnx@224"),
        ({"mean": "[0.5]"}, "mean = .*expected three numbers"),
        ({"std": "[1, 1, 0]"}, "std = .*expected three numbers"),
        ({"std": "nonsense"}, "std = 'nonsense'; expected three numbers"),
    ],
)
def test_a_network_of_another_form_is_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    settings = {"operator": "maps", **settings} if len(settings.get("shape", (4, 4, 4, 4))) < 4 else settings
    with pytest.raises((ModelFileError, SettingError), match=message):
        resolve_encoder(model_file(tmp_path / "a.onnx", **settings))


def test_another_size_than_that_of_the_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="takes images of 8 x 8 pixels, but the size 16 was given"):
        resolve_encoder(model_file(tmp_path / "a.onnx") + "@16")


@pytest.mark.parametrize("content", ["truncated", "text", "empty", "pickle", "missing"])
def test_a_file_that_is_no_onnx_model_is_one_sentence_and_runs_nothing(content: str, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    path = tmp_path / "a.onnx"
    whole = Path(model_file(path)).read_bytes()
    blobs = {"truncated": whole[: len(whole) // 2], "text": b"hello", "empty": b"", "pickle": pickle.dumps(Trap())}
    path.unlink() if content == "missing" else path.write_bytes(blobs[content])
    with pytest.raises(ModelFileError, match=r"not a complete ONNX model|cannot be read \(No such file") as caught:
        resolve_encoder(str(path))
    assert "\n" not in str(caught.value) and not (tmp_path / "ran").exists()


def test_a_saved_model_names_its_file_with_a_hash_and_refuses_another(tmp_path: Path) -> None:
    path = model_file(tmp_path / "a.onnx")
    X, y = images(30), np.where(np.arange(30) < 10, np.arange(30) % 2, -1)
    model = SemiSupervisedClassifier("lgc", encoder=path).fit(X, y)
    model.save(tmp_path / "model")
    assert path in (tmp_path / "model" / "model.json").read_text()
    again = SemiSupervisedClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    model_file(tmp_path / "a.onnx", std="[0.2, 0.2, 0.2]")
    with pytest.raises(
        ModelFileError,
        match=r"the encoder .*a\.onnx differs from the one that the model was fitted with: its hash is [0-9a-f]{12}",
    ):
        SemiSupervisedClassifier.load(tmp_path / "model")


@pytest.mark.parametrize(
    "place", ["weights.bin", "../weights.bin", "{folder}/weights.bin", "../../../etc/hostname", "/etc/hostname"]
)
def test_weights_in_another_file_are_refused_wherever_the_file_is(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    for one in (tmp_path, folder):
        (one / "weights.bin").write_bytes(np.ones(9, np.float32).tobytes())
    path = external_model_file(folder / "a.onnx", place.format(folder=tmp_path))
    for here in (tmp_path, folder):  # onnxruntime looks for a relative path in the working directory
        monkeypatch.chdir(here)
        with pytest.raises(ModelFileError, match="keeps its weights in another file; expected one file") as caught:
            resolve_encoder(path)
        assert "\n" not in str(caught.value)
