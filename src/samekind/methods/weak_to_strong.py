"""What FixMatch and its kin share: a guess about the weak look, if it is sure enough, is the label of the strong one."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from samekind.data.dataset import Batch, Dataset
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.ramps import linear_ramp
from samekind.methods.base import Task, seen
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay


class WeakToStrong(nn.Module, ABC):
    """A method that has to say what the strong looks learn from the guesses q, and what is kept of q for later steps.

    The guesses are the student's own. The average of the student only answers in the end, so it never meets the data and
    takes over the student's batch-norm statistics.
    """

    iterative = True
    step: Tensor
    labelled_views: tuple[str, ...] = ("weak",)
    unlabelled_views: tuple[str, ...] = ("strong", "weak")

    def __init__(self, net: Classifier, task: Task, alpha: float | None, rise: float) -> None:
        super().__init__()
        self.rise = rise
        self.alpha = ema_decay_for(alpha, task)
        self.student, self.average = net, ema_copy(net)
        self.teacher: Classifier | None = None  # the target is the student's own
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.observed: dict[str, Tensor] = {}
        self._guessed: list[tuple[Tensor, Tensor]] = []  # of each part of a batch, until the step is done

    @abstractmethod
    def learned(self, strong: Tensor, q: Tensor) -> dict[str, Tensor]:
        """The terms of the pool: logits (n, C) of the strong looks, q (n, C) the answers to the weak ones."""

    @abstractmethod
    def keep(self, q: Tensor, index: Tensor) -> None:
        """What is remembered of the answers q to the rows `index` of the pool, once the step is done."""

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        x_strong, x_weak = batch.x_u
        n_u, n_l = len(x_weak), len(batch.y_l)
        # one pass for all, so that batch norm sees everything
        strong, weak, labelled = self.student(torch.cat([x_strong, x_weak, batch.x_l[0]])).logits.split([n_u, n_u, n_l])
        supervised = label_cross_entropy(labelled, batch.y_l) / n_l
        return {"supervised": supervised, **self.guesses(strong, weak, batch.index, progress)}

    def guesses(self, strong: Tensor, weak: Tensor, index: Tensor, progress: float) -> dict[str, Tensor]:
        """The terms of the pool, from the student's logits of both looks at the rows `index`."""
        q = torch.softmax(weak.detach(), dim=-1)
        self._guessed.append((q, index))
        self.observed = seen(q)
        w = linear_ramp(progress, self.rise)
        return {name: w * term for name, term in self.learned(strong, q).items()}

    def after_step(self) -> None:
        self.step += 1
        if self._guessed:
            q, index = (torch.cat(parts) for parts in zip(*self._guessed, strict=True))
            self._guessed.clear()
            self.keep(q, index)
        update_ema(self.average, self.student, warmed_up_decay(self.alpha, int(self.step)), statistics="copy")

    def refresh(self, pool: Dataset) -> None:
        """The pool is not looked at."""

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.average)
