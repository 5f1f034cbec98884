"""Laplacian regularised least squares: a smooth function of space that fits the labels and is flat along a fixed graph.

Belkin, Niyogi & Sindhwani 2006, "Manifold Regularization: A Geometric Framework for Learning from Labeled and Unlabeled
Examples".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from samekind.data.dataset import Dataset
from samekind.errors import SettingError
from samekind.graphs.kernels import gaussian_kernel, kernel_width, laplacian_rls, laplacian_rls_on_centers
from samekind.methods.base import Task
from samekind.methods.fixed_graph import DatasetGraph, FixedGraph, GraphConfig, build_dataset_graph
from samekind.methods.predictors import KernelPredictor
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class LapRLSConfig(GraphConfig):
    width: float | None = None  # of the Gaussian kernel; None: WIDTHS times the median distance to the k-th neighbour
    ridge: float = 0.005  # gamma_A l, weight of the function's own norm
    smoothness: float = 0.045  # gamma_I l / n^2, weight of differences along edges
    centres: int = 2000  # rows that carry a kernel, labelled ones first; all of a smaller pool

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width is not None and not self.width > 0:
            raise SettingError(
                f"width is {self.width}; expected a number above 0. Leave it out to have it chosen from the data."
            )
        if not self.ridge > 0 or not self.smoothness >= 0:
            raise SettingError(
                f"ridge is {self.ridge} and smoothness is {self.smoothness}; expected ridge above 0 and smoothness from 0"
            )
        if self.centres < 1:
            raise SettingError(f"centres is {self.centres}; expected at least 1. More centres follow the data more closely.")


WIDTHS = 2.0  # a kernel that reaches beyond the neighbours, so that new points between them are reached too


class LapRLS(FixedGraph):
    def __init__(self, net: Classifier | None, task: Task, config: LapRLSConfig | None = None) -> None:
        super().__init__()
        self.config = config or LapRLSConfig()

    def solved(self, pool: Dataset) -> KernelPredictor:
        c = self.config
        graph = build_dataset_graph(pool, c, "what the kernel brings them from other parts")
        width = WIDTHS * kernel_width(graph.points, graph.n_neighbors) if c.width is None else c.width
        centres = _centres(graph, c.centres)
        a = torch.from_numpy(self._coefficients(graph, centres, width))
        chosen = graph.points[torch.from_numpy(centres)]
        return KernelPredictor(len(chosen), chosen.shape[1], pool.n_classes).fill(chosen, a, width)

    def _coefficients(self, graph: DatasetGraph, centres: NDArray[np.int64], width: float) -> NDArray[np.float64]:
        c, about = self.config, (graph.W, graph.y, graph.n_classes)
        if len(centres) == len(graph.points):
            x = graph.points.double()
            K = gaussian_kernel(x, x, width).numpy()
            return laplacian_rls(K, *about, ridge=c.ridge, smoothness=c.smoothness)
        return laplacian_rls_on_centers(graph.points, centres, *about, width=width, ridge=c.ridge, smoothness=c.smoothness)


def _centres(graph: DatasetGraph, most: int) -> NDArray[np.int64]:
    """All rows; or the labelled ones, and others drawn evenly from the rest, always the same."""
    if len(graph.y) <= most:
        return np.arange(len(graph.y))
    order = np.random.default_rng(0).permutation(len(graph.y))
    labelled_first = order[np.argsort(graph.y[order] < 0, kind="stable")]
    return np.sort(labelled_first[: max(most, int((graph.y >= 0).sum()))])
