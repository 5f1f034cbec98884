"""Weak-to-strong consistency: the base class of FixMatch and of the methods that extend FixMatch."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from samekind.data.augment.transforms import Views
from samekind.data.dataset import Batch
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.ramps import linear_ramp
from samekind.methods.base import BatchOutput, Method, Task, prediction_statistics
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier, split_output
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay


def with_reference_strong_view(views: Views) -> Views:
    """Return the views, in which "strong" is replaced by the strong view of FixMatch's authors: RandAugment, then cutout.

    Views without an entry "fixmatch_strong", such as those of vectors and those that a user passes, are returned unchanged.
    """
    return {**views, "strong": views.get("fixmatch_strong", views["strong"])} if "strong" in views else views


class WeakToStrong(Method):
    """Method whose targets for strong views are the student's predictions q for the weak views.

    A subclass computes the loss terms from q, and can store statistics of q for later steps. An EMA of the student predicts
    after training; it predicts no targets. It never forwards training data, so its batch-norm statistics are copied from the
    student.
    """

    has_second_view = True
    keeps_target_features = True
    step: Tensor
    unlabelled_views = ("strong", "weak")

    def __init__(self, net: Classifier, task: Task, ema_decay: float | None, rampup: float) -> None:
        super().__init__()
        self.rampup = rampup
        self.ema_decay = ema_decay_for(ema_decay, task)
        self.student, self.ema = net, ema_copy(net)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self._predicted: list[tuple[Tensor, Tensor]] = []  # (predictions, positions) of the samples of this step

    def adapt_views(self, views: Views) -> Views:
        return with_reference_strong_view(views)

    @abstractmethod
    def unlabelled_terms(self, strong: Tensor, q: Tensor) -> dict[str, Tensor]:
        """Return the unlabelled loss terms, by name.

        `strong` are the student's logits (n, C) for the strong views, `q` the predictions (n, C) for the weak views.
        """

    def update_statistics(self, q: Tensor, index: Tensor) -> None:
        """Update stored statistics with the predictions q (n, C) for the samples `index`. By default there are none."""

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        x_strong, x_weak = batch.x_u
        n_u, n_l = len(x_strong), len(batch.y_l)
        with torch.no_grad():  # the weak views only make targets, so no gradient is needed
            weak_z, weak = self.student(x_weak)
        strong, labelled = split_output(self.student(torch.cat([x_strong, batch.x_l[0]])), [n_u, n_l])
        self.last_output = BatchOutput(
            strong, labelled, torch.softmax(weak, dim=-1), linear_ramp(progress, self.rampup), weak_z
        )
        supervised = label_cross_entropy(labelled.logits, batch.y_l) / n_l
        return {"supervised": supervised, **self.pseudo_label_terms(strong.logits, weak, batch.index, progress)}

    def pseudo_label_terms(self, strong: Tensor, weak: Tensor, index: Tensor, progress: float) -> dict[str, Tensor]:
        q = torch.softmax(weak.detach(), dim=-1)
        self._predicted.append((q, index))
        self.diagnostics = prediction_statistics(q)
        w = linear_ramp(progress, self.rampup)
        return {name: w * term for name, term in self.unlabelled_terms(strong, q).items()}

    def after_step(self) -> None:
        self.step += 1
        if self._predicted:
            q, index = (torch.cat(parts) for parts in zip(*self._predicted, strict=True))
            self._predicted.clear()
            self.update_statistics(q, index)
        update_ema(self.ema, self.student, warmed_up_decay(self.ema_decay, int(self.step)), statistics="copy")

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.ema)
