"""The demo: its files, its report, and errors before any work is done."""

from __future__ import annotations

import base64
import io
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from samekind.bench.demo import (
    DEMO_METHODS,
    QUICK,
    DemoConfig,
    DemoResult,
    LabelSpreadingBaseline,
    command,
    drop_self,
    make_demo_problems,
    run_demo,
)
from samekind.bench.reporting.html_report import make_output_dir
from samekind.bench.reporting.text_table import TextTable, demo_table, print_table, to_markdown
from samekind.errors import SamekindError, SettingError
from samekind.files.io import atomic_write

TINY = DemoConfig(n=60, n_images=120, epochs=2, grid=20, matrix_size=40)
FIGURES = ("moons.png", "circles.png", "similarity.png", "queries.png")
FILES = {*FIGURES, "results.json", "table.md", "report.html"}
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> DemoResult:
    return run_demo(TINY, tmp_path_factory.mktemp("demo") / "runs" / "demo")


class LinkCollector(HTMLParser):
    """Parser that collects the tags of a page, and the targets of links and embedded files."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.targets: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.targets += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action", "poster")]


# ---------------------------------------------------------------- files


def test_the_folder_has_all_files_and_no_others(result: DemoResult) -> None:
    assert {path.name for path in result.report.parent.iterdir()} == FILES


def test_the_table_has_every_method_and_every_dataset(result: DemoResult) -> None:
    text = (result.report.parent / "table.md").read_text(encoding="utf-8")
    assert [row[0] for row in result.table.rows] == list(DEMO_METHODS)
    assert all(f"| {method} " in text for method in DEMO_METHODS)
    assert result.table.header == ("method", "moons, 12 labels", "circles, 8 labels", "digits, 50 labels", "seconds")


def test_results_json_has_the_numbers_of_the_run(result: DemoResult) -> None:
    numbers = json.loads((result.report.parent / "results.json").read_text(encoding="utf-8"))
    assert numbers == json.loads(json.dumps(result.numbers))
    assert len(numbers["fits"]) == 3 * len(DEMO_METHODS)
    assert all(0 <= fit["error"] <= 100 for fit in numbers["fits"])
    assert numbers["query"]["precision"]["gaussian"] > 50


def test_the_report_is_self_contained_and_has_every_figure(result: DemoResult) -> None:
    page = result.report.read_text(encoding="utf-8")
    seen = LinkCollector(page)
    figures = [base64.b64decode(target.removeprefix("data:image/png;base64,"), validate=True) for target in seen.targets]
    assert figures == [(result.report.parent / name).read_bytes() for name in FIGURES]
    assert all(figure.startswith(PNG) for figure in figures)
    assert not {"script", "link", "iframe", "object"} & set(seen.tags)
    assert not re.search(r"https?://|@import|url\(", page)


def test_the_report_has_command_settings_versions_and_time(result: DemoResult) -> None:
    page = result.report.read_text(encoding="utf-8")
    for text in (
        "DemoConfig(",
        "moons noise",
        "0.15",
        torch.__version__,
        "Took 0 min",
        "prefers-color-scheme",
        "width=device-width",
    ):
        assert text in page


def test_the_same_seed_gives_the_same_numbers_and_figures(result: DemoResult, tmp_path: Path) -> None:
    again = run_demo(TINY, tmp_path)
    assert without_times(again.numbers) == without_times(result.numbers)
    for name in FIGURES:
        assert (tmp_path / name).read_bytes() == (result.report.parent / name).read_bytes()


def without_times(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers without seconds, date and folder."""
    fits = [{key: value for key, value in fit.items() if key != "seconds"} for fit in numbers["fits"]]
    return {"fits": fits, **{key: numbers[key] for key in ("settings", "similarity", "query", "warnings", "versions")}}


def test_an_interrupted_demo_leaves_the_folder_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: LabelSpreadingBaseline, X: object, y: object) -> LabelSpreadingBaseline:
        raise KeyboardInterrupt

    (tmp_path / "table.md").write_text("of an earlier run")
    monkeypatch.setattr(LabelSpreadingBaseline, "fit", stop)
    with pytest.raises(KeyboardInterrupt):
        run_demo(replace(TINY, methods=("LabelSpreading", "learned_graph")), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["table.md"]
    assert (tmp_path / "table.md").read_text() == "of an earlier run"


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"radii": (2.0, 2.0)}, "two different numbers above 0"),
        ({"seed": -1}, "seed is -1"),
        ({"n": 3}, "n is 3"),
        ({"n_images": 5000}, "100 to 1797"),
        ({"methods": ("supervised",)}, "learned_graph among them"),
        ({"methods": ("learned_graph", "supervized")}, "did you mean 'supervised'"),
    ],
)
def test_wrong_settings_are_an_error_before_anything_is_written(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        run_demo(replace(TINY, **change), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path, below: str) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(SamekindError, match="is a file or inside a file"):
        make_output_dir(tmp_path / "taken" / below)
    assert (tmp_path / "taken").read_text() == "mine"


def test_without_matplotlib_the_error_has_the_command_that_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SamekindError, match=re.escape('pip install "samekind[plots]"')):
        run_demo(TINY, tmp_path / "out")


def test_a_failed_write_keeps_the_old_file_and_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "table.md").write_text("old")
    monkeypatch.setattr("os.replace", full)
    with pytest.raises(SamekindError, match="No space left on device"):
        atomic_write(tmp_path / "table.md", b"new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


# ---------------------------------------------------------------- parts


def test_each_dataset_has_its_number_of_labels() -> None:
    problems = make_demo_problems(DemoConfig())
    assert [(len(p.y), p.n_labels) for p in problems] == [(6000, 12), (6000, 8), (1797, 50)]
    assert all((p.shown[p.shown != -1] == p.y[p.shown != -1]).all() for p in problems)


def test_a_query_is_not_among_its_neighbours() -> None:
    found = drop_self(np.array([[0, 1, 2], [2, 1, 0], [0, 1, 3]]))
    assert found.tolist() == [[1, 2], [2, 0], [0, 1]]


def test_label_spreading_separates_two_clusters_at_any_scale() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 30)
    X = rng.standard_normal((60, 2)) + 20 * y[:, None]
    shown = np.full(60, -1)
    shown[[0, 30]] = 0, 1
    model = LabelSpreadingBaseline(gamma=20.0).fit(1000 * X, shown)
    assert (model.transduction_ == y).all()
    assert (model.predict_proba(1000 * X).argmax(1) == y).all()


@pytest.mark.parametrize(
    ("settings", "start"),
    [
        (DemoConfig(), "samekind demo --seed 0 --radii 1 2.5 --out runs/demo"),
        (replace(QUICK, seed=3), "samekind demo --quick --seed 3 --radii 1 2.5 --out runs/demo"),
        (TINY, "samekind.bench.demo.run_demo(DemoConfig("),
    ],
)
def test_the_command_repeats_the_demo(settings: DemoConfig, start: str) -> None:
    assert command(settings, Path("runs/demo")).startswith(start)


def test_the_lowest_error_of_each_dataset_is_bold_even_if_shared() -> None:
    table = demo_table({"a": {"x": 10.0, "y": 9.001, "z": 9.0}}, {"x": 1.0, "y": 2.0, "z": 3.0}, {"a": "A"})
    assert table.rows == (("x", "10.00", "1.0"), ("y", "9.00", "2.0"), ("z", "9.00", "3.0"))
    assert table.bold == {(1, 1), (2, 1)}


def test_markdown_aligns_text_left_and_numbers_right() -> None:
    table = TextTable(("name", "error"), (("a", "1.00"), ("b", "10.00")), frozenset({(0, 1)}), frozenset({1}))
    assert to_markdown(table).splitlines() == [
        "| name |    error |",
        "| ---- | -------: |",
        "| a    | **1.00** |",
        "| b    |    10.00 |",
    ]


@pytest.mark.parametrize(("terminal", "pipes"), [(True, False), (False, True)])
def test_a_table_is_drawn_on_a_terminal_and_markdown_elsewhere(terminal: bool, pipes: bool) -> None:
    screen = io.StringIO()
    print_table(TextTable(("name",), (("a",),)), Console(file=screen, force_terminal=terminal, width=80))
    assert ("| name |" in screen.getvalue()) is pipes
    assert "name" in screen.getvalue()
