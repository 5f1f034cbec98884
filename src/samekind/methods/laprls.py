"""Laplacian regularized least squares (LapRLS): a sum of kernels that fits the labels and is smooth along a fixed graph.

Belkin, Niyogi & Sindhwani 2006, "Manifold Regularization: A Geometric Framework for Learning from Labeled and Unlabeled
Examples".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from samekind.config import NonNegative, Positive, PositiveInt
from samekind.data.dataset import Dataset
from samekind.graphs.kernels import gaussian_kernel, kernel_width, laplacian_rls, laplacian_rls_on_centers
from samekind.methods.base import Task
from samekind.methods.fixed_graph import DatasetGraph, FixedGraph, GraphConfig, build_dataset_graph
from samekind.methods.predictors import KernelPredictor
from samekind.methods.spec import NEIGHBORS_SPACE, MethodSpec
from samekind.nets.classifier import Classifier

# The kernel is this much wider than the distance between neighbours, so that it also covers new points between samples.
WIDTH_FACTOR = 2.0


@dataclass(frozen=True)
class LapRLSConfig(GraphConfig):
    """Settings of LapRLS: those of the graph, of the kernel and of the regularization."""

    # width of the Gaussian kernel; None: WIDTH_FACTOR times the median distance to the k-th neighbour
    width: Positive | None = None
    ridge: Positive = 0.005  # weight of the norm of the function; the paper's gamma_A l
    smoothness: NonNegative = 0.045  # weight of differences along edges of the graph; the paper's gamma_I l / n^2
    centers: PositiveInt = 2000  # largest number of kernel centres; labelled samples are chosen first


class LapRLS(FixedGraph):
    """Fits a sum of Gaussian kernels to the labels, with a penalty for differences along the edges of a graph."""

    def __init__(self, net: Classifier | None, task: Task, config: LapRLSConfig | None = None) -> None:
        super().__init__()
        self.config = config or LapRLSConfig()

    def solve(self, dataset: Dataset) -> KernelPredictor:
        c = self.config
        graph = build_dataset_graph(dataset, c, "predictions that the kernel extends from the labels of other parts")
        width = WIDTH_FACTOR * kernel_width(graph.points, graph.n_neighbors) if c.width is None else c.width
        centers = _choose_centers(graph, c.centers)
        a = torch.from_numpy(self._coefficients(graph, centers, width))
        points = graph.points[torch.from_numpy(centers)]
        return KernelPredictor(len(points), points.shape[1], dataset.n_classes).fill(points, a, width)

    def _coefficients(self, graph: DatasetGraph, centers: NDArray[np.int64], width: float) -> NDArray[np.float64]:
        c, labelled_graph = self.config, (graph.W, graph.y, graph.n_classes)
        if len(centers) == len(graph.points):
            x = graph.points.double()
            K = gaussian_kernel(x, x, width).numpy()
            return laplacian_rls(K, *labelled_graph, ridge=c.ridge, smoothness=c.smoothness)
        return laplacian_rls_on_centers(
            graph.points, centers, *labelled_graph, width=width, ridge=c.ridge, smoothness=c.smoothness
        )


def _choose_centers(graph: DatasetGraph, most: int) -> NDArray[np.int64]:
    """Return the indices of the kernel centres: all samples, or if there are more than `most`, labelled ones and random
    others.
    """
    if len(graph.y) <= most:
        return np.arange(len(graph.y))
    order = np.random.default_rng(0).permutation(len(graph.y))
    labelled_first = order[np.argsort(graph.y[order] < 0, kind="stable")]
    return np.sort(labelled_first[: max(most, int((graph.y >= 0).sum()))])


SPEC = MethodSpec(
    "laprls",
    LapRLS,
    LapRLSConfig,
    "a kernel function that is smooth along a fixed graph",
    paper="Belkin, Niyogi & Sindhwani 2006",
    search_space=NEIGHBORS_SPACE,
)
