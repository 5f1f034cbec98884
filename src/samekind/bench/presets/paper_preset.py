"""A preset: one cell of a published table as data. What was trained, on what, how, and which error came of it.

Lengths are in steps, so that papers which count epochs, updates or images stand side by side. A preset may name a method that
is not in METHODS yet; `why_not` of experiments/paper_scale.py says what is missing before it can run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from samekind.data.hub.catalogue import find_dataset
from samekind.errors import SettingError
from samekind.methods.base import refuse_unknown_values

NetKind = Literal["conv13", "wide_resnet", "cclp"]
Normalisation = Literal["per_image", "per_channel", "zca", "symmetric"]
DecayShape = Literal["none", "sigmoid", "cosine", "linear", "stairs", "cycles"]


@dataclass(frozen=True)
class NetSpec:
    """`variant` and `weight_norm` are CNN-13's, `maps` and `channel_dropout` CCLP's; the wide residual net has no dropout."""

    kind: NetKind = "conv13"
    variant: Literal["A", "B"] = "B"
    weight_norm: bool = True
    dropout: float = 0.5
    maps: int = 96  # channels of the first convolutions
    channel_dropout: float = 0.0  # of the input

    def __post_init__(self) -> None:
        refuse_unknown_values(self)
        for name in ("dropout", "channel_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise SettingError(f"{name} is {getattr(self, name)}; expected a share from 0 to below 1")


@dataclass(frozen=True)
class Augmentation:
    """What every view does, after normalisation, and what is done before it where the student looks at unlabelled images."""

    shift: int = 2  # pixels in each direction, edges reflected
    flip: bool = False
    noise: float = 0.0
    strong: Literal["none", "randaugment", "ctaugment"] = "none"

    def __post_init__(self) -> None:
        refuse_unknown_values(self)
        if self.shift < 0 or self.noise < 0:
            raise SettingError(f"shift is {self.shift} and noise is {self.noise}; expected 0 or more")


@dataclass(frozen=True)
class OptimizerSpec:
    """Adam's betas, or SGD's momentum with Nesterov's correction."""

    kind: Literal["adam", "sgd"] = "adam"
    lr: float = 0.003
    beta1_end: float = 0.5  # where 0.9 goes as the rate falls
    beta2_start: float = 0.999  # while the rate rises
    beta2: float = 0.999
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        refuse_unknown_values(self)
        if not self.lr > 0:
            raise SettingError(f"lr is {self.lr}; expected more than 0")


@dataclass(frozen=True)
class ScheduleSpec:
    """Length of the run, steps in an epoch, and how the rate rises (sigmoid) and falls; all but `fall` in steps."""

    steps: int
    epoch: int
    rampup: int = 0
    fall: DecayShape = "sigmoid"
    rampdown: int = 0  # "sigmoid", "linear": the last steps; "cosine": a half period, longer than the run
    stairs: tuple[tuple[int, float], ...] = ()  # "stairs": from which steps on, and the share of the rate there

    def __post_init__(self) -> None:
        refuse_unknown_values(self)
        if self.steps < 1 or self.epoch < 1 or min(self.rampup, self.rampdown) < 0 or self.rampup > self.steps:
            raise SettingError(f"{self} cannot be: expected one or more steps, and a ramp-up that ends within them")

    @property
    def epochs(self) -> float:
        return self.steps / self.epoch


@dataclass(frozen=True)
class PublishedError:
    """Test error in per cent, mean and standard deviation over runs; None where the table gives no spread."""

    error: float
    spread: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.error <= 100.0 or (self.spread is not None and self.spread < 0.0):
            raise SettingError(f"{self} cannot be: expected an error from 0 to 100 per cent and no spread below 0")

    def __str__(self) -> str:
        return f"{self.error:.2f}" if self.spread is None else f"{self.error:.2f} ± {self.spread:.2f}"


@dataclass(frozen=True)
class PaperPreset:
    """A cell of a table. `settings` holds what is not the method's default; `source` says whose they are, `note` what is our
    reading or differs from what was done then. The error is the one that the table quotes, if it has this cell."""

    table: str
    data: str
    labels: int
    method: str
    net: NetSpec
    augmentation: Augmentation
    normalisation: Normalisation
    batch_labelled: int
    batch_unlabelled: int
    optimizer: OptimizerSpec
    times: ScheduleSpec
    published: PublishedError | None
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    variant: str = ""  # tells rows of one method apart

    def __post_init__(self) -> None:
        refuse_unknown_values(self)
        counts = find_dataset(self.data).train.class_counts
        if not len(counts) <= self.labels <= sum(counts):
            raise SettingError(f"labels is {self.labels}; {self.data} can show {len(counts)}, one a class, to {sum(counts)}")
        if self.batch_labelled < 1 or self.batch_unlabelled < 0:
            raise SettingError(f"a batch of {self.batch_labelled} labelled and {self.batch_unlabelled} other rows cannot be")

    @property
    def name(self) -> str:
        return f"{self.table}/{self.row}/{self.labels}"

    @property
    def row(self) -> str:
        """What stands at the head of its row."""
        return f"{self.method} ({self.variant})" if self.variant else self.method

    @property
    def n_validation(self) -> int:
        """Rows to hold out while settings are chosen; a final run trains on them too."""
        return VALIDATION[self.data]


VALIDATION = {"svhn": 1000, "cifar10": 5000, "cifar100": 5000}


def row(first: PaperPreset, others: Mapping[int, PublishedError], **changes: Mapping[int, Any]) -> tuple[PaperPreset, ...]:
    """A row of a table: its first cell, and one for each other number of labels; `changes` has the fields that move with it."""
    cells = [first]
    for labels, published in others.items():
        moved = {name: by_labels[labels] for name, by_labels in changes.items()}
        cells.append(replace(first, labels=labels, published=published, **moved))
    return tuple(cells)
