"""Local and global consistency: every point of a fixed graph listens to its neighbours, and to its own label a little.

Zhou, Bousquet, Lal, Weston & Schölkopf 2004, "Learning with Local and Global Consistency".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from samekind.data.pool import Batch, Pool
from samekind.errors import DataError
from samekind.graphs.propagation import local_global_consistency
from samekind.methods.contract import Task
from samekind.methods.predictors import GraphPredictor, predictor_on_graph
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class LGCConfig:
    n_neighbours: int | None = None  # of each point of the graph; None: log2(n), at least 5
    alpha: float = 0.99  # share of an answer that comes from the neighbours


class LocalGlobalConsistency(nn.Module):
    steps_needed = False
    labelled_views: tuple[str, ...] = ()
    unlabelled_views: tuple[str, ...] = ()

    def __init__(self, net: Classifier | None, task: Task, config: LGCConfig | None = None) -> None:
        super().__init__()
        self.config = config or LGCConfig()
        self.graph: GraphPredictor | None = None
        self.observed: dict[str, Tensor] = {}

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Nothing is learned step by step."""
        return {}

    def after_step(self) -> None:
        """Nothing moves."""

    def refresh(self, pool: Pool) -> None:
        """Build the graph of the pool and solve it."""
        propagate = partial(local_global_consistency, alpha=self.config.alpha)
        self.graph = predictor_on_graph(pool, self.config.n_neighbours, propagate)
        self.observed = {"mean_f": self.graph.F.mean(0)}

    def predictor(self) -> nn.Module:
        if self.graph is None:
            raise DataError("No pool has been looked at, so there is no graph. Call refresh(pool) before predictor().")
        return self.graph
