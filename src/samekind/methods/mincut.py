"""Minimum cuts: the classes are separated where the removed edges of a fixed graph have the least total weight.

Blum & Chawla 2001, "Learning from Labeled and Unlabeled Data using Graph Mincuts".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from samekind.config import NonNegative, PositiveInt
from samekind.data.dataset import Dataset
from samekind.errors import SettingError
from samekind.graphs.min_cut import average_min_cuts
from samekind.methods.base import Task
from samekind.methods.fixed_graph import FixedGraph, GraphConfig, solve_on_graph
from samekind.methods.predictors import GraphPredictor
from samekind.methods.spec import NEIGHBORS_SPACE, MethodSpec
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class MincutConfig(GraphConfig):
    """Settings of minimum cuts: those of the graph, and of the noise."""

    cuts: PositiveInt = 1  # number of cuts to average, each with other random noise on the edge weights
    noise: NonNegative = 0.0  # edge weights are multiplied by random factors between 1 and 1 + noise
    seed: int = 0  # random seed of the noise

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cuts > 1 and self.noise == 0:
            raise SettingError(f"cuts is {self.cuts} and noise is 0: all cuts would be the same. Set noise, for example to 1.")


class Mincut(FixedGraph):
    """Separates the classes by a minimum cut of a fixed graph, or by the average of cuts with random noise on the edge
    weights.
    """

    def __init__(self, net: Classifier | None, task: Task, config: MincutConfig | None = None) -> None:
        super().__init__()
        self.config = config or MincutConfig()

    def solve(self, dataset: Dataset) -> GraphPredictor:
        c = self.config
        return solve_on_graph(dataset, c, partial(average_min_cuts, cuts=c.cuts, noise=c.noise, seed=c.seed))


SPEC = MethodSpec(
    "mincut",
    Mincut,
    MincutConfig,
    "classes are separated by the cheapest cut of a fixed graph",
    paper="Blum & Chawla 2001",
    search_space=NEIGHBORS_SPACE,
)
