"""The folder of a run: how a fit begins in it, fails in it, and shares it with other processes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image

from samekind.errors import DataError, ModelFileError, SettingError
from samekind.project.fit import FitConfig, create_unlabelled_project, fit
from samekind.project.run_folder import is_free


@pytest.fixture
def config(tmp_path: Path) -> FitConfig:
    """Write a table of 20 rows with 4 labels, and return a fit of it that takes no time."""
    rows = "".join(f"{k % 2 * 5 + k / 100},{k % 2},{'ab'[k % 2] if k < 4 else ''}\n" for k in range(20))
    (tmp_path / "table.csv").write_text(f"u,v,label\n{rows}")
    return FitConfig(str(tmp_path / "table.csv"), method="lgc")


def missing(config: FitConfig) -> FitConfig:
    return FitConfig(config.data + ".missing", method="lgc")


# ---------------------------------------------------------------- a fit that was killed as it began


@pytest.mark.parametrize("names", [[], ["lock"], [".run.json.12-34.part"], ["lock", ".run.json.12-34.part"]], ids=str)
def test_a_fit_begins_where_one_was_killed_in_its_first_write(config: FitConfig, tmp_path: Path, names: list[str]) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in names:
        (run / name).write_bytes(b'{"form' if name.endswith(".part") else b"")
    assert is_free(run)
    assert fit(config, run).n_items == 20
    assert not list(run.rglob(".*.part"))


def test_an_unlabelled_project_begins_where_one_was_killed_in_its_first_write(config: FitConfig, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".run.json.12-34.part").write_bytes(b"{")
    data, _ = create_unlabelled_project(config.data, tmp_path / "run")
    assert len(data) == 20 and not list((tmp_path / "run").rglob(".*.part"))


def test_a_resumed_fit_removes_what_was_not_finished(config: FitConfig, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit(config, run)
    text = (run / "run.json").read_text().replace('"finished": true', '"finished": false')
    (run / "run.json").write_text(text)
    left = [run / ".labels.csv.12-34.part", run / "model" / ".weights-0.safetensors.12-34.part"]
    for path in left:
        path.write_bytes(b"half")
    fit(config, run)
    assert not list(run.rglob(".*.part"))


def test_an_unfinished_run_without_its_configuration_is_refused(config: FitConfig, tmp_path: Path) -> None:
    fit(config, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({"format": manifest["format"], "finished": False}))
    with pytest.raises(ModelFileError, match=r"run\.json was changed: .*config"):
        fit(config, tmp_path / "run")


@pytest.mark.parametrize("name", ["thesis.tex", ".run.json.part", "lock"])
def test_a_folder_with_a_file_of_the_user_is_left_alone(config: FitConfig, tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / name).write_text("mine")
    with pytest.raises(SettingError, match="holds no run"):
        fit(config, run)
    assert [(path.name, path.read_text()) for path in run.iterdir()] == [(name, "mine")]


# ---------------------------------------------------------------- a fit that fails


@pytest.mark.parametrize("create", [fit, lambda config, out: create_unlabelled_project(config.data, out)])
def test_a_failed_fit_keeps_the_empty_folder_of_the_user(
    config: FitConfig, tmp_path: Path, create: Callable[[FitConfig, Path], object]
) -> None:
    (tmp_path / "mine").mkdir()
    for run in (tmp_path / "mine", tmp_path / "ours"):
        with pytest.raises(DataError, match="does not exist"):
            create(missing(config), run)
    assert list((tmp_path / "mine").iterdir()) == [] and not (tmp_path / "ours").exists()
    assert fit(config, tmp_path / "mine").n_items == 20


# ---------------------------------------------------------------- two fits at once


@pytest.mark.parametrize("create", [fit, lambda config, out: create_unlabelled_project(config.data, out)])
def test_a_second_fit_into_one_folder_is_refused_before_it_writes(
    config: FitConfig, tmp_path: Path, create: Callable[[FitConfig, Path], object]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with FileLock(run / "lock"), pytest.raises(SettingError, match=r"another process is fitting in .*Wait for it"):
        create(config, run)
    assert {path.name for path in run.iterdir()} <= {"lock"}
    fit(config, run)


@pytest.mark.parametrize("name", ["lock", "history.jsonl"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to(path.parent.parent / "victim")])
def test_a_fit_does_not_write_through_a_link_or_a_pipe_in_its_folder(
    config: FitConfig, tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    run = tmp_path / "run"
    fit(config, run)
    (run / "run.json").write_text((run / "run.json").read_text().replace('"finished": true', '"finished": false'))
    (tmp_path / "victim").write_text("precious")
    (run / name).unlink(missing_ok=True)
    make(run / name)
    with pytest.raises(SettingError, match="is not a regular file"):
        fit(config, run)
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_run_cannot_begin_below_a_file(config: FitConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for out in (tmp_path / "file", tmp_path / "file" / "run", tmp_path / ("x" * 300)):
        with pytest.raises(SettingError, match=r"cannot be used for a run|does not exist yet|is no folder|too long"):
            fit(config, out)


# ---------------------------------------------------------------- a run inside the data


def test_a_run_inside_the_data_is_no_data(tmp_path: Path) -> None:
    images = tmp_path / "images"
    rng = np.random.default_rng(0)
    for kind in "ab":
        (images / kind).mkdir(parents=True)
        for k in range(5):
            Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(images / kind / f"{k}.png")
    config = FitConfig(str(images), method="lgc")
    assert fit(config, images / "run").n_items == 10
    for folder in ("serve/thumbs", "model", "cache"):
        (images / "run" / folder).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(images / "run" / folder / "thumbnail.png")
    assert fit(config, images / "second").n_items == 10
    (images / "run" / "run.json").write_text("{damaged")
    assert fit(config, images / "third").n_items == 10
    (images / "run" / "run.json").write_text('{"mine": 1}')  # a folder of the user that only has such a file
    assert fit(config, images / "fourth").n_items == 13
