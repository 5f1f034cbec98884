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
from samekind.project.fit import FitConfig, fit, fit_again
from samekind.project.run_folder import finetuned_encoder
from samekind.server.session import Session

SIDE, N = 32, 12
# predictions for a few images may have other class fractions than the labels, which raises a warning
pytestmark = pytest.mark.filterwarnings("ignore::samekind.errors.ClassFractionWarning")


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


@pytest.fixture(scope="module")
def tuned_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that the command line has fine-tuned, on 24 images."""
    folder = tmp_path_factory.mktemp("tuned")
    images = folder / "images"
    images.mkdir()
    for k in range(24):
        values = np.random.default_rng(k).integers(0, 80, (SIDE, SIDE, 3))
        values[: SIDE // 2 if k % 2 else SIDE] += 100
        Image.fromarray(values.astype(np.uint8)).save(images / f"{k:02d}.png")
    (images / "labels.csv").write_text(
        "path,label\n" + "".join(f"{k:02d}.png,{'half' if k % 2 else 'full'}\n" for k in range(20))
    )
    command = [
        "fit",
        str(images),
        "--encoder",
        "lite0@32",
        "--finetune",
        "last",
        "--minutes",
        "0.1",
        "--out",
        str(folder / "run"),
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "fine-tuning: last 5 of 16 blocks" in " ".join(result.stderr.split())
    return folder / "run"


def test_fit_with_finetune_leaves_a_finetuned_model_and_no_feature_maps(tuned_run: Path) -> None:
    assert list((tuned_run / "model").glob("encoder-*.safetensors"))
    assert not (tuned_run / "cache" / "maps").exists()
    assert CliRunner().invoke(app, ["predict", str(tuned_run), str(tuned_run.parent / "images")]).exit_code == 0


def test_labels_on_the_page_update_the_model_with_its_finetuned_encoder(tuned_run: Path) -> None:
    encoder: Any = finetuned_encoder(tuned_run)
    labels: list[str | None] = [("half" if k % 2 else "full") if k < 20 else None for k in range(24)]
    model, data, y = fit_again(tuned_run, lambda data: labels, tuned_run / "serve", encoder=encoder)
    assert model.updates_ is not None and len(data) == 24
    assert model.model_.preprocessor.encoder is encoder
    assert y[20] is None and model.update([20], ["half"]).transduction_[20] == "half"


def test_a_wrong_value_of_finetune_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["fit", str(tmp_path), "--finetune", "first", "--out", str(tmp_path / "run")])
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert "finetune is 'first'; expected 'auto', 'none', 'last' or 'all'" in result.stderr
