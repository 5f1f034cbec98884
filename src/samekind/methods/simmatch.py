"""SimMatch: a strong look must be like the labelled rows that the weak look is like, and the two likenesses correct each other.

Zheng et al. 2022, arXiv:2203.06915.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.data.dataset import Batch, Dataset
from samekind.errors import DataError
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.weak_strong_losses import calibrated, class_shares, inner, masked_cross_entropy
from samekind.methods.base import Task, refuse_unknown_values, seen
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.memory_bank import DistributionAlignment, LabelledMemoryBank
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay
from samekind.nets.mlp import Projection


@dataclass(frozen=True)
class SimMatchConfig:
    threshold: float = 0.95  # τ, how sure a target must be
    lambda_u: float = 1.0  # weight of what the targets teach
    lambda_in: float = 1.0  # weight of likeness to the labelled rows
    smoothing: float = 0.9  # share of the answers in a target; the rest comes from the classes of what the row is like
    temperature: float = 0.1  # of likenesses
    size: int = 128  # of the sphere
    recent: int = 32  # batches that the answers are aligned over
    start: float = 1 / 1024  # share of the run before likeness counts at all
    bank_alpha: float = 0.7  # how much of its point a slot keeps when its row comes again; 0 with target="average"
    target: Literal["student", "average"] = "student"  # whose answers and points the targets are made of
    alpha: float | None = None  # how much of itself the average keeps per step; None: an average over 2 % of the run

    def __post_init__(self) -> None:
        refuse_unknown_values(self)


class SimMatch(nn.Module):
    iterative = True
    step: Tensor
    labelled_views: tuple[str, ...] = ("weak",)
    unlabelled_views: tuple[str, ...] = ("strong", "weak")

    def __init__(self, net: Classifier, task: Task, config: SimMatchConfig | None = None) -> None:
        super().__init__()
        self.config = config or SimMatchConfig()
        self.task = task
        self.alpha = ema_decay_for(self.config.alpha, task)
        self.student, self.average = net, ema_copy(net)
        self.projection = Projection(net.n_features, self.config.size)
        self.slow_projection = ema_copy(self.projection)
        self.bank = LabelledMemoryBank(task.n_labelled, self.config.size)
        self.recent = DistributionAlignment(self.config.recent, task.n_classes)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.observed: dict[str, Tensor] = {}
        self._met: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []  # of each part of a batch, until the step is done

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        c, unlabelled_weight = self.config, self.task.unlabelled_weight
        x_strong, x_weak = batch.x_u
        n_u, n_l = len(x_weak), len(batch.y_l)
        z, logits = self.student(torch.cat([x_strong, x_weak, batch.x_l[0]]))
        strong, weak, labelled = logits.split([n_u, n_u, n_l])
        e_strong, e_weak, e_l = self.projection(z).split([n_u, n_u, n_l])
        with torch.no_grad():
            if c.target == "average":
                slow_z, slow_logits = self.average(torch.cat([x_weak, batch.x_l[0]]))
                weak, (e_weak, e_l) = slow_logits[:n_u], self.slow_projection(slow_z).split([n_u, n_l])
            answer = torch.softmax(weak, dim=-1)
            q = self.recent.aligned(answer)
        self.observed = seen(answer.detach())
        self._met.append((answer.detach(), _slots(batch), e_l.detach(), batch.y_l))

        target, instance = q, e_strong[:0].sum()  # 0 until there is something to be like
        points, y = self.bank.filled()
        if len(y) and progress >= c.start:
            with torch.no_grad():
                near = torch.softmax(inner(e_weak, points) / c.temperature, dim=-1)
                target = c.smoothing * q + (1.0 - c.smoothing) * class_shares(near, y, self.task.n_classes)
                alike = calibrated(near, q, y)
            instance = F.cross_entropy(inner(e_strong, points) / c.temperature, alike)
        return {
            "supervised": label_cross_entropy(labelled, batch.y_l) / n_l,
            "guesses": unlabelled_weight * c.lambda_u * masked_cross_entropy(strong, target, target.amax(1) >= c.threshold),
            "instance": unlabelled_weight * c.lambda_in * instance,
        }

    def after_step(self) -> None:
        self.step += 1
        if self._met:
            answer, slots, e_l, y_l = (torch.cat(parts) for parts in zip(*self._met, strict=True))
            self._met.clear()
            self.recent.keep(answer)
            self.bank.keep(slots, e_l, y_l, self.config.bank_alpha)
        alpha = warmed_up_decay(self.alpha, int(self.step))
        # an average that makes targets meets the data, and has statistics of its own
        statistics: Literal["own", "copy"] = "own" if self.config.target == "average" else "copy"
        update_ema(self.average, self.student, alpha, statistics=statistics)
        update_ema(self.slow_projection, self.projection, alpha)

    def refresh(self, pool: Dataset) -> None:
        """The pool is not looked at."""

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.average)


def _slots(batch: Batch) -> Tensor:
    if batch.labelled is None:
        raise DataError(
            "the batch does not say which labelled rows it holds; expected them in Batch.labelled, as BatchSampler gives it"
        )
    return batch.labelled
