"""Local and global consistency: every point of a fixed graph listens to its neighbours, and to its own label a little.

Zhou, Bousquet, Lal, Weston & Schölkopf 2004, "Learning with Local and Global Consistency".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from samekind.data.dataset import Dataset
from samekind.graphs.propagation import local_global_consistency
from samekind.methods.base import Task
from samekind.methods.fixed_graph import FixedGraph, GraphConfig, solve_on_graph
from samekind.methods.predictors import GraphPredictor
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class LGCConfig(GraphConfig):
    alpha: float = 0.99  # share of an answer that comes from the neighbours


class LocalGlobalConsistency(FixedGraph):
    def __init__(self, net: Classifier | None, task: Task, config: LGCConfig | None = None) -> None:
        super().__init__()
        self.config = config or LGCConfig()

    def solved(self, pool: Dataset) -> GraphPredictor:
        propagate = partial(local_global_consistency, alpha=self.config.alpha)
        return solve_on_graph(pool, self.config, propagate)
