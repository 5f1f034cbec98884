"""Minimum cuts: the classes part where the edges of a fixed graph weigh least.

Blum & Chawla 2001, "Learning from Labeled and Unlabeled Data using Graph Mincuts".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from samekind.data.dataset import Dataset
from samekind.errors import SettingError
from samekind.graphs.min_cut import average_min_cuts
from samekind.methods.base import Task
from samekind.methods.fixed_graph import FixedGraph, GraphConfig, solve_on_graph
from samekind.methods.predictors import GraphPredictor
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class MincutConfig(GraphConfig):
    cuts: int = 1  # that are averaged, each of a graph with other noise
    noise: float = 0.0  # weights are multiplied by 1 to 1 + noise, at random
    seed: int = 0  # of the noise

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cuts < 1 or not 0.0 <= self.noise < float("inf"):
            raise SettingError(f"cuts is {self.cuts} and noise is {self.noise}; expected cuts from 1 and noise from 0")
        if self.cuts > 1 and self.noise == 0:
            raise SettingError(f"cuts is {self.cuts} and noise is 0: all cuts would be the same. Set noise, for example to 1.")


class Mincut(FixedGraph):
    def __init__(self, net: Classifier | None, task: Task, config: MincutConfig | None = None) -> None:
        super().__init__()
        self.config = config or MincutConfig()

    def solved(self, pool: Dataset) -> GraphPredictor:
        c = self.config
        return solve_on_graph(pool, c, partial(average_min_cuts, cuts=c.cuts, noise=c.noise, seed=c.seed))
