"""Poisson learning: labels are sources and sinks on a fixed graph, and the potential between them decides.

Calder, Cook, Thorpe & Slepčev 2020, "Poisson Learning: Graph Based Semi-Supervised Learning At Very Low Label Rates".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from samekind.data.dataset import Dataset
from samekind.errors import SettingError
from samekind.graphs.poisson_learning import poisson_learning
from samekind.methods.base import Task
from samekind.methods.fixed_graph import FixedGraph, GraphConfig, require_class_fractions, solve_on_graph
from samekind.methods.predictors import GraphPredictor
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class PoissonConfig(GraphConfig):
    n_neighbors: int | None = 10  # of each point of the graph, as in the paper; None: log2(n), at least 5
    sharpness: float = 4.0  # of weights exp(-sharpness d^2 / (s_i s_j)), as in the paper; 1 on the graph of the other methods
    shares: Literal["labels", "uniform"] | tuple[float, ...] = "labels"  # of the classes in the pool, if they are known
    mbo: int = 0  # rounds of threshold dynamics, which hold classes to their shares: PoissonMBO, 20 in the paper

    def __post_init__(self) -> None:
        super().__post_init__()
        require_class_fractions("shares", self.shares)
        if not 0.0 < self.sharpness < float("inf"):
            raise SettingError(f"sharpness is {self.sharpness}; expected a number above 0. The paper has 4.")
        if self.mbo < 0:
            raise SettingError(f"mbo is {self.mbo}; expected a number of rounds from 0. The paper's PoissonMBO has 20.")


class Poisson(FixedGraph):
    def __init__(self, net: Classifier | None, task: Task, config: PoissonConfig | None = None) -> None:
        super().__init__()
        self.config = config or PoissonConfig()

    def solved(self, pool: Dataset) -> GraphPredictor:
        named = {"labels": None, "uniform": [1.0] * pool.n_classes}
        shares = named[self.config.shares] if isinstance(self.config.shares, str) else self.config.shares
        solve = partial(poisson_learning, class_fractions=shares, rounds=self.config.mbo)
        return solve_on_graph(pool, self.config, solve, sharpness=self.config.sharpness)
