"""What the loop may ask of a method, and what a trained method gives back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from samekind.data.pool import Batch, Pool
from samekind.nets.classifier import Classifier


@dataclass(frozen=True)
class Task:
    """The size of what is to be learned: settings left open are chosen from it."""

    n_classes: int
    n_labelled: int
    n_pool: int
    steps: int
    batch_labelled: int = 20  # 2 B2
    batch_unlabelled: int = 100  # B1


class Predictor(Protocol):
    """A trained method: features, class probabilities and similarities of anything."""

    def features(self, x: Tensor) -> Tensor:
        """z (n, d)."""

    def probabilities(self, z: Tensor) -> Tensor:
        """(n, C), rows sum to one."""

    def similarity(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """W (n_a, n_b) in [0, 1]."""


class Base(Protocol):
    """A method that an addition can ride on: a student, and a teacher where the target is not the student's own."""

    student: Classifier
    teacher: Classifier | None

    def after_step(self) -> None: ...


class Method(Protocol):
    """Three verbs for every step, one for the whole pool, one for the end.

    `labelled_views` and `unlabelled_views` name the views a batch must hold; the data room obeys and never asks why.
    `observed` holds what the last `losses` saw and the watch records: `mean_f` (C,), and `mean_w` where there is a graph.
    """

    steps_needed: bool  # False: `refresh` alone does the work
    labelled_views: tuple[str, ...]
    unlabelled_views: tuple[str, ...]
    observed: dict[str, Tensor]

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The terms of the loss, already weighted; their sum is what is minimised."""

    def after_step(self) -> None:
        """What moves without a gradient."""

    def refresh(self, pool: Pool) -> None:
        """A look at the whole pool: before training, and whenever the method wants one."""

    def predictor(self) -> nn.Module:
        """A Predictor that is also a module, so that it can be saved."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Everything; what wants a gradient is trained."""

    def train(self, mode: bool = True) -> Any: ...

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any: ...
