"""What methods on a fixed graph share: one look at the pool does all the work, and no step follows."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from samekind.data.pool import Batch, Pool
from samekind.errors import DataError
from samekind.methods.predictors import GraphPredictor


class FixedGraph(nn.Module, ABC):
    """A method that only has to say how the graph of a pool is solved."""

    steps_needed = False
    labelled_views: tuple[str, ...] = ()
    unlabelled_views: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.graph: GraphPredictor | None = None
        self.observed: dict[str, Tensor] = {}

    @abstractmethod
    def solved(self, pool: Pool) -> GraphPredictor:
        """The graph of the pool, its labels carried along the edges."""

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Nothing is learned step by step."""
        return {}

    def after_step(self) -> None:
        """Nothing moves."""

    def refresh(self, pool: Pool) -> None:
        """Build the graph of the pool and solve it."""
        self.graph = self.solved(pool)
        self.observed = {"mean_f": self.graph.F.mean(0)}

    def predictor(self) -> nn.Module:
        if self.graph is None:
            raise DataError("No pool has been looked at, so there is no graph. Call refresh(pool) before predictor().")
        return self.graph
