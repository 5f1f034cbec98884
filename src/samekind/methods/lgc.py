"""Local and global consistency (LGC): each point of a graph becomes a weighted mean of its neighbours and its own label.

Zhou, Bousquet, Lal, Weston & Schölkopf 2004, "Learning with Local and Global Consistency".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from samekind.config import FractionBelowOne
from samekind.data.dataset import Dataset
from samekind.graphs.propagation import local_global_consistency
from samekind.methods.base import Task
from samekind.methods.fixed_graph import FixedGraph, GraphConfig, solve_on_graph
from samekind.methods.predictors import GraphPredictor
from samekind.methods.spec import NEIGHBORS_SPACE, MethodSpec
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class LGCConfig(GraphConfig):
    """Settings of local and global consistency; the defaults are the paper's."""

    alpha: FractionBelowOne = 0.99  # α, fraction of a prediction that comes from the neighbours


class LocalGlobalConsistency(FixedGraph):
    """Spreads the labels over a fixed graph.

    Unlike in label propagation, the neighbours of a labelled sample can change its class.
    """

    def __init__(self, net: Classifier | None, task: Task, config: LGCConfig | None = None) -> None:
        super().__init__()
        self.config = config or LGCConfig()

    def solve(self, dataset: Dataset) -> GraphPredictor:
        propagate = partial(local_global_consistency, alpha=self.config.alpha)
        return solve_on_graph(dataset, self.config, propagate)


SPEC = MethodSpec(
    "lgc",
    LocalGlobalConsistency,
    LGCConfig,
    "labels spread over a fixed graph, and may be outvoted",
    paper="Zhou, Bousquet, Lal, Weston & Schölkopf 2004",
    search_space={**NEIGHBORS_SPACE, "alpha": (0.9, 0.99)},
)
