"""Presets: the settings of one cell in a published table, and the error that the table reports.

Lengths are in steps, because papers use different units: epochs, updates or images. A preset may name a method that samekind
does not have yet; `missing_requirement` in bench/running/paper_scale.py returns what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from samekind.config import validate_config
from samekind.data.hub.catalogue import find_dataset
from samekind.errors import SettingError

NetKind = Literal["conv13", "wide_resnet", "cclp"]
Normalization = Literal["per_image", "per_channel", "zca", "symmetric"]
DecayShape = Literal["none", "sigmoid", "cosine", "linear", "multistep", "cycles"]


@dataclass(frozen=True)
class NetSpec:
    """Network of a preset.

    `variant` and `weight_norm` apply to CNN-13 only, `maps` and `channel_dropout` to the network of CCLP only. The wide
    residual network has no dropout.
    """

    kind: NetKind = "conv13"
    variant: Literal["A", "B"] = "B"
    weight_norm: bool = True
    dropout: float = 0.5
    maps: int = 96  # number of channels of the first convolutions
    channel_dropout: float = 0.0  # fraction of the input channels that dropout removes

    def __post_init__(self) -> None:
        validate_config(self)
        for name in ("dropout", "channel_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise SettingError(f"{name} is {getattr(self, name)}; expected a fraction from 0 to below 1")


@dataclass(frozen=True)
class Augmentation:
    """Augmentation of a preset.

    Weak augmentation comes after normalization. `strong` comes before it, and only for the unlabelled images that the student
    gets.
    """

    shift: int = 2  # largest shift in each direction, in pixels; the edges are reflected
    flip: bool = False
    noise: float = 0.0
    strong: Literal["none", "randaugment", "ctaugment"] = "none"

    def __post_init__(self) -> None:
        validate_config(self)
        if self.shift < 0 or self.noise < 0:
            raise SettingError(f"shift is {self.shift} and noise is {self.noise}; expected 0 or more")


@dataclass(frozen=True)
class OptimizerSpec:
    """Optimizer of a preset: Adam with its betas, or SGD with Nesterov momentum."""

    kind: Literal["adam", "sgd"] = "adam"
    lr: float = 0.003
    beta1_end: float = 0.5  # value to which beta1 falls from 0.9, as the learning rate decays
    beta2_start: float = 0.999  # beta2 during the ramp-up of the learning rate
    beta2: float = 0.999
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        validate_config(self)
        if not self.lr > 0:
            raise SettingError(f"lr is {self.lr}; expected a learning rate above 0")


@dataclass(frozen=True)
class ScheduleSpec:
    """Number of steps of a run, and the ramp-up and the decay of its learning rate. All lengths are numbers of steps."""

    steps: int
    epoch: int
    rampup: int = 0
    decay: DecayShape = "sigmoid"
    rampdown: int = 0  # steps of the decay at the end; for "cosine" half of the period, which is longer than the run
    milestones: tuple[tuple[int, float], ...] = ()  # for "multistep": (step, factor on the learning rate from this step on)

    def __post_init__(self) -> None:
        validate_config(self)
        if self.steps < 1 or self.epoch < 1 or min(self.rampup, self.rampdown) < 0 or self.rampup > self.steps:
            raise SettingError(
                f"the schedule {self} is not possible: expected at least 1 step, and a ramp-up not longer than the run"
            )

    @property
    def epochs(self) -> float:
        return self.steps / self.epoch


@dataclass(frozen=True)
class PublishedError:
    """Published test error in percent: the mean over runs, and their standard deviation (`spread`), None if it is not
    reported.
    """

    error: float
    spread: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.error <= 100.0 or (self.spread is not None and self.spread < 0.0):
            raise SettingError(
                f"the published error {self} is not possible: expected an error from 0 to 100 percent, and a spread of 0 "
                "or more"
            )

    def __str__(self) -> str:
        return f"{self.error:.2f}" if self.spread is None else f"{self.error:.2f} ± {self.spread:.2f}"


@dataclass(frozen=True)
class PaperPreset:
    """One cell of a published table: the configuration of its run, and the error in the table, if any.

    `settings` are the settings that differ from the defaults of the method. `source` is the publication they are taken from.
    `note` lists our assumptions, and what differs from the original experiment.
    """

    table: str
    data: str
    labels: int
    method: str
    net: NetSpec
    augmentation: Augmentation
    normalization: Normalization
    batch_labelled: int
    batch_unlabelled: int
    optimizer: OptimizerSpec
    schedule: ScheduleSpec
    published: PublishedError | None
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    variant: str = ""  # name that distinguishes rows of the same method
    first_stage: str = ""  # method with which the network is trained first, for as many steps as `schedule` has; "": none

    def __post_init__(self) -> None:
        validate_config(self)
        counts = find_dataset(self.data).train.class_counts
        if not len(counts) <= self.labels <= sum(counts):
            raise SettingError(
                f"labels is {self.labels}; expected a number from {len(counts)}, one label per class of {self.data}, to "
                f"{sum(counts)}, all labels"
            )
        if self.batch_labelled < 1 or self.batch_unlabelled < 0:
            raise SettingError(
                f"batch_labelled is {self.batch_labelled} and batch_unlabelled is {self.batch_unlabelled}; expected at "
                "least 1 labelled sample, and 0 or more unlabelled samples"
            )

    @property
    def name(self) -> str:
        return f"{self.table}/{self.row}/{self.labels}"

    @property
    def row(self) -> str:
        """Return the name of the preset's row in a table."""
        return f"{self.method} ({self.variant})" if self.variant else self.method

    @property
    def n_stages(self) -> int:
        """Return the number of stages of the run. Each stage has the length of `schedule`."""
        return 2 if self.first_stage else 1

    @property
    def n_validation(self) -> int:
        """Return the number of validation samples in a hyperparameter search. The final run trains on these samples too."""
        return VALIDATION_SIZES[self.data]


VALIDATION_SIZES = {"svhn": 1000, "cifar10": 5000, "cifar100": 5000}


def table_row(
    first: PaperPreset, others: Mapping[int, PublishedError], **changes: Mapping[int, Any]
) -> tuple[PaperPreset, ...]:
    """Return the presets of a table row: `first`, and a copy of it for each further number of labels.

    `changes` are the fields that differ between numbers of labels, as {number of labels: value}.
    """
    presets = [first]
    for labels, published in others.items():
        changed = {name: by_labels[labels] for name, by_labels in changes.items()}
        presets.append(replace(first, labels=labels, published=published, **changed))
    return tuple(presets)
