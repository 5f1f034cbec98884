"""Label propagation: labels stay as given, and every other point of a fixed graph is the average of its neighbours.

Zhu & Ghahramani 2002, "Learning from Labeled and Unlabeled Data with Label Propagation".
"""

from __future__ import annotations

from dataclasses import dataclass

from samekind.data.dataset import Dataset
from samekind.graphs.propagation import label_propagation
from samekind.methods.base import Task
from samekind.methods.fixed_graph import FixedGraph, GraphConfig, solve_on_graph
from samekind.methods.predictors import GraphPredictor
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class LabelPropagationConfig(GraphConfig):
    """Nothing to set but the graph."""


class LabelPropagation(FixedGraph):
    def __init__(self, net: Classifier | None, task: Task, config: LabelPropagationConfig | None = None) -> None:
        super().__init__()
        self.config = config or LabelPropagationConfig()

    def solved(self, pool: Dataset) -> GraphPredictor:
        return solve_on_graph(pool, self.config, label_propagation)
