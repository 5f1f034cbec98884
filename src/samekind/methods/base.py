"""Base class of all methods, and the types that methods share with the training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from samekind.data.augment.transforms import Views
from samekind.data.dataset import Batch, Dataset
from samekind.nets.classifier import Classifier, Output


@dataclass(frozen=True)
class Task:
    """Size of the training problem, from which methods derive the settings that are None."""

    n_classes: int
    n_labelled: int
    n_samples: int  # labelled and unlabelled samples of the dataset
    steps: int
    batch_labelled: int = 20  # 2 B2
    batch_unlabelled: int = 100  # B1
    unlabelled_weight: float = 1.0  # factor on the weight of every unlabelled loss


class Predictor(Protocol):
    """Trained model: features, class probabilities and similarities of any input."""

    def features(self, x: Tensor) -> Tensor:
        """Return the features z (n, d) of inputs x."""

    def probabilities(self, z: Tensor) -> Tensor:
        """Return the class probabilities (n, C) of features z; the probabilities of each sample sum to one."""

    def similarity(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """Return the similarities W (n_a, n_b) in [0, 1] of two sets of features."""


class BatchOutput(NamedTuple):
    """Outputs of a method for its last batch, kept so that a wrapper needs no further forward pass."""

    unlabelled: Output  # the student's z and logits of the samples `batch.index`; gradient flows
    labelled: Output  # the student's z and logits of the labelled samples
    target: Tensor  # (n_u, C) target probabilities of the unlabelled samples, without gradient; 0 where there is none yet
    weight: float  # weight of the consistency term at this point of training


class LabelEvidence(NamedTuple):
    """Class indices of labelled samples that were held out from training, and the weight of predictions that use a graph."""

    predicted: NDArray[np.integer[Any]]
    true: NDArray[np.integer[Any]]
    graph_weight: float


class LearningRateCycles(NamedTuple):
    """Cyclic learning rate that a method requires: a cosine decay whose last part is repeated.

    All three numbers are fractions of training. The cosine decays towards 0 at `fall`. From `start` on, each cycle, which has
    length `length`, repeats the part of the cosine from `start - length` to `start`.
    """

    start: float
    length: float
    fall: float


class StepCounter(nn.Module, ABC):
    """Part of a method that counts training steps, and derives numbers of steps from `task.steps`."""

    step: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    @abstractmethod
    def replan(self, step_at: Callable[[float], float]) -> None:
        """Derive the numbers of steps again, for a training that has become shorter (see `Method.replan`)."""


class Method(nn.Module, ABC):
    """Semi-supervised method: it computes the loss terms of a batch, and returns the trained predictor.

    A subclass implements `losses` and `predictor`. It overrides `after_step`, `refresh` or `adapt_views` only if it needs
    them. Everything that a resumed run needs must be among the parameters and buffers.
    """

    iterative: ClassVar[bool] = True  # False: `refresh` does all the work, and there are no training steps
    scales_inputs: ClassVar[bool] = False  # True: the method scales its inputs itself, so it gets them unscaled
    images_only: bool = False  # True: inputs that are not images are refused
    uses_fixed_graph: ClassVar[bool] = False  # True: `refresh` builds a graph of the inputs before training
    averages_over_batch: ClassVar[bool] = False  # True: the label loss is divided by the size of the whole batch
    has_second_view: ClassVar[bool] = False  # True: targets of unlabelled samples come from a second view
    keeps_output: ClassVar[bool] = False  # True: `losses` stores a BatchOutput in `last_output`
    pairs_labelled: bool = False  # True: the first and second half of a batch's labelled samples form pairs, by position
    labelled_views: tuple[str, ...] = ("weak",)  # views of each labelled sample that a batch must hold
    unlabelled_views: tuple[str, ...] = ("weak",)  # views of each unlabelled sample that a batch must hold
    refresh_every: int = 0  # steps between two calls of `refresh`; 0: only before training
    refresh_at_end: ClassVar[bool] = False
    lr_cycles: LearningRateCycles | None = None
    last_output: BatchOutput | None = None
    student: Classifier
    teacher: Classifier | None  # EMA teacher that makes the targets; None: the student makes them

    def __init__(self) -> None:
        super().__init__()
        self.teacher = None
        self.diagnostics: dict[str, Tensor] = {}  # statistics of the last batch for the training log

    @abstractmethod
    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Return the weighted loss terms; training minimizes their sum. `progress` is the fraction of training done."""

    @abstractmethod
    def predictor(self) -> nn.Module:
        """Return the trained Predictor, a module that can be saved."""

    def after_step(self) -> None:
        """Update everything that is not trained by gradient, such as an EMA teacher. The default does nothing."""

    def replan(self, step_at: Callable[[float], float]) -> None:
        """Adapt to a training that has become shorter than `task.steps`; the default adapts the parts of the method.

        `step_at` returns the number of steps after which a fraction of the training is done. A method that derives numbers of
        steps from `task.steps`, and does not use `progress` instead, derives them again.
        """
        for part in self.children():
            if isinstance(part, Method | StepCounter):
                part.replan(step_at)

    def refresh(self, dataset: Dataset) -> None:
        """Run a full pass over the dataset; called before training and when `refresh_due` is True. The default does nothing."""

    def train_probabilities(self) -> Tensor | None:
        """Return the class probabilities (n, C) of the training set; None if the method has not computed them."""
        return None

    def label_evidence(self) -> LabelEvidence | None:
        """Return the predictions of held-out labels, or None if the method holds no labels out."""
        return None

    def adapt_views(self, views: Views) -> Views:
        """Return the views to train on instead of the given ones; called once, before the first batch."""
        return views

    def pseudo_label_terms(self, strong: Tensor, weak: Tensor, index: Tensor, progress: float) -> dict[str, Tensor]:
        """Return the pseudo-label terms from the student's logits (n, C) of both views of the samples `index`.

        Only a wrapper that runs the forward passes itself calls this method. The terms have the weights that they have beside
        the mean cross-entropy of the labelled samples.
        """
        return {}

    def refresh_due(self, steps_done: int, steps: int) -> bool:
        """Return whether `refresh` has to be called after `steps_done` of `steps` training steps."""
        if steps_done == steps:
            return self.refresh_at_end
        return self.refresh_every > 0 and steps_done % self.refresh_every == 0


def prediction_statistics(f: Tensor) -> dict[str, Tensor]:
    """Return the mean (C,) of predictions f (n, C), and their variance over samples summed over classes."""
    return {"mean_f": f.mean(0), "spread": f.var(0, unbiased=False).sum()}
