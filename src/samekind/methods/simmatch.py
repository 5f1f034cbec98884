"""SimMatch: the strong view learns the weak view's pseudo-label, and the weak view's similarities to the labelled samples.

Zheng et al. 2022, arXiv:2203.06915.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.config import Config, Fraction, NonNegative, Positive, PositiveInt
from samekind.data.augment.transforms import Views
from samekind.data.dataset import Batch
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.weak_strong_losses import (
    aggregate_by_class,
    calibrate_similarities,
    inner_products,
    masked_cross_entropy,
)
from samekind.methods.base import Method, Task, prediction_statistics
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.memory_bank import DistributionAlignment, LabelledMemoryBank
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import THRESHOLD_SPACE, MethodSpec
from samekind.methods.weak_to_strong import with_reference_strong_view
from samekind.nets.classifier import Classifier
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay
from samekind.nets.mlp import Projection


@dataclass(frozen=True)
class SimMatchConfig(Config):
    """Settings of SimMatch; the defaults are the paper's."""

    threshold: Fraction = 0.95  # τ; an unlabelled sample is used if the largest probability of its target is at least this
    lambda_u: NonNegative = 1.0  # weight of the pseudo-label loss
    lambda_in: NonNegative = 1.0  # weight of the loss on the similarities to labelled samples
    # weight of a sample's own prediction in its target; the classes of similar labelled samples have the rest
    smoothing: Fraction = 0.9
    temperature: Positive = 0.1  # a softmax gets the inner products of embeddings divided by this
    embedding_size: PositiveInt = 128
    alignment_batches: PositiveInt = 32  # number of batches whose mean prediction is used in distribution alignment
    start: NonNegative = 1 / 1024  # fraction of training before similarities to labelled samples are used
    bank_decay: Fraction = 0.7  # decay of the stored embeddings of labelled samples; the paper has 0 with target="teacher"
    target: Literal["student", "teacher"] = "student"  # network that predicts the targets and their embeddings
    ema_decay: Fraction | None = None  # decay per step of the EMA teacher; None: averages over 2 % of the steps


class SimMatch(Method):
    """Adds a loss of pseudo-labels, and a loss of similarities to the labelled samples, whose embeddings are in a
    memory bank.
    """

    stores_samples = True
    step: Tensor
    unlabelled_views = ("strong", "weak")
    teacher: Classifier

    def __init__(self, net: Classifier, task: Task, config: SimMatchConfig | None = None) -> None:
        super().__init__()
        self.config = config or SimMatchConfig()
        self.task = task
        self.ema_decay = ema_decay_for(self.config.ema_decay, task)
        self.student, self.teacher = net, ema_copy(net)
        self.projection = Projection(net.n_features, self.config.embedding_size)
        self.teacher_projection = ema_copy(self.projection)
        self.bank = LabelledMemoryBank(task.n_labelled, self.config.embedding_size)
        self.alignment = DistributionAlignment(self.config.alignment_batches, task.n_classes)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        # predictions, memory slots, embeddings and labels of each part of the batch, for `after_step`
        self._batch_parts: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        c, unlabelled_weight = self.config, self.task.unlabelled_weight
        x_strong, x_weak = batch.x_u
        n_u, n_l = len(x_weak), len(batch.y_l)
        with torch.no_grad():  # the weak views only make targets, so no gradient is needed
            if c.target == "teacher":
                z_weak, logits_weak = self.teacher(torch.cat([x_weak, batch.x_l[0]]))
                e_weak, e_l = self.teacher_projection(z_weak).split([n_u, n_l])
            else:
                z_weak, logits_weak = self.student(x_weak)
                e_weak = self.projection(z_weak)
            f = torch.softmax(logits_weak[:n_u], dim=-1)
            q = self.alignment.align(f)
        z, logits = self.student(torch.cat([x_strong, batch.x_l[0]]))
        strong, labelled = logits.split([n_u, n_l])
        if c.target == "student":
            e_strong, e_l = self.projection(z).split([n_u, n_l])
        else:
            e_strong = self.projection(z[:n_u])
        self.diagnostics = prediction_statistics(f.detach())
        self._batch_parts.append((f.detach(), batch.labelled_positions(), e_l.detach(), batch.y_l))

        target, instance = q, e_strong[:0].sum()  # the loss of similarities stays 0 until the memory bank is used
        points, y = self.bank.filled()
        if len(y) and progress >= c.start:
            with torch.no_grad():
                similarity = torch.softmax(inner_products(e_weak, points) / c.temperature, dim=-1)
                by_class = aggregate_by_class(similarity, y, self.task.n_classes)
                target = c.smoothing * q + (1.0 - c.smoothing) * by_class
                calibrated = calibrate_similarities(similarity, q, y)
            instance = F.cross_entropy(inner_products(e_strong, points) / c.temperature, calibrated)
        mask = target.amax(1) >= c.threshold
        return {
            "supervised": label_cross_entropy(labelled, batch.y_l) / n_l,
            "pseudo_label": unlabelled_weight * c.lambda_u * masked_cross_entropy(strong, target, mask),
            "instance": unlabelled_weight * c.lambda_in * instance,
        }

    def adapt_views(self, views: Views) -> Views:
        return with_reference_strong_view(views)

    def after_step(self) -> None:
        self.step += 1
        if self._batch_parts:
            f, slots, e_l, y_l = (torch.cat(parts) for parts in zip(*self._batch_parts, strict=True))
            self._batch_parts.clear()
            self.alignment.update(f)
            self.bank.update(slots, e_l, y_l, self.config.bank_decay)
        decay = warmed_up_decay(self.ema_decay, int(self.step))
        # a teacher that predicts targets forwards training data, so it keeps its own batch-norm statistics
        statistics: Literal["own", "copy"] = "own" if self.config.target == "teacher" else "copy"
        update_ema(self.teacher, self.student, decay, statistics=statistics)
        update_ema(self.teacher_projection, self.projection, decay)

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.teacher)


SPEC = MethodSpec(
    "simmatch",
    SimMatch,
    SimMatchConfig,
    "weak and strong view have the same similarities to the labelled samples",
    paper="Zheng et al. 2022, arXiv:2203.06915",
    search_space={**THRESHOLD_SPACE, "lambda_in": (0.5, 1.0)},
)
