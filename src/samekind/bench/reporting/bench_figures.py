"""Figures of a bench, drawn from its recorded runs: every split as a dot, error over compute, planes and matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from samekind.bench.bench_data import load_bench_data
from samekind.bench.compare import ColumnKey, Comparison, curves
from samekind.bench.records import Record
from samekind.bench.reporting.figures import (
    INK,
    LINE,
    DecisionRegions,
    QueryPanel,
    finished,
    matrices_png,
    new_figure,
    query_panel_png,
    regions_figure,
)
from samekind.bench.reporting.html_report import ReportFigure
from samekind.data.dataset import UNLABELLED
from samekind.evaluation.metrics import same_class

Arrays = Callable[[Record], dict[str, npt.NDArray[Any]]]
DOT, MEAN = "#2f6db5", "#d1123f"
COLORS = ("#2f6db5", "#e08a1e", "#3a8f4d", "#b0357a", "#6b4fb0", "#7a5c3a", "#1797a6", "#8a8f98")
MARKS = "osD^vP*X"


def make_bench_figures(measure: str, found: Comparison, arrays: Arrays) -> list[ReportFigure]:
    """Those that these runs can give."""
    figures = [splits_figure(found)]
    if len({head.budget for head in found.columns}) > 1:
        figures.append(compute_figure(found))
    if measure == "regions":
        figures = [*_planes(found, arrays), *figures]
    if measure == "similarity":
        figures = [*_matrices(found, arrays), *figures]
    return figures


def splits_figure(found: Comparison) -> ReportFigure:
    """One panel for each column, one line for each row: a dot for each split, and a bar at the mean."""
    panels = len(found.columns)
    figure = new_figure(2.6 + 3.4 * panels, 0.7 + 0.32 * len(found.rows))
    for i, head in enumerate(found.columns):
        axes = figure.add_subplot(1, panels, 1 + i)
        for place, row in enumerate(found.rows):
            errors = found.errors(row, head)
            axes.plot(errors, [place] * len(errors), "o", color=DOT, alpha=0.6, markersize=5, markeredgewidth=0)
            if errors:
                axes.plot([fmean(errors)] * 2, [place - 0.3, place + 0.3], color=MEAN, linewidth=2)
        axes.set_yticks(range(len(found.rows)), found.rows if i == 0 else [""] * len(found.rows))
        axes.set_ylim(len(found.rows) - 0.5, -0.5)
        axes.set_title(head.words(found.columns), fontsize=11, color=INK)
        _dress(axes, "error %")
    caption = "A blue dot is a split, the red bar the mean. All rows get the same labels in the same split."
    places = [(row, head) for head in found.columns for row in found.rows]
    alt = "; ".join(f"{row} on {head.words(found.columns)}: {_mean(found, row, head)}" for row, head in places)
    return ReportFigure("splits.png", "Every split", caption, f"Errors of every split. {alt}", finished(figure))


def compute_figure(found: Comparison) -> ReportFigure:
    """Error over floating-point operations, a line for each method, a panel for each problem."""
    lines = curves(found)
    problems = list(dict.fromkeys((data, labels) for data, labels, _, _ in lines))
    figure = new_figure(4.6 * len(problems) + 1.8, 4.0)
    for i, problem in enumerate(problems):
        axes = figure.add_subplot(1, len(problems), 1 + i)
        for _, _, row, points in (one for one in lines if one[:2] == problem):
            place = found.rows.index(row)
            tera, means = [flops / 1e12 for flops, _ in points], [fmean(errors) for _, errors in points]
            spreads = [float(np.std(errors, ddof=1)) if len(errors) > 1 else 0.0 for _, errors in points]
            color, mark = COLORS[place % len(COLORS)], MARKS[place % len(MARKS)]
            axes.errorbar(tera, means, spreads, label=row, color=color, marker=mark, capsize=2, linewidth=1.4, markersize=5)
        axes.set_xscale("log")
        budgets = sorted({head.budget / 1e12 for head in found.columns if head[:2] == problem and head.budget is not None})
        if budgets:
            axes.set_xticks(budgets, [f"{budget:.3g}" for budget in budgets])
            axes.minorticks_off()
        axes.set_title(f"{problem[0]}, {problem[1]} labels", fontsize=11, color=INK)
        _dress(axes, "TFLOP of a run")
        axes.set_ylabel("error %", fontsize=10, color=INK)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9, labelcolor=INK)
    caption = "Mean over splits, with the standard deviation. Operations are counted, so the machine does not matter."
    alt = "Error over operations: " + "; ".join(f"{row} at {len(points)} budgets" for _, _, row, points in lines)
    return ReportFigure("compute.png", "Error against compute", caption, alt, finished(figure))


def _planes(found: Comparison, arrays: Arrays) -> list[ReportFigure]:
    """The plane of each toy as every row sees it in the first split that all have (Figures 2 and 22)."""
    figures = []
    for head in found.columns:
        first = found.first_in_common(head)
        drawn = {row: (record, kept) for row, record in first.items() if "probability" in (kept := arrays(record))}
        if not drawn:
            continue
        record, kept = next(iter(drawn.values()))
        problem = load_bench_data(record["data"], record["test"])
        shown = np.full(len(problem.y), UNLABELLED)
        shown[kept["labelled"]] = problem.y[kept["labelled"]]
        regions = [
            DecisionRegions(row, record["error"], kept["predicted"].astype(int), kept["probability"] / 255)
            for row, (record, kept) in drawn.items()
        ]
        title = f"{head.words(found.columns)}, split {record['seed']}"
        alone = sum(other.data == head.data for other in found.columns) == 1
        data = head.data.replace("/", "-")
        name = data if alone else f"{data}-{record['key']}"
        figures.append(regions_figure(name, title, problem.x, problem.y, shown, regions))
    return figures


def _matrices(found: Comparison, arrays: Arrays) -> list[ReportFigure]:
    """W of each row beside the ideal matrix and beside 0/1 by the classes that the row gives (Figure 4)."""
    figures = []
    for row, head, runs in found.filled():
        record = runs[0]
        kept = arrays(record)
        if "W" not in kept:
            continue
        y, given, mse = kept["y"], kept["given"], record["similarity"]
        matrices = {
            "ideal: same class or not": same_class(y, y),
            f"W, MSE {mse['mse']:.4f}": kept["W"] / 255,
            f"0 or 1 by given class, MSE {mse['mse_labels']:.4f}": same_class(given, given),
        }
        title = f"{row} on {head.words(found.columns)}"
        caption = f"Every pair of {len(y)} test images, sorted by true class, in split {record['seed']}."
        name = f"similarity-{record['key']}.png"
        alt = f"Similarity matrices of {title}: " + "; ".join(matrices)
        figures.append(ReportFigure(name, title, caption, alt, matrices_png(y, matrices)))
        if "tiles" in kept:
            figures.append(_queries(title, record, kept))
    return figures


def _queries(title: str, record: Record, kept: Mapping[str, npt.NDArray[Any]]) -> ReportFigure:
    """What is found for some queries, by W on the left and by the kernel on the right (Figure 3)."""
    numbers, k = record["similarity"], kept["kinds"].shape[2] - 1
    ways = {"": "W", "_gaussian": "Gaussian kernel on pixels"}
    titles = [f"{words}, precision@{k} {numbers[f'precision_at_{k}{after}']:.1f} %" for after, words in ways.items()]
    blocks = {way: QueryPanel(*both) for way, *both in zip(titles, kept["tiles"], kept["kinds"], strict=True)}
    among = f" of {int(kept['asked'])}" if "asked" in kept else ""  # runs of before have not kept it
    caption = (
        f"Test images drawn by seed (blue frames), and the {k} most alike{among}; those of another class have a red frame."
    )
    alt = f"Queries of {title}: {'; '.join(titles)}"
    return ReportFigure(f"queries-{record['key']}.png", f"More like this one: {title}", caption, alt, query_panel_png(blocks))


def _mean(found: Comparison, row: str, head: ColumnKey) -> str:
    errors = found.errors(row, head)
    return f"{fmean(errors):.2f} %" if errors else "none"


def _dress(axes: Axes, label: str) -> None:
    axes.set_xlabel(label, fontsize=10, color=INK)
    axes.tick_params(length=0, labelsize=9, labelcolor=INK)
    axes.grid(True, axis="both", color=LINE, linewidth=0.4, alpha=0.6)
    axes.spines[:].set_color(LINE)
