"""Methods on a fixed graph of the inputs: `refresh` builds the graph and solves for the predictions; there are no training
steps.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from samekind.config import Config, PositiveInt
from samekind.data.dataset import Batch, Dataset
from samekind.errors import DataError, SettingError, UnreachableWarning
from samekind.graphs.affinity import choose_n_neighbors, self_tuning_graph
from samekind.graphs.linear_systems import Floats, Labels, components, reachable_from_labels
from samekind.methods.base import Method
from samekind.methods.predictors import GraphPredictor, KernelPredictor


@dataclass(frozen=True)
class GraphConfig(Config):
    """Settings of a fixed graph."""

    n_neighbors: PositiveInt | None = None  # neighbours of each sample in the graph; None: log2(n), at least 5
    # "exact", approximate ("ann"), or "auto": approximate for 20,000 samples or more
    search: Literal["auto", "exact", "ann"] = "auto"


def require_class_fractions(name: str, fractions: str | Sequence[float]) -> None:
    """Raise SettingError if `fractions` are numbers, but fewer than two, or not all above 0 and finite."""
    if not isinstance(fractions, str) and (len(fractions) < 2 or not all(0.0 < one < float("inf") for one in fractions)):
        raise SettingError(f"{name} is {fractions}; expected a number above 0 for each of two or more classes")


class DatasetGraph(NamedTuple):
    """Graph of a dataset, and its labels.

    The samples are the points (n, d); W (n, n) are the edge weights; `widths` (n,) are the kernel widths of the points.
    """

    points: Tensor
    W: csr_array
    widths: Tensor
    n_neighbors: int
    y: Labels
    n_classes: int

    def predictor(self, F: Floats) -> GraphPredictor:
        """Return a predictor that gives the points of the graph the probabilities F (n, C), and interpolates F for new
        samples.
        """
        sizes = len(self.points), self.points.shape[1], self.n_classes, self.n_neighbors
        return GraphPredictor(*sizes).fill(self.points, self.widths, torch.from_numpy(F))


def build_dataset_graph(
    dataset: Dataset, config: GraphConfig, unreached: str = "equal probabilities of all classes", *, sharpness: float = 1.0
) -> DatasetGraph:
    """Build the self-tuning graph of all samples of the dataset.

    Samples that no path connects to a label cause a warning; it says that these samples get `unreached`.
    """
    # in the dtype of the predictor, because the predictor recognizes a sample of the graph by its exact values
    points = dataset.inputs(slice(None)).flatten(1).to(torch.get_default_dtype())
    k = choose_n_neighbors(len(points), config.n_neighbors)
    W, widths = self_tuning_graph(points, k, search=config.search, sharpness=sharpness)
    y = dataset.y.cpu().numpy()
    _warn_if_unreachable(W, y, unreached)
    return DatasetGraph(points, W, widths, k, y, dataset.n_classes)


def _warn_if_unreachable(W: csr_array, y: Labels, consequence: str) -> None:
    unreachable = ~reachable_from_labels(W, y)
    if unreachable.any() and (y >= 0).any():
        n_parts = len(np.unique(components(W)[unreachable]))
        where = "1 part" if n_parts == 1 else f"{n_parts} parts"
        warnings.warn(
            f"{unreachable.sum()} of {len(y)} samples lie in {where} of the graph without a label, and get {consequence}. "
            "Raise n_neighbors, or label a sample in each part.",
            UnreachableWarning,
            stacklevel=2,
        )


class FixedGraph(Method):
    """Method that solves for the predictions on a fixed graph instead of training by steps. A subclass implements `solve`."""

    iterative = False
    labelled_views = ()
    unlabelled_views = ()

    def __init__(self) -> None:
        super().__init__()
        self.graph: GraphPredictor | KernelPredictor | None = None

    @abstractmethod
    def solve(self, dataset: Dataset) -> GraphPredictor | KernelPredictor:
        """Build the graph of the dataset, propagate the labels over it, and return the predictor."""

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Return no terms: this method has no training steps."""
        return {}

    def refresh(self, dataset: Dataset) -> None:
        self.graph = self.solve(dataset)
        self.diagnostics = {"mean_f": self.graph.point_probabilities().mean(0)}

    def predictor(self) -> nn.Module:
        if self.graph is None:
            raise DataError("the neighbour graph is not built yet. Call refresh(dataset) before predictor().")
        return self.graph


def solve_on_graph(
    dataset: Dataset, config: GraphConfig, propagate: Callable[[csr_array, Labels, int], Floats], *, sharpness: float = 1.0
) -> GraphPredictor:
    """Build the graph of the dataset, propagate the labels with `propagate(W, y, C)`, and return the predictor."""
    graph = build_dataset_graph(dataset, config, sharpness=sharpness)
    return graph.predictor(propagate(graph.W, graph.y, graph.n_classes))
