"""What the loop may ask of a method, and what a trained method gives back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, get_args, get_origin, get_type_hints, runtime_checkable

from torch import Tensor, nn

from samekind.data.augment.transforms import Views
from samekind.data.dataset import Batch, Dataset
from samekind.errors import SettingError, did_you_mean
from samekind.nets.classifier import Classifier, Output


@dataclass(frozen=True)
class Task:
    """The size of what is to be learned: settings left open are chosen from it."""

    n_classes: int
    n_labelled: int
    n_samples: int
    steps: int
    batch_labelled: int = 20  # 2 B2
    batch_unlabelled: int = 100  # B1
    unlabelled_weight: float = 1.0  # factor on the weight of every unlabelled loss


class Predictor(Protocol):
    """A trained method: features, class probabilities and similarities of anything."""

    def features(self, x: Tensor) -> Tensor:
        """z (n, d)."""

    def probabilities(self, z: Tensor) -> Tensor:
        """(n, C), rows sum to one."""

    def similarity(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """W (n_a, n_b) in [0, 1]."""


def refuse_unknown_values(config: Any) -> None:
    """Refuses a setting that must be one of a few words and is another one."""
    for name, kind in get_type_hints(type(config)).items():
        words = [word for option in (kind, *get_args(kind)) if get_origin(option) is Literal for word in get_args(option)]
        value = getattr(config, name)
        if isinstance(value, str) and words and value not in words:
            raise SettingError(f"{name} is {value!r}; {did_you_mean(value, words)}")
    for name in ("alpha", "alpha_start", "threshold", "smoothing"):
        value = getattr(config, name, None)
        if value is not None and not 0.0 <= value <= 1.0:
            raise SettingError(f"{name} is {value}; expected a number from 0 to 1")


def require_positive(config: Any, *names: str) -> None:
    """Refuses settings of these names that are 0 or less."""
    for name in names:
        if not getattr(config, name) > 0:
            raise SettingError(f"{name} is {getattr(config, name)}; expected a number above 0")


def seen(f: Tensor) -> dict[str, Tensor]:
    """What the watch wants to know of answers f (n, C): their mean (C,), and how much they differ between rows."""
    return {"mean_f": f.mean(0), "spread": f.var(0, unbiased=False).sum()}


class Base(Protocol):
    """A method that an addition can ride on: a student, and a teacher where the target is not the student's own."""

    student: Classifier
    teacher: Classifier | None
    unlabelled_views: tuple[str, ...]

    def after_step(self) -> None: ...


@runtime_checkable
class OwnViews(Protocol):
    """A method that does not take the views as they are: a strong view that learns what to do, for example."""

    def own_views(self, views: Views) -> Views:
        """What it looks through instead; asked once, before the first batch. What the views learn must be in `state_dict`."""


@runtime_checkable
class Guesses(Protocol):
    """What a base has besides if its strong looks learn from guesses about the weak ones, under an addition as well."""

    def guesses(self, strong: Tensor, weak: Tensor, index: Tensor, progress: float) -> dict[str, Tensor]:
        """Terms from the student's logits (n, C) of both looks at the rows `index` of the pool, on the scale of a mean
        cross-entropy of labels."""


class Look(NamedTuple):
    """What a base saw of its last batch and made of it, so that an addition needs no pass of its own."""

    pool: Output  # the student's z and logits of the pool rows, as in `batch.index`; gradient flows
    labelled: Output  # and of the labelled rows
    target: Tensor  # (n_u, C) what the answers to the pool rows should be, without gradient; 0 where the base cannot say yet
    w: float  # weight of the consistency term at this point of the run


class Method(Protocol):
    """Three verbs for every step, one for the whole pool, one for the end.

    `labelled_views` and `unlabelled_views` name the views a batch must hold; the data room obeys and never asks why.
    `observed` holds what the last `losses` saw and the watch records: see `seen`, and `mean_w` where there is a graph.
    """

    iterative: bool  # False: `refresh` alone does the work
    labelled_views: tuple[str, ...]
    unlabelled_views: tuple[str, ...]

    @property
    def observed(self) -> dict[str, Tensor]: ...

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The terms of the loss, already weighted; their sum is what is minimised."""

    def after_step(self) -> None:
        """What moves without a gradient."""

    def refresh(self, pool: Dataset) -> None:
        """A look at the whole pool: before training, and again when `wants_refresh` says so."""

    def predictor(self) -> nn.Module:
        """A Predictor that is also a module, so that it can be saved."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Everything; what wants a gradient is trained."""

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]: ...

    def modules(self) -> Iterator[nn.Module]: ...

    def train(self, mode: bool = True) -> Any: ...

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any: ...


class Cycles(NamedTuple):
    """How a method wants the learning rate to move: it falls along a cosine, and from `start` on falls again and again.

    All are shares of the run. The cosine would reach 0 at `fall`; each cycle of `length` replays the last `length` before
    `start`. A method that wants it has it in `cycles`, and the run asks its schedule for it.
    """

    start: float
    length: float
    fall: float


def cycles_of(method: Method) -> Cycles | None:
    """What the method wants of the learning rate; None for most."""
    cycles: Cycles | None = getattr(method, "cycles", None)
    return cycles


def pairs_labels(method: Method) -> bool:
    """Whether the method takes the two halves of the labelled rows of a batch as pairs, by position; few do."""
    return bool(getattr(method, "pairs_labels", False))


class Learner(Method, Protocol):
    """A method that is trained by steps: what an addition can ride on that asks for nothing more."""

    student: Classifier


class Onlooker(Learner, Protocol):
    """A method that tells what it saw, in `look`; None before the first batch."""

    look: Look | None


def wants_refresh(method: Method, steps_done: int, steps: int) -> bool:
    """Whether the method wants another look at the pool now, after so many steps of a run.

    One that does says `refresh_every`, in steps; one that wants a last look when all steps are done says `refresh_at_end`. What
    it learns from the look must be among its buffers, so that a run that is taken up again has it.
    """
    if steps_done == steps:
        return bool(getattr(method, "refresh_at_end", False))
    every = int(getattr(method, "refresh_every", 0))
    return every > 0 and steps_done % every == 0
