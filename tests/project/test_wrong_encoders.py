"""Wrong encoder files on the command line: exit code 2, one sentence, no code is run, and no folder is left behind."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.nets.encoders.onnx_files import INT64, external_model_file, model_file
from typer.testing import CliRunner

from samekind.cli import app

pytest.importorskip("onnxruntime")
N = 8


class Trap:
    """Object whose unpickling creates the file `ran` in the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return Path.touch, (self.folder / "ran",)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Return a folder of eight images in colour, four of them labelled."""
    folder = tmp_path / "images"
    folder.mkdir()
    for k in range(N):
        values = np.random.default_rng(k).integers(0, 256, (24, 24, 3))
        Image.fromarray(values.astype(np.uint8)).save(folder / f"{k}.png")
    (folder / "labels.csv").write_text("path,label\n0.png,a\n1.png,b\n2.png,a\n3.png,b\n")
    return folder


def wrong_file(kind: str, folder: Path) -> str:
    """Write a file that is no usable encoder; return its path."""
    path = folder / "bad.onnx"
    if kind in ("pickle.pt", "pickle.pkl", "pickle.pth"):
        path = folder / kind
        torch.save(Trap(folder), path) if kind.endswith("pt") else path.write_bytes(pickle.dumps(Trap(folder)))
    elif kind == "external data":
        external_model_file(path, "../../../../etc/hostname")
    elif kind == "input shape":
        model_file(path, shape=("n", 8, 8, 3))
    elif kind == "input dtype":
        model_file(path, kind=INT64, operator="maps")
    elif kind == "output rank":
        model_file(path, operator="vector")
    elif kind == "inconsistent":
        model_file(path, operator="broken")
    else:
        blob = Path(model_file(path)).read_bytes()
        path.write_bytes({"truncated": blob[:60], "text": b"hello", "empty": b"", "pickle": pickle.dumps(Trap(folder))}[kind])
    return str(path)


WRONG = {
    "truncated": "is not a complete ONNX model",
    "text": "is not a complete ONNX model",
    "empty": "is not a complete ONNX model",
    "pickle": "is not a complete ONNX model",
    "pickle.pt": "is not loaded: a .pt file may run code when it is opened",
    "pickle.pth": "is not loaded: a .pth file may run code when it is opened",
    "pickle.pkl": "is not loaded: a .pkl file may run code when it is opened",
    "external data": "keeps its weights in another file",
    "input shape": "expected one input of images, float (n, 3, H, W)",
    "input dtype": "expected one input of images, float (n, 3, H, W)",
    "output rank": "expected float features (n, d) or maps (n, d, h, w)",
    "inconsistent": "cannot encode images of 8 pixels",
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("command", ["fit", "serve"])
def test_a_wrong_encoder_file_is_one_sentence_runs_nothing_and_leaves_nothing(
    command: str, kind: str, images: Path, tmp_path: Path
) -> None:
    encoder = wrong_file(kind, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    result = CliRunner().invoke(app, [command, str(images), "--encoder", encoder, "--out", str(tmp_path / "run")])
    errors = [line for line in result.stderr.splitlines() if line.startswith("samekind:")]
    assert (result.exit_code, len(errors)) == (2, 1), result.output
    assert encoder in errors[0] and WRONG[kind] in errors[0] and "Traceback" not in result.output
    assert sorted(tmp_path.rglob("*")) == before, "no folder of the run is left, and no code was run"


def test_the_command_can_be_repeated_with_a_good_encoder(images: Path, tmp_path: Path) -> None:
    wrong, out = wrong_file("inconsistent", tmp_path), str(tmp_path / "run")
    for encoder, code in ((wrong, 2), (model_file(tmp_path / "good.onnx"), 0)):
        assert CliRunner().invoke(app, ["fit", str(images), "--encoder", encoder, "--out", out]).exit_code == code


def test_a_run_whose_encoder_file_was_replaced_does_not_predict(images: Path, tmp_path: Path) -> None:
    encoder, run = model_file(tmp_path / "a.onnx"), str(tmp_path / "run")
    assert CliRunner().invoke(app, ["fit", str(images), "--encoder", encoder, "--out", run]).exit_code == 0
    model_file(tmp_path / "a.onnx", std="[0.2, 0.2, 0.2]")
    result = CliRunner().invoke(app, ["predict", run, str(images)])
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert "differs from the one that the model was fitted with: its hash is" in result.stderr
