"""Method specification: what the registry, the estimator and the benchmark need to know about a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from samekind.config import Config

DataKind = Literal["vectors", "images", "photos"]  # "images": in grey; "photos": in colour


class LogUniform(NamedTuple):
    """Range of a hyperparameter that is searched on a logarithmic scale."""

    low: float
    high: float


SearchSpace = Mapping[str, LogUniform | tuple[float | str, ...]]


@dataclass(frozen=True)
class MethodSpec:
    """Description of a method. The file of each method defines one, named `SPEC`."""

    name: str
    method: type
    config: type[Config]
    summary: str  # one line
    paper: str = ""  # authors, year and arXiv number of the paper
    base: str | None = None  # for an add-on: the base method that it wraps by default; None: not an add-on
    defaults: Mapping[str, Any] = field(default_factory=dict)  # settings of preset="auto" that differ from the config class
    # settings of preset="auto" for one kind of data; they override `defaults`
    defaults_by_kind: Mapping[DataKind, Mapping[str, Any]] = field(default_factory=dict)
    # settings of preset="paper" for one kind of data that differ from the config class
    paper_by_kind: Mapping[DataKind, Mapping[str, Any]] = field(default_factory=dict)
    search_space: SearchSpace = field(default_factory=dict)  # ranges of the hyperparameters that `bench --tune` searches


CONSISTENCY_SPACE: SearchSpace = {"w_max": LogUniform(1.0, 100.0), "rampup": (0.1, 0.3, 0.6)}
THRESHOLD_SPACE: SearchSpace = {"threshold": (0.8, 0.9, 0.95), "lambda_u": (0.5, 1.0, 2.0)}
RAMPUP_SPACE: SearchSpace = {"lambda_u_rampup": (0.0, 0.4)}
NEIGHBORS_SPACE: SearchSpace = {"n_neighbors": (10, 20, 50)}
