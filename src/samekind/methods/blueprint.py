"""Blueprint: the part of a saved predictor that is not tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Blueprint:
    """Everything but the tensors that is needed to rebuild a predictor; stored as JSON."""

    kind: Literal["deep", "graph", "kernel", "ensemble"]
    log_odds: float = 0.0
    beta: float = 3.0
    similarity_layers: Sequence[int] | None = None  # None: no similarity net
    mirrored: bool = False
    n_points: int = 0
    n_features: int = 0
    n_classes: int = 0
    n_neighbors: int = 0
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)  # of the tensors of an ensemble

    @property
    def deep(self) -> bool:
        return self.kind == "deep"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
