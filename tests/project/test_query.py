"""`samekind query`: pictures, folders, arrays and rows of the run in; a table and a panel out."""

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
from samekind.estimator import SemiSupervisedClassifier
from samekind.project import query
from samekind.project.fit import FitConfig, fit
from samekind.project.query import QueryConfig, parse_indices, run_query
from samekind.project.query_figure import Tile, render_figure

SIDE = 12


def picture(kind: int, seed: int) -> Image.Image:
    """Lines across or down, with noise."""
    stripes = 200 * (np.arange(SIDE) // 2 % 2)
    image = np.tile(stripes, (SIDE, 1)) if kind else np.tile(stripes[:, None], (1, SIDE))
    noise = np.random.default_rng(seed).integers(0, 50, (SIDE, SIDE))
    return Image.fromarray(np.clip(image + noise, 0, 255).astype(np.uint8))


def pictures(folder: Path, numbers: range) -> Path:
    folder.mkdir()
    for k in numbers:
        picture(k % 2, k).save(folder / f"{k:03d}.png")
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos, new photos, and a run on the photos; odd numbers are of one kind, even ones of the other."""
    place = tmp_path_factory.mktemp("place")
    photos = pictures(place / "photos", range(60))
    pictures(place / "new", range(100, 120))
    (photos / "labels.csv").write_text("path,label\n" + "".join(f"{k:03d}.png,{'oe'[k % 2 == 0]}\n" for k in range(10)))
    fit(FitConfig(str(photos), epochs=40), place / "run")
    return place


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def kind(name: str) -> int:
    return int(Path(name).stem) % 2


def test_a_new_picture_finds_its_kind(place: Path, tmp_path: Path) -> None:
    answer = run_query(place / "run", QueryConfig((str(place / "new" / "101.png"),), k=5), tmp_path / "odd")
    rows = table(tmp_path / "odd.csv")
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert all(kind(row["path"]) == 1 and row["label"] == "o" for row in rows)
    similarities = [float(row["similarity"]) for row in rows]
    assert similarities == sorted(similarities, reverse=True) and similarities[0] > 0.5
    assert answer.figure == tmp_path / "odd.png"
    with Image.open(answer.figure) as sheet:
        assert sheet.width > 6 * 96


def test_several_pictures_a_folder_and_rows_are_asked_together(place: Path, tmp_path: Path) -> None:
    images = (str(place / "new" / "101.png"), str(place / "new" / "102.png"), str(place / "new"))
    answer = run_query(place / "run", QueryConfig(images, indices=(3, 17), k=2), tmp_path / "many")
    assert answer.n_queries == 2 + 2 + 20
    assert len(table(answer.table)) == 24 * 2
    assert table(answer.table)[0]["query"] == "003.png"


def test_a_row_does_not_find_itself_nor_does_its_picture(place: Path, tmp_path: Path) -> None:
    run_query(place / "run", QueryConfig((str(place / "photos" / "004.png"),), indices=(4,), k=59), tmp_path / "itself")
    rows = table(tmp_path / "itself.csv")
    assert len(rows) == 2 * 59
    assert "004.png" not in {row["path"] for row in rows}


def test_pictures_the_model_has_never_seen_can_be_searched(place: Path, tmp_path: Path) -> None:
    question = QueryConfig(indices=(1, 2), against=str(place / "new"), k=5)
    answer = run_query(place / "run", question, tmp_path / "against")
    rows = table(answer.table)
    assert answer.n_searched == 20
    assert all(int(Path(row["path"]).stem) >= 100 and kind(row["path"]) == kind(row["query"]) for row in rows)


def test_everything_is_read_once_and_goes_through_the_net_once(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, seen = list[str](), list[int]()
    features = SemiSupervisedClassifier._features

    def reading(path: str, *rest: Any, **words: Any) -> Any:
        read.append(Path(path).name)
        return open_like(path, *rest, **words)

    def looking(model: SemiSupervisedClassifier, X: Any) -> Any:
        seen.append(len(X))
        return features(model, X)

    monkeypatch.setattr(query, "open_like", reading)
    monkeypatch.setattr(SemiSupervisedClassifier, "_features", looking)
    run_query(place / "run", QueryConfig((str(place / "new" / "101.png"),), indices=(4,)), tmp_path / "rows")
    assert (read, seen) == (["photos", "101.png"], [1])
    run_query(place / "run", QueryConfig(indices=(4,), against=str(place / "new")), tmp_path / "against")
    assert (read[2:], seen[1:]) == (["photos", "new"], [20])


def test_rows_of_an_array_are_asked_of_a_run_on_an_array(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(0, 1, (40, 5)), rng.normal(5, 1, (40, 5))]).astype(np.float32)
    y = np.full(80, "", dtype=object)
    y[[0, 1, 2, 40, 41, 42]] = ["low"] * 3 + ["high"] * 3
    np.savez(tmp_path / "data.npz", x=x, y=y.astype(str))
    np.save(tmp_path / "new.npy", np.full((2, 5), 5.0, dtype=np.float32))
    fit(FitConfig(str(tmp_path / "data.npz"), epochs=20), tmp_path / "run")
    answer = run_query(tmp_path / "run", QueryConfig((str(tmp_path / "new.npy"),), k=3), tmp_path / "answer")
    assert answer.figure is None
    assert [row["label"] for row in table(answer.table)] == ["high"] * 6


def test_without_the_pictures_of_the_fit_the_table_is_still_written(place: Path, tmp_path: Path) -> None:
    run, said = tmp_path / "run", list[str]()
    shutil.copytree(place / "run", run)
    words = (run / "run.json").read_text()
    (run / "run.json").write_text(words.replace(str(place / "photos"), str(tmp_path / "gone")))
    answer = run_query(run, QueryConfig((str(place / "new" / "101.png"),)), tmp_path / "a", log=said.append)
    assert answer.figure is None and len(table(answer.table)) == 9
    assert "gone does not exist" in said[0]


def test_other_pictures_than_those_of_the_fit_are_an_error(place: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(place / "run", run)
    words = (run / "run.json").read_text()
    (run / "run.json").write_text(words.replace(str(place / "photos"), str(place / "new")))
    with pytest.raises(DataError, match="other items than at the time of the fit"):
        run_query(run, QueryConfig(indices=(0,)), tmp_path / "a")


def test_questions_without_an_answer_are_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no query was given"):
        run_query(place / "run", QueryConfig(), tmp_path / "a")
    with pytest.raises(SettingError, match="numbers 0 to 59"):
        run_query(place / "run", QueryConfig(indices=(60,)), tmp_path / "a")
    with pytest.raises(SettingError, match="expected 1 or more"):
        run_query(place / "run", QueryConfig(indices=(0,), k=0), tmp_path / "a")
    with pytest.raises(DataError, match="does not exist"):
        run_query(place / "run", QueryConfig(("no.png",)), tmp_path / "a")
    with pytest.raises(ModelFileError, match=r"holds no run\.json"):
        run_query(tmp_path, QueryConfig(indices=(0,)), tmp_path / "a")
    with pytest.raises(SettingError, match="'x' is not an item number"):
        parse_indices("3,x")
    assert not list(tmp_path.iterdir())


def test_the_command_writes_into_the_run_and_says_where(place: Path) -> None:
    image = str(place / "new" / "101.png")
    result = CliRunner().invoke(app, ["query", str(place / "run"), image, "-k", "3", "--items", "3,17"])
    assert result.exit_code == 0, result.output
    assert str(place / "run" / "query.png") in result.output
    assert len(table(place / "run" / "query.csv")) == 9
    result = CliRunner().invoke(app, ["query", str(place / "run"), "--items", "77"])
    assert result.exit_code == 2 and "Traceback" not in result.output


def test_a_panel_frames_the_query_in_blue_and_another_kind_in_red() -> None:
    grey = np.full((8, 8, 1), 128, np.uint8)
    sheet = Image.open(
        io.BytesIO(render_figure([[Tile(grey, "q"), Tile(grey, "same"), Tile(grey, "other", other_class=True)]]))
    )
    colours = {colour for _, colour in sheet.getcolors(100_000) or []}
    assert {(0x15, 0x60, 0xD4), (0xD1, 0x12, 0x3F), (128, 128, 128)} <= colours
    plain = Image.open(io.BytesIO(render_figure([[Tile(grey, "q"), Tile(grey, "same")]])))
    assert (0xD1, 0x12, 0x3F) not in {colour for _, colour in plain.getcolors(100_000) or []}
