"""`samekind query`: search by images, folders, arrays and items of the run; a table and a figure as output."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from samekind.cli import app
from samekind.data.user_data import open_like
from samekind.errors import DataError, ModelFileError, SettingError
from samekind.model import FittedModel
from samekind.project import query
from samekind.project.fit import FitConfig, fit
from samekind.project.query import QueryConfig, parse_indices, run_query
from samekind.project.query_figure import Tile, render_figure

SIDE = 12


def striped_image(kind: int, seed: int) -> Image.Image:
    """Return an image with horizontal (0) or vertical (1) stripes and noise."""
    stripes = 200 * (np.arange(SIDE) // 2 % 2)
    image = np.tile(stripes, (SIDE, 1)) if kind else np.tile(stripes[:, None], (1, SIDE))
    noise = np.random.default_rng(seed).integers(0, 50, (SIDE, SIDE))
    return Image.fromarray(np.clip(image + noise, 0, 255).astype(np.uint8))


def save_images(folder: Path, numbers: range) -> Path:
    folder.mkdir()
    for k in numbers:
        striped_image(k % 2, k).save(folder / f"{k:03d}.png")
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create images, new images, and a run on the images; odd numbers are of one class, even numbers of the other."""
    place = tmp_path_factory.mktemp("place")
    images = save_images(place / "images", range(60))
    save_images(place / "new", range(100, 120))
    (images / "labels.csv").write_text("path,label\n" + "".join(f"{k:03d}.png,{'oe'[k % 2 == 0]}\n" for k in range(10)))
    fit(FitConfig(str(images), epochs=40), place / "run")
    return place


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def kind(name: str) -> int:
    return int(Path(name).stem) % 2


def test_a_new_image_finds_images_of_its_class(place: Path, tmp_path: Path) -> None:
    result = run_query(place / "run", QueryConfig((str(place / "new" / "101.png"),), k=5), tmp_path / "odd")
    rows = table(tmp_path / "odd.csv")
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert all(kind(row["path"]) == 1 and row["label"] == "o" for row in rows)
    similarities = [float(row["similarity"]) for row in rows]
    assert similarities == sorted(similarities, reverse=True) and similarities[0] > 0.5
    assert result.figure == tmp_path / "odd.png"
    with Image.open(result.figure) as figure:
        assert figure.width > 6 * 96


def test_images_a_folder_and_items_of_the_run_are_searched_together(place: Path, tmp_path: Path) -> None:
    images = (str(place / "new" / "101.png"), str(place / "new" / "102.png"), str(place / "new"))
    result = run_query(place / "run", QueryConfig(images, indices=(3, 17), k=2), tmp_path / "many")
    assert result.n_queries == 2 + 2 + 20
    assert len(table(result.table)) == 24 * 2
    assert table(result.table)[0]["query"] == "003.png"


def test_an_item_does_not_find_itself_nor_does_its_image_file(place: Path, tmp_path: Path) -> None:
    run_query(place / "run", QueryConfig((str(place / "images" / "004.png"),), indices=(4,), k=59), tmp_path / "itself")
    rows = table(tmp_path / "itself.csv")
    assert len(rows) == 2 * 59
    assert "004.png" not in {row["path"] for row in rows}


def test_images_the_model_has_never_seen_can_be_searched(place: Path, tmp_path: Path) -> None:
    config = QueryConfig(indices=(1, 2), against=str(place / "new"), k=5)
    result = run_query(place / "run", config, tmp_path / "against")
    rows = table(result.table)
    assert result.n_searched == 20
    assert all(int(Path(row["path"]).stem) >= 100 and kind(row["path"]) == kind(row["query"]) for row in rows)


def test_data_is_read_once_and_passes_through_the_net_once(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, seen = list[str](), list[int]()
    features = FittedModel.features

    def counted_open(path: str, *rest: Any, **options: Any) -> Any:
        read.append(Path(path).name)
        return open_like(path, *rest, **options)

    def counted_features(model: FittedModel, X: Any) -> Any:
        seen.append(len(X))
        return features(model, X)

    monkeypatch.setattr(query, "open_like", counted_open)
    monkeypatch.setattr(FittedModel, "features", counted_features)
    run_query(place / "run", QueryConfig((str(place / "new" / "101.png"),), indices=(4,)), tmp_path / "rows")
    assert (read, seen) == (["images", "101.png"], [1])
    run_query(place / "run", QueryConfig(indices=(4,), against=str(place / "new")), tmp_path / "against")
    assert (read[2:], seen[1:]) == (["images", "new"], [20])


def test_samples_of_an_array_are_searched_in_a_run_on_an_array(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(0, 1, (40, 5)), rng.normal(5, 1, (40, 5))]).astype(np.float32)
    y = np.full(80, "", dtype=object)
    y[[0, 1, 2, 40, 41, 42]] = ["low"] * 3 + ["high"] * 3
    np.savez(tmp_path / "data.npz", x=x, y=y.astype(str))
    np.save(tmp_path / "new.npy", np.full((2, 5), 5.0, dtype=np.float32))
    fit(FitConfig(str(tmp_path / "data.npz"), epochs=20), tmp_path / "run")
    result = run_query(tmp_path / "run", QueryConfig((str(tmp_path / "new.npy"),), k=3), tmp_path / "result")
    assert result.figure is None
    assert [row["label"] for row in table(result.table)] == ["high"] * 6


def test_without_the_images_of_the_fit_the_table_is_still_written(place: Path, tmp_path: Path) -> None:
    run, logged = tmp_path / "run", list[str]()
    shutil.copytree(place / "run", run)
    manifest = (run / "run.json").read_text()
    (run / "run.json").write_text(manifest.replace(str(place / "images"), str(tmp_path / "gone")))
    result = run_query(run, QueryConfig((str(place / "new" / "101.png"),)), tmp_path / "a", log=logged.append)
    assert result.figure is None and len(table(result.table)) == 9
    assert "gone does not exist" in logged[0]


def test_other_images_than_those_of_the_fit_are_an_error(place: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(place / "run", run)
    manifest = (run / "run.json").read_text()
    (run / "run.json").write_text(manifest.replace(str(place / "images"), str(place / "new")))
    with pytest.raises(DataError, match="other items than when the model was fitted"):
        run_query(run, QueryConfig(indices=(0,)), tmp_path / "a")


def test_invalid_queries_are_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no query was given"):
        run_query(place / "run", QueryConfig(), tmp_path / "a")
    with pytest.raises(SettingError, match="numbers 0 to 59"):
        run_query(place / "run", QueryConfig(indices=(60,)), tmp_path / "a")
    with pytest.raises(SettingError, match="expected 1 to 10000"):
        run_query(place / "run", QueryConfig(indices=(0,), k=0), tmp_path / "a")
    with pytest.raises(SettingError, match="expected 1 to 10000"):
        run_query(place / "run", QueryConfig(indices=(0,), k=2**31), tmp_path / "a")
    with pytest.raises(DataError, match="does not exist"):
        run_query(place / "run", QueryConfig(("no.png",)), tmp_path / "a")
    with pytest.raises(ModelFileError, match=r"holds no run\.json"):
        run_query(tmp_path, QueryConfig(indices=(0,)), tmp_path / "a")
    with pytest.raises(SettingError, match="'x' is not an item number"):
        parse_indices("3,x")
    assert not list(tmp_path.iterdir())


def test_the_command_writes_into_the_run_and_prints_the_path(place: Path) -> None:
    image = str(place / "new" / "101.png")
    result = CliRunner().invoke(app, ["query", str(place / "run"), image, "-k", "3", "--items", "3,17"])
    assert result.exit_code == 0, result.output
    assert str(place / "run" / "query.png") in result.output
    assert len(table(place / "run" / "query.csv")) == 9
    result = CliRunner().invoke(app, ["query", str(place / "run"), "--items", "77"])
    assert result.exit_code == 2 and "Traceback" not in result.output


def test_a_figure_frames_the_query_in_blue_and_another_class_in_red() -> None:
    grey = np.full((8, 8, 1), 128, np.uint8)
    figure = Image.open(
        io.BytesIO(render_figure([[Tile(grey, "q"), Tile(grey, "same"), Tile(grey, "other", other_class=True)]]))
    )
    colours = {colour for _, colour in figure.getcolors(100_000) or []}
    assert {(0x15, 0x60, 0xD4), (0xD1, 0x12, 0x3F), (128, 128, 128)} <= colours
    plain = Image.open(io.BytesIO(render_figure([[Tile(grey, "q"), Tile(grey, "same")]])))
    assert (0xD1, 0x12, 0x3F) not in {colour for _, colour in plain.getcolors(100_000) or []}
