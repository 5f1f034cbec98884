"""Harmonic functions: exact label propagation, with class mass normalization.

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
from samekind.methods.spec import NEIGHBORS_SPACE, MethodSpec
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class HarmonicConfig(GraphConfig):
    """Settings of harmonic functions: those of the graph, and the class sizes."""

    # Class sizes to which the predictions are normalized. "labels": the number of labels of each class, plus one. "off": none.
    class_mass: Literal["labels", "uniform", "off"] | tuple[float, ...] = "labels"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_class_fractions("class_mass", self.class_mass)


class Harmonic(FixedGraph):
    """Computes the harmonic function that equals the labels at labelled samples, then adjusts the class sizes."""

    def __init__(self, net: Classifier | None, task: Task, config: HarmonicConfig | None = None) -> None:
        super().__init__()
        self.config = config or HarmonicConfig()

    def solve(self, dataset: Dataset) -> GraphPredictor:
        return solve_on_graph(dataset, self.config, self._propagate)

    def _propagate(self, W: csr_array, y: Labels, n_classes: int) -> Floats:
        F, class_mass, free = harmonic(W, y, n_classes), self.config.class_mass, (y < 0) & reachable_from_labels(W, y)
        if class_mass == "off":
            return F
        if class_mass == "labels":
            return normalize_class_mass(F, free, np.bincount(y[y >= 0], minlength=n_classes) + 1.0)
        return normalize_class_mass(F, free, np.ones(n_classes) if class_mass == "uniform" else class_mass)


SPEC = MethodSpec(
    "harmonic",
    Harmonic,
    HarmonicConfig,
    "exact label propagation on a fixed graph, with given class sizes",
    paper="Zhu, Ghahramani & Lafferty 2003",
    search_space=NEIGHBORS_SPACE,
)
