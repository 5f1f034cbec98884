"""Label propagation: labels stay as given, and every other point of a fixed graph is the average of its neighbours.

Zhu & Ghahramani 2002, "Learning from Labeled and Unlabeled Data with Label Propagation".
"""

from __future__ import annotations

from dataclasses import dataclass

from samekind.data.pool import Pool
from samekind.graphs.propagation import label_propagation
from samekind.methods.contract import Task
from samekind.methods.fixed_graph import FixedGraph
from samekind.methods.predictors import GraphPredictor, predictor_on_graph
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class LabelPropagationConfig:
    n_neighbours: int | None = None  # of each point of the graph; None: log2(n), at least 5


class LabelPropagation(FixedGraph):
    def __init__(self, net: Classifier | None, task: Task, config: LabelPropagationConfig | None = None) -> None:
        super().__init__()
        self.config = config or LabelPropagationConfig()

    def solved(self, pool: Pool) -> GraphPredictor:
        return predictor_on_graph(pool, self.config.n_neighbours, label_propagation)
