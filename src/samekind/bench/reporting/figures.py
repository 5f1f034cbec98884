"""Figures with captions: decision regions, similarity matrices, and nearest neighbours of queries.

They are drawn without pyplot, which needs a graphics backend and keeps global state.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from samekind.bench.reporting.html_report import ReportFigure
from samekind.data.dataset import UNLABELLED
from samekind.evaluation.metrics import same_class

Array = npt.NDArray[Any]

INK = "#1f2328"
LINE = "#c4ccd4"
CLASS_COLORS = ("#2f6db5", "#e08a1e")  # can also be distinguished with the common forms of colour blindness
WRONG = "#d1123f"
QUERY = "#1560d4"
REGIONS = LinearSegmentedColormap.from_list("regions", ["#a9c7ea", "#f7f7f7", "#f9d5a3"])
SIMILARITY = LinearSegmentedColormap.from_list("similarity", ["#ffffff", "#7ba7d9", "#123b6d"])
GAP = 2  # number of pixels between two images in a query panel


@dataclass(frozen=True)
class DecisionRegions:
    """Predictions of one method for points in the plane.

    `predicted` (n,) is the class of each point, and `probability` (size, size) that of class 1 on a grid.
    """

    name: str
    error: float
    predicted: Array
    probability: Array


class QueryPanel(NamedTuple):
    """Images of queries and their neighbours: each row is a query, followed by its nearest neighbours.

    `tiles` are r x c images of (h, w) or (h, w, C), and `classes` (r, c) their classes.
    """

    tiles: Array
    classes: Array


def plot_limits(X: Array) -> tuple[float, float, float, float]:
    """Return (left, right, bottom, top), limits around the points X (n, 2) with a margin."""
    margin = 0.06 * (X.max(0) - X.min(0)).max()
    (left, bottom), (right, top) = X.min(0) - margin, X.max(0) + margin
    return float(left), float(right), float(bottom), float(top)


def plane_grid(X: Array, size: int) -> Array:
    """Return a grid of size x size points, shape (size², 2), within the limits of X; row by row, the lowest row first."""
    left, right, bottom, top = plot_limits(X)
    columns, rows = np.meshgrid(np.linspace(left, right, size), np.linspace(bottom, top, size))
    return np.column_stack([columns.ravel(), rows.ravel()])


def regions_figure(name: str, title: str, X: Array, y: Array, shown: Array, regions: Sequence[DecisionRegions]) -> ReportFigure:
    """Return a figure of the decision regions of all methods.

    `shown` (n,) are the training labels, -1 for unlabelled points.
    """
    caption = (
        f"{len(y)} points, {int(np.sum(shown != UNLABELLED))} of them labelled (black crosses). Points have the colour of "
        "their true class. The background has the colour of the predicted class, pale where the probability is near 0.5. Red "
        "points are classified wrongly."
    )
    alt = f"Decision regions on {name}: " + ", ".join(f"{r.name} {r.error:.2f} % wrong" for r in regions)
    return ReportFigure(f"{name}.png", title, caption, alt, _draw_planes(X, y, shown, regions))


def _draw_planes(X: Array, y: Array, shown: Array, regions: Sequence[DecisionRegions]) -> bytes:
    """Return a PNG image with a panel for each method.

    The background shows the probability of class 1, points have the colour of their true class, wrong predictions are red, and
    labelled points are crosses.
    """
    left, right, bottom, top = plot_limits(X)
    columns = min(3, len(regions) + 1)
    rows = math.ceil((len(regions) + 1) / columns)
    height = 3.6 * (top - bottom) / (right - left) + 0.3
    figure = new_figure(3.7 * columns, height * rows)
    panels = [figure.add_subplot(rows, columns, 1 + i) for i in range(columns * rows)]
    for axes, region in zip(panels, regions, strict=False):
        _draw_regions(axes, X, y, region)
        _draw_crosses(axes, X[shown != UNLABELLED])
        axes.set_title(f"{region.name}   {region.error:.2f} % wrong", fontsize=11, color=INK)
    for axes in panels[len(regions) :]:
        axes.axis("off")
    _draw_legend(panels[len(regions)])
    return render_png(figure)


def _draw_regions(axes: Axes, X: Array, y: Array, region: DecisionRegions) -> None:
    extent = plot_limits(X)
    axes.imshow(region.probability, origin="lower", extent=extent, cmap=REGIONS, vmin=0, vmax=1, interpolation="bilinear")
    if region.probability.min() < 0.5 < region.probability.max():
        axes.contour(region.probability, levels=[0.5], extent=extent, colors=[INK], linewidths=0.8, alpha=0.7)
    size = float(np.clip(20_000 / len(X), 3.0, 16.0))
    right = region.predicted == y
    colors = np.array(CLASS_COLORS)[y]
    axes.scatter(X[right, 0], X[right, 1], s=size, c=colors[right], alpha=0.45, linewidths=0)
    axes.scatter(X[~right, 0], X[~right, 1], s=2.2 * size, c=WRONG, linewidths=0.25, edgecolors="white")
    axes.set(xlim=extent[:2], ylim=extent[2:], xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_color(LINE)


def _draw_crosses(axes: Axes, points: Array) -> None:
    # a white edge makes black crosses visible on dark points
    rim = [patheffects.withStroke(linewidth=4.5, foreground="white")]
    axes.scatter(points[:, 0], points[:, 1], marker="x", s=60, c="black", linewidths=2.0, path_effects=rim, zorder=4)


def _draw_legend(axes: Axes) -> None:
    def dot(color: str, label: str) -> Line2D:
        return Line2D([], [], linestyle="", marker="o", markersize=8, color=color, label=label)

    handles = [
        dot(CLASS_COLORS[0], "first class"),
        dot(CLASS_COLORS[1], "second class"),
        dot(WRONG, "wrong prediction"),
        Line2D([], [], linestyle="", marker="x", markersize=8, markeredgewidth=2, color="black", label="labelled"),
        Line2D([], [], color=INK, linewidth=0.8, label="decision boundary"),
    ]
    axes.legend(handles=handles, loc="center", frameon=False, fontsize=11, labelcolor=INK, labelspacing=0.9)


def matrix_figure(y: Array, W: Array, given: Array, mse: Mapping[str, float]) -> ReportFigure:
    """Return a figure of three matrices: W, the ideal similarity, and "same predicted label". Samples are sorted by class y."""
    caption = (
        f"Similarity of every pair of {len(y)} unlabelled digits, sorted by true class. MSE is the mean squared error to the "
        "ideal matrix. A graph built from predicted labels contains only 0 and 1."
    )
    matrices = {
        "ideal: same digit or not": same_class(y, y),
        f"learned similarity W, MSE {mse['learned']:.4f}": W,
        f"0 or 1 by predicted label, MSE {mse['labels']:.4f}": same_class(given, given),
    }
    alt = f"Similarity matrices of {len(y)} digits: " + "; ".join(matrices)
    return ReportFigure("similarity.png", "Similarity of digits", caption, alt, matrices_png(y, matrices))


def matrices_png(y: Array, matrices: Mapping[str, Array]) -> bytes:
    """Return a PNG image of the matrices side by side, white for 0 and dark blue for 1. The axes show the classes y."""
    figure = new_figure(4.0 * len(matrices) + 0.5, 4.4)
    classes, starts, sizes = np.unique(y, return_index=True, return_counts=True)
    middles, names = starts + (sizes - 1) / 2, [str(c) for c in classes]
    panels = [figure.add_subplot(1, len(matrices), 1 + i) for i in range(len(matrices))]
    for axes, (title, matrix) in zip(panels, matrices.items(), strict=True):
        image = axes.imshow(matrix, cmap=SIMILARITY, vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(title, fontsize=11, color=INK)
        axes.set_xticks(middles, names)
        axes.set_yticks(middles, names)
        axes.tick_params(length=0, labelsize=9, labelcolor=INK)
        axes.spines[:].set_color(LINE)
    bar = figure.colorbar(image, ax=panels, fraction=0.02, pad=0.01, shrink=0.8)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=9, labelcolor=INK)
    return render_png(figure)


def query_figure(
    images: Array, y: Array, queries: Array, found: Mapping[str, Array], precision: Mapping[str, float]
) -> ReportFigure:
    """Return a figure of n query images with their k nearest neighbours, by the learned similarity and by a Gaussian kernel.

    `found` maps the name of each similarity to the indices (n, k) of the neighbours.
    """
    k = found["learned"].shape[1]
    caption = (
        f"One random digit of each class (blue), and the {k} most similar of all others; digits of another class are framed in "
        f"red. Precision@{k} is the fraction of neighbours with the class of the query, over all {len(y)} digits as queries."
    )
    titles = {"learned": "learned similarity", "gaussian": "Gaussian kernel on pixels"}
    panels = {
        f"{title}, precision@{k} {precision[name]:.1f} %": build_query_panel(images, y, queries, found[name][queries])
        for name, title in titles.items()
    }
    alt = f"Nearest neighbours of {len(queries)} queries: " + "; ".join(panels)
    return ReportFigure("queries.png", "Nearest neighbours", caption, alt, query_panel_png(panels))


def build_query_panel(images: Array, y: Array, queries: Array, found: Array) -> QueryPanel:
    """Return the panel of the images with indices `queries` (n,) and of their neighbours with indices `found` (n, k)."""
    indices = np.column_stack([queries, found])
    return QueryPanel(images[indices], y[indices])


def query_panel_png(panels: Mapping[str, QueryPanel]) -> bytes:
    """Return a PNG image of panels side by side. Queries have a blue frame, and neighbours of another class a red one."""
    rows, columns = next(iter(panels.values())).classes.shape
    figure = new_figure(0.52 * columns * len(panels) + 0.4, 0.52 * rows + 0.5)
    for i, (title, panel) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), 1 + i)
        draw_query_panel(axes, panel)
        axes.set_title(title, fontsize=11, color=INK)
        axes.axis("off")
    return render_png(figure)


def draw_query_panel(axes: Axes, panel: QueryPanel) -> None:
    """Draw the images of a panel, with frames around queries and around neighbours of another class."""
    tiles, classes = panel
    pitch = tiles.shape[2] + GAP, tiles.shape[3] + GAP
    axes.imshow(tile_images(tiles), cmap="gray_r", interpolation="nearest", vmin=0, vmax=1)
    for r, c in np.argwhere(classes != classes[:, :1]):
        axes.add_patch(_frame_patch(r, c, pitch, WRONG))
    for r in range(len(classes)):
        axes.add_patch(_frame_patch(r, 0, pitch, QUERY))


def tile_images(tiles: Array) -> Array:
    """Return one image, with values from 0 to 1, of all tiles (r, c, h, w) or (r, c, h, w, 3), with white gaps between them."""
    tiles = tiles[..., 0] if tiles.ndim == 5 and tiles.shape[-1] != 3 else tiles
    r, c, height, width, *colors = tiles.shape
    white = 1.0 if colors else 0.0  # grey images are drawn with an inverted colour map, in which 0 is white
    padded = np.full((r, c, height + GAP, width + GAP, *colors), white)
    padded[:, :, GAP // 2 : GAP // 2 + height, GAP // 2 : GAP // 2 + width] = tiles / (tiles.max() or 1)
    return padded.swapaxes(1, 2).reshape(r * (height + GAP), c * (width + GAP), *colors)


def _frame_patch(row: int, column: int, pitch: tuple[int, int], color: str) -> Rectangle:
    # the centre of the first pixel is at 0 for imshow, so its edge is at -0.5
    (top, left), (height, width) = (row * pitch[0] - 0.1, column * pitch[1] - 0.1), (pitch[0] - 0.8, pitch[1] - 0.8)
    return Rectangle((left, top), width, height, fill=False, edgecolor=color, linewidth=2.0)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this width and height in inches."""
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=0.03, hspace=0.02), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def render_png(figure: Figure) -> bytes:
    """Return the figure as a PNG image. Equal figures give equal bytes."""
    buffer = io.BytesIO()
    # the file must not contain the version of matplotlib, so that equal figures give equal bytes
    figure.savefig(buffer, format="png", dpi=130, bbox_inches="tight", pad_inches=0.1, metadata={"Software": None})
    return buffer.getvalue()
