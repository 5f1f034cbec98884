"""Figures of a benchmark: errors of all splits, error against FLOPs, decision regions, and similarities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from samekind.bench.bench_data import load_bench_data
from samekind.bench.records import Record
from samekind.bench.reporting.compare import ColumnKey, Comparison
from samekind.bench.reporting.figures import (
    INK,
    LINE,
    DecisionRegions,
    QueryPanel,
    matrices_png,
    new_figure,
    query_panel_png,
    regions_figure,
    render_png,
)
from samekind.bench.reporting.html_report import ReportFigure
from samekind.data.dataset import UNLABELLED
from samekind.evaluation.metrics import same_class

Arrays = Callable[[Record], dict[str, npt.NDArray[Any]]]
DOT, MEAN = "#2f6db5", "#d1123f"
COLORS = ("#2f6db5", "#e08a1e", "#3a8f4d", "#b0357a", "#6b4fb0", "#7a5c3a", "#1797a6", "#8a8f98")
MARKERS = "osD^vP*X"


def make_bench_figures(measure: str, comparison: Comparison, arrays: Arrays) -> list[ReportFigure]:
    """Return all figures for which the runs have data. `measure` says what the runs measured besides errors."""
    figures = [splits_figure(comparison)]
    if len({column.budget for column in comparison.columns}) > 1:
        figures.append(compute_figure(comparison))
    if measure == "regions":
        figures = [*_region_figures(comparison, arrays), *figures]
    if measure == "similarity":
        figures = [*_similarity_figures(comparison, arrays), *figures]
    return figures


def splits_figure(comparison: Comparison) -> ReportFigure:
    """Return a figure of all errors: a panel for each column, a line for each row, a dot for each split, and a bar at the
    mean.
    """
    panels = len(comparison.columns)
    figure = new_figure(2.6 + 3.4 * panels, 0.7 + 0.32 * len(comparison.rows))
    for i, column in enumerate(comparison.columns):
        axes = figure.add_subplot(1, panels, 1 + i)
        for i_row, row in enumerate(comparison.rows):
            errors = comparison.errors(row, column)
            axes.plot(errors, [i_row] * len(errors), "o", color=DOT, alpha=0.6, markersize=5, markeredgewidth=0)
            if errors:
                axes.plot([fmean(errors)] * 2, [i_row - 0.3, i_row + 0.3], color=MEAN, linewidth=2)
        axes.set_yticks(range(len(comparison.rows)), comparison.rows if i == 0 else [""] * len(comparison.rows))
        axes.set_ylim(len(comparison.rows) - 0.5, -0.5)
        axes.set_title(column.label(comparison.columns), fontsize=11, color=INK)
        _style_axes(axes, "error %")
    caption = "Blue dots are splits, the red bar is the mean. In one split all methods get the same labels."
    alt = "; ".join(
        f"{row} on {column.label(comparison.columns)}: {_mean(comparison, row, column)}"
        for column in comparison.columns
        for row in comparison.rows
    )
    return ReportFigure("splits.png", "Every split", caption, f"Errors of every split. {alt}", render_png(figure))


def compute_figure(comparison: Comparison) -> ReportFigure:
    """Return a figure of error against FLOPs: a panel for each dataset, and a line for each method."""
    curves = comparison.compute_curves()
    datasets = list(dict.fromkeys((curve.data, curve.labels) for curve in curves))
    figure = new_figure(4.6 * len(datasets) + 1.8, 4.0)
    for i, dataset in enumerate(datasets):
        axes = figure.add_subplot(1, len(datasets), 1 + i)
        for _, _, row, points in (curve for curve in curves if curve[:2] == dataset):
            i_row = comparison.rows.index(row)
            tera, means = [flops / 1e12 for flops, _ in points], [fmean(errors) for _, errors in points]
            spreads = [float(np.std(errors, ddof=1)) if len(errors) > 1 else 0.0 for _, errors in points]
            color, marker = COLORS[i_row % len(COLORS)], MARKERS[i_row % len(MARKERS)]
            axes.errorbar(tera, means, spreads, label=row, color=color, marker=marker, capsize=2, linewidth=1.4, markersize=5)
        axes.set_xscale("log")
        columns = [column for column in comparison.columns if column[:2] == dataset]
        budgets = sorted({column.budget / 1e12 for column in columns if column.budget is not None})
        if budgets:
            axes.set_xticks(budgets, [f"{budget:.3g}" for budget in budgets])
            axes.minorticks_off()
        axes.set_title(f"{dataset[0]}, {dataset[1]} labels", fontsize=11, color=INK)
        _style_axes(axes, "TFLOP of a run")
        axes.set_ylabel("error %", fontsize=10, color=INK)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9, labelcolor=INK)
    caption = "Mean and standard deviation over splits. FLOPs are counted, so they do not depend on the machine."
    alt = "Error against FLOPs: " + "; ".join(f"{row} at {len(points)} budgets" for _, _, row, points in curves)
    return ReportFigure("compute.png", "Error against compute", caption, alt, render_png(figure))


def _region_figures(comparison: Comparison, arrays: Arrays) -> list[ReportFigure]:
    """Return a figure of decision regions for each 2-d dataset, with all rows, as in Figures 2 and 22 of the paper.

    The regions are those of the first split that all rows have.
    """
    figures = []
    for column in comparison.columns:
        first = comparison.first_common_split(column)
        measured = {row: (record, kept) for row, record in first.items() if "probability" in (kept := arrays(record))}
        if not measured:
            continue
        record, kept = next(iter(measured.values()))
        data = load_bench_data(record["data"], record["test"])
        shown = np.full(len(data.y), UNLABELLED)
        shown[kept["labelled"]] = data.y[kept["labelled"]]
        regions = [
            DecisionRegions(row, record["error"], kept["predicted"].astype(int), kept["probability"] / 255)
            for row, (record, kept) in measured.items()
        ]
        title = f"{column.label(comparison.columns)}, split {record['seed']}"
        alone = sum(other.data == column.data for other in comparison.columns) == 1
        stem = column.data.replace("/", "-")
        name = stem if alone else f"{stem}-{record['key']}"
        figures.append(regions_figure(name, title, data.x, data.y, shown, regions))
    return figures


def _similarity_figures(comparison: Comparison, arrays: Arrays) -> list[ReportFigure]:
    """Return a figure for each row and column: its W, the ideal matrix, and "same predicted class", as in the paper's
    Figure 4.
    """
    figures = []
    for row, column, runs in comparison.iter_cells():
        record = runs[0]
        kept = arrays(record)
        if "W" not in kept:
            continue
        y, given, mse = kept["y"], kept["given"], record["similarity"]
        matrices = {
            "ideal: same class or not": same_class(y, y),
            f"W, MSE {mse['mse']:.4f}": kept["W"] / 255,
            f"0 or 1 by predicted class, MSE {mse['mse_labels']:.4f}": same_class(given, given),
        }
        title = f"{row} on {column.label(comparison.columns)}"
        caption = f"Every pair of {len(y)} test images, sorted by true class, in split {record['seed']}."
        name = f"similarity-{record['key']}.png"
        alt = f"Similarity matrices of {title}: " + "; ".join(matrices)
        figures.append(ReportFigure(name, title, caption, alt, matrices_png(y, matrices)))
        if "tiles" in kept:
            figures.append(_query_figure(title, record, kept))
    return figures


def _query_figure(title: str, record: Record, kept: Mapping[str, npt.NDArray[Any]]) -> ReportFigure:
    """Return a figure of some queries with their nearest neighbours, as in the paper's Figure 3.

    The neighbours by the learned similarity W are on the left, those by a Gaussian kernel on the right.
    """
    numbers, k = record["similarity"], kept["kinds"].shape[2] - 1
    similarities = {"": "W", "_gaussian": "Gaussian kernel on pixels"}
    titles = [f"{name}, precision@{k} {numbers[f'precision_at_{k}{suffix}']:.1f} %" for suffix, name in similarities.items()]
    panels = {name: QueryPanel(*arrays) for name, *arrays in zip(titles, kept["tiles"], kept["kinds"], strict=True)}
    n_searched = f" of {int(kept['asked'])}" if "asked" in kept else ""  # records of older versions do not have this number
    caption = (
        f"Random test images (blue frames), and the {k} most similar{n_searched}; images of another class have a red frame."
    )
    alt = f"Queries of {title}: {'; '.join(titles)}"
    return ReportFigure(f"queries-{record['key']}.png", f"Nearest neighbours: {title}", caption, alt, query_panel_png(panels))


def _mean(comparison: Comparison, row: str, column: ColumnKey) -> str:
    errors = comparison.errors(row, column)
    return f"{fmean(errors):.2f} %" if errors else "none"


def _style_axes(axes: Axes, label: str) -> None:
    axes.set_xlabel(label, fontsize=10, color=INK)
    axes.tick_params(length=0, labelsize=9, labelcolor=INK)
    axes.grid(True, axis="both", color=LINE, linewidth=0.4, alpha=0.6)
    axes.spines[:].set_color(LINE)
