"""A fit on user data in a run folder: train, resume, load, and predict new data."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from typer.testing import CliRunner

from samekind.cli import app
from samekind.errors import DataError, LabelError, ModelFileError, SettingError
from samekind.nets.encoders.names import ENCODERS
from samekind.project.fit import FitConfig, fit, parse_settings, refit
from samekind.project.predict import predict
from samekind.project.run_folder import active_model_dir, open_run

SIDE = 12


def striped_image(kind: int, seed: int) -> Image.Image:
    """Return an image with horizontal (0) or vertical (1) stripes and noise."""
    rng = np.random.default_rng(seed)
    stripes = 200 * (np.arange(SIDE) // 2 % 2)
    image = np.tile(stripes, (SIDE, 1)) if kind else np.tile(stripes[:, None], (1, SIDE))
    return Image.fromarray(np.clip(image + rng.integers(0, 50, (SIDE, SIDE)), 0, 255).astype(np.uint8))


@pytest.fixture
def image_dir(tmp_path: Path) -> Path:
    """Create 60 images of two classes, 5 labels of each class, and two files that are not images."""
    folder = tmp_path / "images"
    folder.mkdir()
    for k in range(60):
        striped_image(k % 2, k).save(folder / f"{k:02d}.png")
    rows = "".join(f"{k:02d}.png,{'down' if k % 2 else 'across'}\n" for k in range(10))
    (folder / "labels.csv").write_text(f"path,label\n{rows}")
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "text.jpg").write_text("not an image")
    return folder


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def config_for(image_dir: Path) -> FitConfig:
    return FitConfig(str(image_dir), epochs=40)


def test_a_folder_with_a_few_labels_is_classified_and_unreadable_files_are_listed(image_dir: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    done = fit(config_for(image_dir), tmp_path / "run", log=lines.append)
    found = table(tmp_path / "run" / "labels.csv")
    right = [row["label"] == ("down" if int(row["path"][:2]) % 2 else "across") for row in found]
    assert len(found) == done.n_items == 60 and np.mean(right) > 0.95
    assert {row["path"] for row in found if row["given"]} == {f"{k:02d}.png" for k in range(10)}
    assert {row["path"] for row in table(tmp_path / "run" / "skipped.csv")} == {"empty.jpg", "text.jpg"}
    assert done.labelled == {"across": 5, "down": 5} and len(done.skipped) == 2
    assert "60 items (images, 12 x 12 x 1), 10 labelled: across 5, down 5; 2 skipped" in lines[0]


def test_new_images_get_a_label_and_a_confidence(image_dir: Path, tmp_path: Path) -> None:
    fit(config_for(image_dir), tmp_path / "run")
    new = tmp_path / "new"
    new.mkdir()
    for k in range(8):
        striped_image(k % 2, 1000 + k).convert("RGB").save(new / f"{k}.png")
    (new / "cut.png").write_bytes((new / "0.png").read_bytes()[:40])
    n_items, skipped = predict(tmp_path / "run", new, tmp_path / "predictions" / "new.csv")
    found = table(tmp_path / "predictions" / "new.csv")
    assert n_items == 8 and [one.path for one in skipped] == ["cut.png"]
    assert [row["label"] for row in found] == ["across", "down"] * 4
    assert all(0.5 <= float(row["confidence"]) <= 1.0 for row in found)
    predict(tmp_path / "run", new / "3.png", tmp_path / "one.csv")
    assert [row["label"] for row in table(tmp_path / "one.csv")] == ["down"]


def test_a_finished_fit_is_not_repeated(image_dir: Path, tmp_path: Path) -> None:
    first = fit(config_for(image_dir), tmp_path / "run")
    before = (tmp_path / "run" / "model" / "model.json").stat().st_mtime_ns
    again = fit(config_for(image_dir), tmp_path / "run")
    assert again.already_finished and not first.already_finished
    assert replace(again, already_finished=False) == first
    assert (tmp_path / "run" / "model" / "model.json").stat().st_mtime_ns == before
    assert "nothing to do" in str(again)


def test_another_fit_into_the_same_folder_is_refused(image_dir: Path, tmp_path: Path) -> None:
    fit(config_for(image_dir), tmp_path / "run")
    with pytest.raises(SettingError, match=r"holds a run with seed = 0, but 1 was requested"):
        fit(replace(config_for(image_dir), seed=1), tmp_path / "run")


def test_a_folder_that_holds_something_else_is_left_alone(image_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(SettingError, match="holds no run"):
        fit(config_for(image_dir), tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_a_fit_that_cannot_start_leaves_no_folder(image_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        fit(FitConfig(str(tmp_path / "nowhere")), tmp_path / "run")
    with pytest.raises(DataError, match="empty"):
        fit(replace(config_for(image_dir), strict=True), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_without_any_label_is_refused_with_two_ways_to_label_it(image_dir: Path, tmp_path: Path) -> None:
    (image_dir / "labels.csv").unlink()
    ways = r"none of the 60 items has a label\. Name a file of labels with --labels, or .* `samekind serve .*images`"
    with pytest.raises(LabelError, match=ways):
        fit(config_for(image_dir), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "learned_grahp"},
        {"net": "compakt"},
        {"views": "random_walk"},
        {"settings": {"lamda2": 1.0}},
        {"settings": {"lambda2": {}}},
        {"settings": {"lambda2": []}},
    ],
    ids=str,
)
def test_a_fit_with_a_wrong_setting_can_be_corrected_in_the_same_folder(
    image_dir: Path, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    config = FitConfig(str(image_dir), epochs=2.0)
    with pytest.raises(SettingError):
        fit(replace(config, **wrong), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert not fit(config, tmp_path / "run").already_finished


def test_a_fit_reports_its_cost(image_dir: Path, tmp_path: Path) -> None:
    summary = fit(FitConfig(str(image_dir), epochs=2.0), tmp_path / "run").cost_summary()
    assert re.fullmatch(
        r"\d+ steps in \d+ s, \d+ samples/s, [\d.e-]+ TFLOP at [\d.e+]+ GFLOP/s, \d+ MB peak memory", summary
    ), summary
    assert fit(FitConfig(str(image_dir), epochs=2.0, method="lgc"), tmp_path / "other").cost_summary() == ""


def test_tables_and_arrays_are_fitted_in_the_same_way(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    kinds = np.arange(80) % 2
    x = 6.0 * kinds[:, None] + rng.standard_normal((80, 3))
    rows = [f"id{k},{a:.4f},{b:.4f},{c:.4f},{'ab'[kinds[k]] if k < 10 else ''}" for k, (a, b, c) in enumerate(x)]
    (tmp_path / "t.csv").write_text("id,u,v,w,label\n" + "\n".join(rows) + "\n")
    fit(FitConfig(str(tmp_path / "t.csv"), epochs=10), tmp_path / "run")
    assert [row["label"] for row in table(tmp_path / "run" / "labels.csv")] == ["ab"[kind] for kind in kinds]
    np.savez(tmp_path / "t.npz", X=x, y=np.where(np.arange(80) < 10, kinds, -1))
    fit(FitConfig(str(tmp_path / "t.npz"), method="supervised", epochs=10), tmp_path / "run2")
    assert [row["label"] for row in table(tmp_path / "run2" / "labels.csv")] == [str(kind) for kind in kinds]


def test_an_unfinished_or_missing_run_cannot_predict(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"holds no run\.json"):
        predict(tmp_path, tmp_path, tmp_path / "out.csv")
    (tmp_path / "run.json").write_text(json.dumps({"format": 2, "finished": False, "config": {}}))
    with pytest.raises(ModelFileError, match="is not finished"):
        predict(tmp_path, tmp_path, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_a_run_of_an_earlier_format_is_refused_with_the_next_step(image_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "finished": True, "wanted": {}, "result": {}}))
    message = r"has format 1, but this version of samekind reads format 2. .* Fit again into another folder"
    with pytest.raises(ModelFileError, match=message):
        predict(tmp_path, image_dir, tmp_path / "out.csv")
    with pytest.raises(ModelFileError, match=message):
        fit(FitConfig(str(image_dir)), tmp_path)
    assert not (tmp_path / "out.csv").exists()


def test_data_of_another_type_is_refused_at_predict(image_dir: Path, tmp_path: Path) -> None:
    fit(FitConfig(str(image_dir), epochs=1), tmp_path / "run")
    np.save(tmp_path / "x.npy", np.zeros((4, 3)))
    with pytest.raises(DataError):
        predict(tmp_path / "run", tmp_path / "x.npy", tmp_path / "out.csv")


def test_settings_of_the_command_line_are_numbers_strings_and_lists() -> None:
    arguments = ["lambda2=0.3", "detach_w=true", "pairs=paper", "layers=[8,4]", "prior=null"]
    assert parse_settings(arguments) == {"lambda2": 0.3, "detach_w": True, "pairs": "paper", "layers": [8, 4], "prior": None}
    with pytest.raises(SettingError, match="expected NAME=VALUE"):
        parse_settings(["lambda2"])


def test_a_killed_fit_resumes_and_ends_with_the_same_labels(image_dir: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "samekind", "fit", str(image_dir), "--epochs", "40", "--out"]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    killed = subprocess.Popen([*command, str(tmp_path / "killed")], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "killed" / "history.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    subprocess.run([*command, str(tmp_path / "killed")], check=True, capture_output=True)
    assert (tmp_path / "killed" / "labels.csv").read_bytes() == (tmp_path / "whole" / "labels.csv").read_bytes()


@pytest.mark.parametrize("slower_after", [None, 0.4])
def test_a_fit_with_a_time_limit_reports_how_to_repeat_it(
    image_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slower_after: float | None
) -> None:
    readings = 0.0

    def now() -> float:  # every reading of the clock takes 10 ms, and later 100 ms
        nonlocal readings
        readings += 0.01 if slower_after is None or readings < slower_after else 0.1
        return readings

    monkeypatch.setattr("samekind.clock.perf_counter", now)
    made = CliRunner().invoke(app, ["fit", str(image_dir), "--out", str(tmp_path / "a"), "--minutes", "0.02"])
    assert made.exit_code == 0
    assert readings < 1.2 + 0.5
    if slower_after is not None:
        assert re.search(r"\d+ of \d+ planned steps fitted into the time, because the machine became slower", made.output)
        return
    found = re.search(r"to repeat exactly these steps, pass --epochs (\S+) instead of --minutes", made.output)
    assert found
    CliRunner().invoke(app, ["fit", str(image_dir), "--out", str(tmp_path / "b"), "--epochs", found[1]])
    assert (tmp_path / "a" / "labels.csv").read_bytes() == (tmp_path / "b" / "labels.csv").read_bytes()


class Lines(nn.Module):
    """Encoder that returns the mean vertical and horizontal difference, and records the shapes of its inputs."""

    side = 24
    given: ClassVar[list[tuple[int, ...]]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.given.append(tuple(x.shape))
        down, across = (x.diff(dim=2).abs().mean(dim=(1, 2, 3)), x.diff(dim=3).abs().mean(dim=(1, 2, 3)))
        return torch.stack([down, across], dim=1)


def test_a_run_on_frozen_features_fits_resumes_and_predicts(
    image_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENCODERS, "lines", Lines)
    monkeypatch.setattr(Lines, "given", [])
    on_lines = replace(config_for(image_dir), encoder="lines")
    fit(on_lines, tmp_path / "run")
    found = table(tmp_path / "run" / "labels.csv")
    assert all(row["label"] == ("down" if int(row["path"][:2]) % 2 else "across") for row in found)
    assert len(list((tmp_path / "run" / "cache").glob("features-*.npy"))) == 1
    assert sum(shape[0] for shape in Lines.given) == 60 + 1, "each image once, and one image for the model file"
    assert fit(on_lines, tmp_path / "run").already_finished
    with pytest.raises(SettingError, match="holds a run with encoder = 'lines', but 'auto' was requested"):
        fit(config_for(image_dir), tmp_path / "run")
    predict(tmp_path / "run", image_dir / "01.png", tmp_path / "one.csv")
    assert [row["label"] for row in table(tmp_path / "one.csv")] == ["down"]


def test_an_unfinished_run_on_features_does_not_encode_again(
    image_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENCODERS, "lines", Lines)
    on_lines = replace(config_for(image_dir), encoder="lines")
    fit(on_lines, tmp_path / "run")
    before = (tmp_path / "run" / "labels.csv").read_bytes()
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**manifest, "finished": False}))
    monkeypatch.setattr(Lines, "given", [])
    fit(on_lines, tmp_path / "run")
    assert sum(shape[0] for shape in Lines.given) == 1  # one image for the model file
    assert (tmp_path / "run" / "labels.csv").read_bytes() == before


def test_large_images_are_decoded_at_the_input_size_of_the_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENCODERS, "lines", Lines)
    monkeypatch.setattr(Lines, "given", [])
    for kind in ("across", "down"):
        (tmp_path / "images" / kind).mkdir(parents=True)
        for k in range(6):
            striped_image(int(kind == "down"), k).resize((60, 50)).save(tmp_path / "images" / kind / f"{k}.png")
    fit(FitConfig(str(tmp_path / "images"), encoder="lines", epochs=1), tmp_path / "run")
    assert {shape[1:] for shape in Lines.given} == {(1, 24, 24)}


def test_a_fit_without_options_encodes_images_in_colour_and_is_opened_again(tmp_path: Path) -> None:
    for kind in ("across", "down"):
        (tmp_path / "images" / kind).mkdir(parents=True)
        for k in range(6):
            image = striped_image(int(kind == "down"), k).convert("RGB").resize((24, 24))
            image.save(tmp_path / "images" / kind / f"{k}.png")
    result = fit(FitConfig(str(tmp_path / "images")), tmp_path / "run")
    model = open_run(tmp_path / "run").model.model_
    assert result.n_items == 12 and str(model.encoder).startswith("efficientnet_lite")
    predict(tmp_path / "run", tmp_path / "images", tmp_path / "new.csv")


def test_an_unknown_or_unsuitable_encoder_is_refused_and_leaves_no_folder(image_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="there is no encoder 'resnet'"):
        fit(replace(config_for(image_dir), encoder="resnet"), tmp_path / "run")
    with pytest.raises(SettingError, match="would run code of its repository"):
        fit(replace(config_for(image_dir), encoder="hub:repository:tiny"), tmp_path / "run")
    np.savez(tmp_path / "t.npz", X=np.zeros((4, 3)), y=[0, 1, -1, -1])
    with pytest.raises(SettingError, match="holds vectors, but the encoder efficientnet_lite0 is for images"):
        fit(FitConfig(str(tmp_path / "t.npz"), encoder="efficientnet_lite0"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_model_that_the_page_activated_predicts(image_dir: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit(replace(config_for(image_dir), method="label_propagation"), run)
    assert active_model_dir(run) == run / "model"
    (run / "serve").mkdir()
    refit(run, lambda data: ["down" if int(name[:2]) % 2 else "across" for name in data.names], run / "serve" / "model-2")
    (run / "serve" / "active.json").write_text('{"format": 2, "version": 2, "model": "serve/model-2"}')
    assert active_model_dir(run) == run / "serve" / "model-2"
    predict(run, image_dir, tmp_path / "new.csv")
    assert {row["label"] for row in table(tmp_path / "new.csv") if int(row["path"][:2]) % 2} == {"down"}
    (run / "serve" / "active.json").write_text("nonsense")
    with pytest.raises(ModelFileError, match=r"active\.json"):
        active_model_dir(run)


def test_ids_of_table_rows_come_back_under_their_own_column_name(tmp_path: Path) -> None:
    rows = [f"{'no'[k % 2]}{k},{k % 2 * 9 + k / 100},{'ab'[k % 2] if k < 8 else ''}" for k in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["key,x,label", *rows]))
    fit(FitConfig(str(tmp_path / "t.csv")), tmp_path / "run")
    predict(tmp_path / "run", tmp_path / "t.csv", tmp_path / "p.csv")
    for file in (tmp_path / "run" / "labels.csv", tmp_path / "p.csv"):
        assert [row["key"] for row in table(file)] == [row.split(",")[0] for row in rows]
    assert open_run(tmp_path / "run").predictions()[0][:2] == ["n0", "o1"]
