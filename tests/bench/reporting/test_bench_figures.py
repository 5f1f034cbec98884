"""Figures of a benchmark, from records and stored arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from samekind.bench.bench_data import load_bench_data
from samekind.bench.records import Record
from samekind.bench.reporting import bench_figures, figures
from samekind.bench.reporting.bench_figures import make_bench_figures
from samekind.bench.reporting.compare import compare_runs
from samekind.bench.reporting.figures import GAP, QUERY, WRONG, QueryPanel, draw_query_panel, new_figure, tile_images
from samekind.bench.reporting.html_report import ReportFigure


def record(row: str, seed: int, data: str, **more: Any) -> Record:
    fields = {"key": f"{row}{seed}", "row": row, "data": data, "labels": 4, "seed": seed, "test": 0.3, "error": 1.0}
    return {**fields, "student_error": 1.0, "judged_on": "test", "method": row, "split": {"hash": str(seed)}, **more}


def test_a_query_has_a_blue_frame_and_an_image_of_another_class_a_red_one() -> None:
    axes = new_figure(1, 1).add_subplot()
    draw_query_panel(axes, QueryPanel(np.zeros((1, 3, 4, 6), dtype=np.uint8), np.array([[1, 1, 2]])))
    frames = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    colors = {round(frame.get_x() / (6 + GAP)): to_hex(frame.get_edgecolor()) for frame in frames}
    assert colors == {0: QUERY, 2: WRONG}
    assert all(frame.get_width() - frame.get_height() == pytest.approx(6 - 4) for frame in frames)


def test_grey_images_are_inverted_on_drawing_and_colour_images_are_not() -> None:
    edge = GAP // 2
    ink = tile_images(np.array([[[[0, 255]]]], dtype=np.uint8))
    assert ink[edge, edge : edge + 2].tolist() == [0.0, 1.0] and ink[0, 0] == 0.0
    color = tile_images(np.array([[[[[255, 0, 51]]]]], dtype=np.uint8))
    assert color[edge, edge].tolist() == [1.0, 0.0, 0.2] and color[0, 0].tolist() == [1.0] * 3


def test_decision_regions_of_user_data_are_drawn_for_the_first_common_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    np.savez(tmp_path / "plane.npz", x=x, y=(x[:, 0] > 0).astype(int).astype(str))
    data = str(tmp_path / "plane.npz")
    runs = [record("a", 0, data), record("a", 1, data), record("b", 1, data, error=2.0), record("b", 2, data)]
    n = len(load_bench_data(data, 0.3).y)
    read_keys, drawn = list[str](), list[Any]()

    def arrays(one: Record) -> dict[str, Any]:
        read_keys.append(one["key"])
        labelled = np.arange(4) + one["seed"]
        return {"labelled": labelled, "predicted": np.zeros(n, np.uint8), "probability": np.zeros((9, 9), np.uint8)}

    def draw(*arguments: Any) -> ReportFigure:
        drawn.append(arguments)
        return figures.regions_figure(*arguments)

    monkeypatch.setattr(bench_figures, "regions_figure", draw)
    first, *_ = make_bench_figures("regions", compare_runs(runs), arrays)
    (_, _, X, _, shown, regions) = drawn[0]
    assert read_keys == ["a1", "b1"] and first.title == "plane.npz, 4 labels, split 1"
    assert len(X) == n < len(x) and np.flatnonzero(shown >= 0).tolist() == [1, 2, 3, 4]
    assert [(one.name, one.error) for one in regions] == [("a", 1.0), ("b", 2.0)]


def test_error_against_compute_has_a_tick_at_each_budget_only(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = list[Any]()

    def render_png(figure: Any) -> bytes:
        drawn.append(figure)
        return b""

    monkeypatch.setattr(bench_figures, "render_png", render_png)
    budgets = {1.5e11: 8.0, 3e11: 5.0, 1.2e12: 2.0}
    runs = [record("a", 0, "d", key=str(b), budget=b, error=e, cost={"flops": 0.99 * b}) for b, e in budgets.items()]
    bench_figures.compute_figure(compare_runs(runs))
    (axes,) = drawn[0].axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.15", "0.3", "1.2"]
    assert not axes.get_xticks(minor=True).size and axes.get_xlabel() == "TFLOP of a run"
    x, y = axes.lines[0].get_data()
    assert x == pytest.approx([0.1485, 0.297, 1.188]) and list(y) == [8.0, 5.0, 2.0]


@pytest.mark.parametrize("n_searched", [None, 120])
def test_a_caption_has_the_number_of_neighbours_and_of_searched_images(n_searched: int | None) -> None:
    names = ("precision_at_3", "precision_at_3_gaussian", "mse", "mse_labels")
    one = record("a", 0, "digits", similarity=dict.fromkeys(names, 50.0))
    y = np.array([0, 0, 1])
    kept: dict[str, Any] = {"y": y, "given": y, "W": np.zeros((3, 3), np.uint8)}
    kept |= {"tiles": np.zeros((2, 1, 4, 5, 5), np.uint8), "kinds": np.zeros((2, 1, 4), int)}
    kept |= {} if n_searched is None else {"asked": np.array(n_searched)}
    _, queries, _ = make_bench_figures("similarity", compare_runs([one]), lambda _: kept)
    expected = "the 3 most similar;" if n_searched is None else "the 3 most similar of 120;"
    assert expected in queries.caption and "W, precision@3 50.0 %" in queries.alt
