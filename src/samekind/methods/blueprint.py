"""Blueprint: the part of a saved predictor that is not tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from samekind.files.json_rules import BOOLEAN, COUNT, NUMBER, ListOf, MapOf, OrNull, Record, number, one_of_texts, whole

RULE = Record(
    {"kind": one_of_texts("deep", "graph", "kernel", "ensemble")},
    {
        "log_odds": NUMBER,
        "beta": number(0),
        "similarity_layers": OrNull(ListOf(whole(1, 2**24), 1, 64)),
        "mirrored": BOOLEAN,
        "n_points": COUNT,
        "n_features": COUNT,
        "n_classes": COUNT,
        "n_neighbors": COUNT,
        "shapes": MapOf(ListOf(COUNT, most=4)),
    },
    closed=True,
)


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

    @classmethod
    def from_json(cls, content: Any) -> Blueprint:
        """Return the blueprint that `as_dict` described; raise ValueError if a value is out of range."""
        problem = RULE.problem(content, "predictor")
        if problem is not None:
            raise ValueError(problem)
        return cls(**content)

    @property
    def deep(self) -> bool:
        return self.kind == "deep"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
