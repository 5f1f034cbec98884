"""Poisson learning: labels are sources and sinks of a potential on a fixed graph; the largest potential gives the class.

Calder, Cook, Thorpe & Slepčev 2020, "Poisson Learning: Graph Based Semi-Supervised Learning At Very Low Label Rates".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from samekind.config import NonNegativeInt, Positive, PositiveInt
from samekind.data.dataset import Dataset
from samekind.graphs.poisson_learning import poisson_learning
from samekind.methods.base import Task
from samekind.methods.fixed_graph import FixedGraph, GraphConfig, require_class_fractions, solve_on_graph
from samekind.methods.predictors import GraphPredictor
from samekind.methods.spec import NEIGHBORS_SPACE, MethodSpec
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class PoissonConfig(GraphConfig):
    """Settings of Poisson learning; the defaults are the paper's."""

    n_neighbors: PositiveInt | None = 10  # neighbours of each sample in the graph; None: log2(n), at least 5
    # edge weights are exp(-sharpness d^2 / (s_i s_j)), with distance d and local widths s; the other methods have 1
    sharpness: Positive = 4.0
    class_fractions: Literal["labels", "uniform"] | tuple[float, ...] = "labels"  # "labels": as among the labelled samples
    mbo: NonNegativeInt = 0  # rounds of PoissonMBO, which enforces class_fractions; the paper has 20

    def __post_init__(self) -> None:
        super().__post_init__()
        require_class_fractions("class_fractions", self.class_fractions)


class Poisson(FixedGraph):
    """Solves a Poisson equation on a fixed graph, where the labels are the sources."""

    def __init__(self, net: Classifier | None, task: Task, config: PoissonConfig | None = None) -> None:
        super().__init__()
        self.config = config or PoissonConfig()

    def solve(self, dataset: Dataset) -> GraphPredictor:
        named = {"labels": None, "uniform": [1.0] * dataset.n_classes}
        fractions = self.config.class_fractions
        class_fractions = named[fractions] if isinstance(fractions, str) else fractions
        propagate = partial(poisson_learning, class_fractions=class_fractions, rounds=self.config.mbo)
        return solve_on_graph(dataset, self.config, propagate, sharpness=self.config.sharpness)


SPEC = MethodSpec(
    "poisson",
    Poisson,
    PoissonConfig,
    "labels are sources and sinks of a potential on a fixed graph",
    paper="Calder, Cook, Thorpe & Slepčev 2020",
    search_space=NEIGHBORS_SPACE,
)
