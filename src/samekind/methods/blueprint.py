"""Blueprint: all that describes a saved predictor, except its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from samekind.files.json_rules import BOOLEAN, COUNT, NUMBER, ListOf, MapOf, OrNull, Record, number, one_of_texts, whole

RULE = Record(
    {"kind": one_of_texts("deep", "propagated", "graph", "kernel", "ensemble")},
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
    """Numbers and shapes from which a predictor is rebuilt before its tensors are loaded; stored as JSON."""

    kind: Literal["deep", "propagated", "graph", "kernel", "ensemble"]
    log_odds: float = 0.0
    beta: float = 3.0
    similarity_layers: Sequence[int] | None = None  # hidden layers of the similarity network; None: the predictor has none
    mirrored: bool = False
    n_points: int = 0
    n_features: int = 0
    n_classes: int = 0
    n_neighbors: int = 0
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)  # shapes of an ensemble's tensors, by name

    @classmethod
    def from_json(cls, content: Any) -> Blueprint:
        """Return the blueprint with the values of `as_dict`; raise ValueError if a value is out of range."""
        problem = RULE.problem(content, "predictor")
        if problem is not None:
            raise ValueError(problem)
        return cls(**content)

    @property
    def updatable(self) -> bool:
        """Whether a fit of this kind can be updated for other labels without a new training."""
        return self.kind == "ensemble"

    @property
    def deep(self) -> bool:
        """Whether the predictor has a neural network."""
        return self.kind in ("deep", "propagated")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
