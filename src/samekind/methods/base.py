"""Base class of all methods, and the types that methods share with the training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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
    """Sizes of the training problem. Methods compute from them the settings that the user left at None."""

    n_classes: int
    n_labelled: int
    n_samples: int  # number of samples in the dataset, labelled and unlabelled
    steps: int
    batch_labelled: int = 20  # number of labelled samples in a batch; in the paper's notation 2 B2
    batch_unlabelled: int = 100  # number of unlabelled samples in a batch; in the paper's notation B1
    unlabelled_weight: float = 1.0  # factor on the weights of all unlabelled losses
    table: bool = False  # whether the samples are encoded rows of a table with gaps, categories, dates or texts


class Predictor(Protocol):
    """Interface of a trained model: features, class probabilities and similarities of any input."""

    def features(self, x: Tensor) -> Tensor:
        """Return the features z (n, d) of the inputs x."""

    def probabilities(self, z: Tensor) -> Tensor:
        """Return the class probabilities (n, C) of samples with features z. The probabilities of each sample sum to one."""

    def similarity(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """Return the similarities W (n_a, n_b) in [0, 1] of samples with features z_a and samples with features z_b."""


class BatchOutput(NamedTuple):
    """Outputs of a method for its last batch.

    A wrapper around the method reads them instead of running another forward pass.
    """

    unlabelled: Output  # the student's features and logits of the unlabelled samples `batch.index`, with gradient
    labelled: Output  # the student's features and logits of the labelled samples, with gradient
    # (n_u, C) target probabilities of the unlabelled samples, without gradient; 0 for samples that have no target yet
    target: Tensor
    weight: float  # weight of the consistency term at this point of training
    # (n_u, d) features from which the targets were predicted, without gradient; None: the targets are not of this batch alone
    target_z: Tensor | None = None


class LabelEvidence(NamedTuple):
    """How well a method predicts labels that it did not train on.

    The predicted and the true classes of held-out labelled samples, and the fraction of a prediction that comes from graphs, in
    [0, 1].
    """

    predicted: NDArray[np.integer[Any]]
    true: NDArray[np.integer[Any]]
    graph_weight: float


class LabelUpdater(Protocol):
    """Turns a trained predictor into the predictor for other labels of the same training samples, without a new training."""

    def update(self, X: Tensor, y: NDArray[np.int64], previous_class: Sequence[int]) -> tuple[nn.Module, Tensor]:
        """Return the predictor for the labels y (n,), and the class probabilities (n, C) of the training samples X (n, d).

        y holds UNLABELLED for unlabelled samples. `previous_class` (C,) holds for each class its number at the last call (at
        the first call, its number in the fit), and -1 for a new class.
        """

    def refit(self, X: Tensor, y: NDArray[np.int64], n_classes: int) -> Refitted:
        """Return the result of a full training on the labels y (n,).

        Parts that do not depend on labels are not computed again.
        """


class Refitted(NamedTuple):
    """Result of a training on other labels: predictor, probabilities (n, C) of the training samples, evidence, and updater."""

    predictor: nn.Module
    probabilities: Tensor
    evidence: LabelEvidence | None
    updater: LabelUpdater


class LearningRateCycles(NamedTuple):
    """Cyclic learning rate that a method requires: a cosine decay whose last part is repeated.

    All three numbers are fractions of training. The cosine would reach 0 at `fall`. From `start` on, each cycle has the length
    `length`, and repeats the part of the cosine between `start - length` and `start`.
    """

    start: float
    length: float
    fall: float


class StepCounter(nn.Module, ABC):
    """Part of a method that counts training steps, and that computes some numbers of steps from `task.steps`."""

    step: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    @abstractmethod
    def replan(self, step_at: Callable[[float], float]) -> None:
        """Compute the numbers of steps again, after training was shortened (see `Method.replan`)."""


class Method(nn.Module, ABC):
    """Semi-supervised method: computes the loss terms of a batch, and returns the trained predictor.

    A subclass implements `losses` and `predictor`, and overrides other functions only if the method needs them. All values that
    change during training must be parameters or buffers, because a checkpoint contains only these.
    """

    iterative: ClassVar[bool] = True  # False: `refresh` does all the work, and there are no training steps
    scales_inputs: ClassVar[bool] = False  # True: the method scales its inputs itself, so it gets them unscaled
    images_only: bool = False  # True: raise an error if the inputs are not images
    uses_fixed_graph: ClassVar[bool] = False  # True: `refresh` builds a graph of the inputs before training
    # True: the label loss is divided by the size of the whole batch, labelled and unlabelled
    averages_over_batch: ClassVar[bool] = False
    has_second_view: ClassVar[bool] = False  # True: the targets of unlabelled samples are predictions for a second view of them
    # True: `after_step` stores values of the samples in a batch, so it needs the whole batch in one process
    stores_samples: bool = False
    min_epochs: ClassVar[float] = 0.0  # number of epochs over the unlabelled samples; a shorter training raises a warning
    keeps_output: ClassVar[bool] = False  # True: `losses` stores a BatchOutput in `last_output`, for wrappers
    keeps_target_features: ClassVar[bool] = False  # True: it does, and the BatchOutput has `target_z`
    pairs_labelled: bool = False  # True: labelled sample k of a batch forms a pair with labelled sample k + n/2
    labelled_views: tuple[str, ...] = ("weak",)  # augmentations of each labelled sample that a batch must contain
    unlabelled_views: tuple[str, ...] = ("weak",)  # augmentations of each unlabelled sample that a batch must contain
    refresh_every: int = 0  # steps between two calls of `refresh`; 0: only before training
    refresh_at_end: ClassVar[bool] = False
    lr_cycles: LearningRateCycles | None = None
    last_output: BatchOutput | None = None
    student: Classifier
    teacher: Classifier | None  # EMA teacher that predicts the targets; None: the student predicts them

    def __init__(self) -> None:
        super().__init__()
        self.teacher = None
        self.diagnostics: dict[str, Tensor] = {}  # statistics of the last batch, by name, for the training log

    @abstractmethod
    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Return the weighted loss terms of a batch, by name. Training minimizes their sum.

        `progress` is the fraction of training that is done, in [0, 1).
        """

    @abstractmethod
    def predictor(self) -> nn.Module:
        """Return the trained model as a module with the functions of `Predictor`, which can be saved."""

    def after_step(self) -> None:
        """Update the tensors that are not trained by gradient, such as an EMA teacher. By default there are none."""

    def replan(self, step_at: Callable[[float], float]) -> None:
        """Adapt to a training that was shortened to fewer steps than `task.steps`. By default, adapt each part of the method.

        `step_at(fraction)` returns the number of steps after which this fraction of training is done. A method overrides this
        function if it computed numbers of steps from `task.steps` at the beginning; a method that uses only `progress` need
        not.
        """
        for part in self.children():
            if isinstance(part, Method | StepCounter):
                part.replan(step_at)

    def refresh(self, dataset: Dataset) -> None:
        """Compute values that depend on the whole dataset, for example the edges of a graph. By default, do nothing.

        This is called once before training, and then whenever `refresh_due` returns True.
        """

    def train_probabilities(self) -> Tensor | None:
        """Return the class probabilities (n, C) of all training samples; None if they must be computed with the predictor."""
        return None

    def label_evidence(self) -> LabelEvidence | None:
        """Return the predictions for labelled samples held out from training; None if the method holds no labels out."""
        return None

    def label_updater(self) -> LabelUpdater | None:
        """Return the object that updates the trained predictor for other labels; None if the method must be trained again."""
        return None

    def adapt_views(self, views: Views) -> Views:
        """Return the augmentations to train with, instead of those given. This is called once, before the first batch."""
        return views

    def pseudo_label_terms(self, strong: Tensor, weak: Tensor, index: Tensor, progress: float) -> dict[str, Tensor]:
        """Return the pseudo-label loss terms, by name, for unlabelled samples whose forward passes a wrapper has run.

        `strong` and `weak` are the student's logits (n, C) for the strong and the weak view, and `index` the positions of the
        samples in the dataset. The weights of the terms assume that the cross-entropy of the labelled samples is a mean over
        these samples.
        """
        return {}

    def shortfall(self, epochs: float) -> str | None:
        """Return why so few epochs over the unlabelled samples do not suit the method; None if they are enough."""
        if epochs >= self.min_epochs:
            return None
        return (
            f"this training has {epochs:.2g} epochs over the unlabelled samples, and the method needs {self.min_epochs:.2g} or "
            "more, because it learns from what it predicted for the same sample in an earlier epoch"
        )

    def full_passes(self, steps: int) -> int:
        """Return how many calls of `refresh` process the whole dataset, in a training of `steps` steps.

        The benchmark needs this number to divide a compute budget between training steps and full passes. By default it is 1
        for a method with a fixed graph, and 0 for other methods.
        """
        return int(self.uses_fixed_graph)

    def later_flops(self, steps: int) -> float:
        """Return an upper estimate of the operations, in a training of `steps` steps, that a training of a few steps lacks.

        The benchmark needs this number for a method whose memory grows during training. By default it is 0.
        """
        return 0.0

    def refresh_due(self, steps_done: int, steps: int) -> bool:
        """Return whether `refresh` must be called after `steps_done` of all `steps` training steps."""
        if steps_done == steps:
            return self.refresh_at_end
        return self.refresh_every > 0 and steps_done % self.refresh_every == 0


def prediction_statistics(f: Tensor) -> dict[str, Tensor]:
    """Return the mean (C,) of predictions f (n, C), and the variance of f over the samples, summed over the classes."""
    return {"mean_f": f.mean(0), "spread": f.var(0, unbiased=False).sum()}
