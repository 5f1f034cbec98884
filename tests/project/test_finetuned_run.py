"""A run whose encoder was fine-tuned: predict, query and the server load it with its own weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from samekind.cli import app
from samekind.model import FittedModel
from samekind.nets.encoders.efficientnet import efficientnet_lite
from samekind.nets.encoders.finetuned import finetuned
from samekind.project.fit import FitConfig, fit
from samekind.server.session import Session

SIDE, N = 32, 12


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run on 12 images, whose model has an encoder with other weights in its last block."""
    images = tmp_path / "images"
    images.mkdir()
    for k in range(N):
        values = np.random.default_rng(k).integers(0, 80, (SIDE, SIDE, 3))
        values[: SIDE // 2 if k % 2 else SIDE] += 100
        Image.fromarray(values.astype(np.uint8)).save(images / f"{k:02d}.png")
    rows = "".join(f"{k:02d}.png,{'half' if k % 2 else 'full'}\n" for k in range(6))
    (images / "labels.csv").write_text(f"path,label\n{rows}")
    fit(FitConfig(str(images), encoder="lite0@32"), tmp_path / "run")
    save_finetuned_model(tmp_path / "run" / "model")
    return tmp_path / "run"


@torch.no_grad()
def save_finetuned_model(folder: Path) -> None:
    model: Any = FittedModel.load(folder)
    net = efficientnet_lite(side=SIDE)
    for parameter in net.blocks[-1].parameters():
        parameter.mul_(1.01)
    replace(model, preprocessor=replace(model.preprocessor, encoder=finetuned(net))).save(folder)


def test_predict_query_and_the_server_use_the_weights_beside_the_model(run: Path) -> None:
    folder = str(run.parent / "images")
    for command in (["predict", str(run), folder], ["query", str(run), folder]):
        result = CliRunner().invoke(app, command)
        assert (result.exit_code, result.stderr.count("samekind:")) == (0, 0), result.output
    session = Session(run)
    session.close()


def test_a_damaged_weights_file_is_one_sentence_and_exit_code_2(run: Path) -> None:
    (path,) = (run / "model").glob("encoder-*")
    path.write_bytes(path.read_bytes()[:1000])
    result = CliRunner().invoke(app, ["predict", str(run), str(run.parent / "images")])
    assert result.exit_code == 2 and "Traceback" not in result.output
    assert f"{path.name} was changed after it was written" in result.stderr and result.stderr.count("\n") == 1
