"""Harmonic functions: label propagation solved without a ground, and classes brought to the sizes they should have.

Zhu, Ghahramani & Lafferty 2003, "Semi-Supervised Learning Using Gaussian Fields and Harmonic Functions".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from samekind.data.dataset import Dataset
from samekind.graphs.linear_systems import Floats, Labels, reachable_from_labels
from samekind.graphs.propagation import harmonic, normalize_class_mass
from samekind.methods.base import Task
from samekind.methods.fixed_graph import FixedGraph, GraphConfig, require_class_fractions, solve_on_graph
from samekind.methods.predictors import GraphPredictor
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class HarmonicConfig(GraphConfig):
    # sizes that classes are brought to: "labels" as often as among the labels, one more of each; "off" leaves F as it is
    class_mass: Literal["labels", "uniform", "off"] | tuple[float, ...] = "labels"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_class_fractions("class_mass", self.class_mass)


class Harmonic(FixedGraph):
    def __init__(self, net: Classifier | None, task: Task, config: HarmonicConfig | None = None) -> None:
        super().__init__()
        self.config = config or HarmonicConfig()

    def solved(self, pool: Dataset) -> GraphPredictor:
        return solve_on_graph(pool, self.config, self._answers)

    def _answers(self, W: csr_array, y: Labels, n_classes: int) -> Floats:
        F, wanted, free = harmonic(W, y, n_classes), self.config.class_mass, (y < 0) & reachable_from_labels(W, y)
        if wanted == "off":
            return F
        if wanted == "labels":
            return normalize_class_mass(F, free, np.bincount(y[y >= 0], minlength=n_classes) + 1.0)
        return normalize_class_mass(F, free, np.ones(n_classes) if wanted == "uniform" else wanted)
