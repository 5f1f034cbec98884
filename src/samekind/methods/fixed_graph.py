"""What methods on a fixed graph share: one look at the pool does all the work, and no step follows."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from samekind.data.dataset import Batch, Dataset
from samekind.errors import DataError, SettingError, UnreachableWarning
from samekind.graphs.affinity import choose_n_neighbors, self_tuning_graph
from samekind.graphs.linear_systems import Floats, Labels, components, reachable_from_labels
from samekind.methods.base import refuse_unknown_values
from samekind.methods.predictors import GraphPredictor, KernelPredictor


@dataclass(frozen=True)
class GraphConfig:
    n_neighbors: int | None = None  # of each point of the graph; None: log2(n), at least 5
    search: Literal["auto", "exact", "ann"] = "auto"  # of neighbours; "ann" cell by cell, "auto" so from 20,000 rows

    def __post_init__(self) -> None:
        refuse_unknown_values(self)
        if self.n_neighbors is not None and self.n_neighbors < 1:
            raise SettingError(
                f"n_neighbors is {self.n_neighbors}; expected at least 1. Leave it out to have it chosen from the data."
            )


def require_class_fractions(name: str, shares: str | Sequence[float]) -> None:
    """Shares of classes, where they are given as numbers, must be above 0; how many there are is seen with the data."""
    if not isinstance(shares, str) and (len(shares) < 2 or not all(0.0 < share < float("inf") for share in shares)):
        raise SettingError(f"{name} is {shares}; expected a number above 0 for each of two or more classes")


class DatasetGraph(NamedTuple):
    """The graph of a pool: its rows as points (n, d), W, the widths of the points, neighbours of each, and labels."""

    points: Tensor
    W: csr_array
    widths: Tensor
    n_neighbors: int
    y: Labels
    n_classes: int

    def answered(self, F: Floats) -> GraphPredictor:
        """A predictor that gives the points these answers, and anything else the average of those around it."""
        sizes = len(self.points), self.points.shape[1], self.n_classes, self.n_neighbors
        return GraphPredictor(*sizes).fill(self.points, self.widths, torch.from_numpy(F))


def build_dataset_graph(
    pool: Dataset, config: GraphConfig, unreached: str = "equal shares of all classes", *, sharpness: float = 1.0
) -> DatasetGraph:
    """The self-tuned graph of a pool's rows. Where labels cannot reach all of it, a warning says what such rows get."""
    # in the precision that the predictor keeps: the pool may hold bytes, and a row must find its width again
    points = pool.inputs(slice(None)).flatten(1).to(torch.get_default_dtype())
    k = choose_n_neighbors(len(points), config.n_neighbors)
    W, widths = self_tuning_graph(points, k, search=config.search, sharpness=sharpness)
    y = pool.y.cpu().numpy()
    _warn_if_unreachable(W, y, unreached)
    return DatasetGraph(points, W, widths, k, y, pool.n_classes)


def _warn_if_unreachable(W: csr_array, y: Labels, consequence: str) -> None:
    without = ~reachable_from_labels(W, y)
    if without.any() and (y >= 0).any():
        parts = len(np.unique(components(W)[without]))
        where = "1 part" if parts == 1 else f"{parts} parts"
        warnings.warn(
            f"{without.sum()} of {len(y)} rows lie in {where} of the graph without a label, and get {consequence}. "
            "Raise n_neighbors, or label a row in each part.",
            UnreachableWarning,
            stacklevel=2,
        )


class FixedGraph(nn.Module, ABC):
    """A method that only has to say how the graph of a pool is solved."""

    iterative = False
    labelled_views: tuple[str, ...] = ()
    unlabelled_views: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.graph: GraphPredictor | KernelPredictor | None = None
        self.observed: dict[str, Tensor] = {}

    @abstractmethod
    def solved(self, pool: Dataset) -> GraphPredictor | KernelPredictor:
        """The graph of the pool, its labels carried along the edges."""

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Nothing is learned step by step."""
        return {}

    def after_step(self) -> None:
        """Nothing moves."""

    def refresh(self, pool: Dataset) -> None:
        """Build the graph of the pool and solve it."""
        self.graph = self.solved(pool)
        self.observed = {"mean_f": self.graph.answers().mean(0)}

    def predictor(self) -> nn.Module:
        if self.graph is None:
            raise DataError("No pool has been looked at, so there is no graph. Call refresh(pool) before predictor().")
        return self.graph


def solve_on_graph(
    pool: Dataset, config: GraphConfig, propagate: Callable[[csr_array, Labels, int], Floats], *, sharpness: float = 1.0
) -> GraphPredictor:
    """The graph of a pool's rows, its labels carried along the edges by `propagate(W, y, C)`."""
    graph = build_dataset_graph(pool, config, sharpness=sharpness)
    return graph.answered(propagate(graph.W, graph.y, graph.n_classes))
