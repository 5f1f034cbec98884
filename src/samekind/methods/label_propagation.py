"""Label propagation: given labels stay fixed, and every other point of a graph becomes the average of its neighbours.

Zhu & Ghahramani 2002, "Learning from Labeled and Unlabeled Data with Label Propagation".
"""

from __future__ import annotations

from dataclasses import dataclass

from samekind.data.dataset import Dataset
from samekind.graphs.propagation import label_propagation
from samekind.methods.base import Task
from samekind.methods.fixed_graph import FixedGraph, GraphConfig, solve_on_graph
from samekind.methods.predictors import GraphPredictor
from samekind.methods.spec import NEIGHBORS_SPACE, MethodSpec
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class LabelPropagationConfig(GraphConfig):
    """Settings of label propagation. There are none but those of the graph."""


class LabelPropagation(FixedGraph):
    """Propagates the labels along the edges of a fixed neighbour graph."""

    def __init__(self, net: Classifier | None, task: Task, config: LabelPropagationConfig | None = None) -> None:
        super().__init__()
        self.config = config or LabelPropagationConfig()

    def solve(self, dataset: Dataset) -> GraphPredictor:
        return solve_on_graph(dataset, self.config, label_propagation)


SPEC = MethodSpec(
    "label_propagation",
    LabelPropagation,
    LabelPropagationConfig,
    "labels propagate along a fixed neighbour graph",
    paper="Zhu & Ghahramani 2002",
    search_space=NEIGHBORS_SPACE,
)
