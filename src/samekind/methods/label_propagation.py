"""Label propagation: labels stay as given, and every other point of a fixed graph is the average of its neighbours.

Zhu & Ghahramani 2002, "Learning from Labeled and Unlabeled Data with Label Propagation".
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from samekind.data.pool import Batch, Pool
from samekind.errors import DataError
from samekind.graphs.propagation import label_propagation
from samekind.methods.contract import Task
from samekind.methods.predictors import GraphPredictor, predictor_on_graph
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class LabelPropagationConfig:
    n_neighbours: int | None = None  # of each point of the graph; None: log2(n), at least 5


class LabelPropagation(nn.Module):
    steps_needed = False
    labelled_views: tuple[str, ...] = ()
    unlabelled_views: tuple[str, ...] = ()

    def __init__(self, net: Classifier | None, task: Task, config: LabelPropagationConfig | None = None) -> None:
        super().__init__()
        self.config = config or LabelPropagationConfig()
        self.graph: GraphPredictor | None = None
        self.observed: dict[str, Tensor] = {}

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Nothing is learned step by step."""
        return {}

    def after_step(self) -> None:
        """Nothing moves."""

    def refresh(self, pool: Pool) -> None:
        """Build the graph of the pool and solve it."""
        self.graph = predictor_on_graph(pool, self.config.n_neighbours, label_propagation)
        self.observed = {"mean_f": self.graph.F.mean(0)}

    def predictor(self) -> nn.Module:
        if self.graph is None:
            raise DataError("No pool has been looked at, so there is no graph. Call refresh(pool) before predictor().")
        return self.graph
