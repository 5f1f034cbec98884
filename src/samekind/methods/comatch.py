"""CoMatch: answers are smoothed over rows that lie close by, and rows whose answers agree are drawn close together.

Li, Xiong & Hoi 2021, arXiv:2011.11183.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.data.dataset import Batch, Dataset
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.weak_strong_losses import inner, masked_cross_entropy, pseudo_label_graph
from samekind.methods.base import Task, refuse_unknown_values, seen
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.memory_bank import DistributionAlignment, FeatureQueue
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay
from samekind.nets.mlp import Projection


@dataclass(frozen=True)
class CoMatchConfig:
    threshold: float = 0.95  # τ, how sure a target must be
    lambda_u: float = 1.0  # weight of what the targets teach
    lambda_c: float = 1.0  # weight of the contrast of two strong looks
    smoothing: float = 0.9  # share of the answer in a target; the rest comes from rows in memory that lie close by
    temperature: float = 0.2  # of likenesses
    edge: float = 0.8  # the least agreement of two answers that makes an edge of the target graph
    size: int = 64  # of the sphere
    recent: int = 32  # batches that the answers are aligned over
    memory: int = 5  # batches whose rows are remembered
    alpha: float | None = None  # how much of itself the average keeps per step; None: an average over 2 % of the run

    def __post_init__(self) -> None:
        refuse_unknown_values(self)


class CoMatch(nn.Module):
    iterative = True
    step: Tensor
    labelled_views: tuple[str, ...] = ("weak",)
    unlabelled_views: tuple[str, ...] = ("strong", "strong", "weak")

    def __init__(self, net: Classifier, task: Task, config: CoMatchConfig | None = None) -> None:
        super().__init__()
        self.config = config or CoMatchConfig()
        self.task = task
        self.alpha = ema_decay_for(self.config.alpha, task)
        self.student, self.average = net, ema_copy(net)
        self.projection = Projection(net.n_features, self.config.size)
        length = self.config.memory * (task.batch_labelled + task.batch_unlabelled)
        self.queue = FeatureQueue(length, self.config.size, task.n_classes)
        self.recent = DistributionAlignment(self.config.recent, task.n_classes)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.observed: dict[str, Tensor] = {}
        self._met: list[tuple[Tensor, Tensor, Tensor]] = []  # of each part of a batch, until the step is done

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        c, unlabelled_weight = self.config, self.task.unlabelled_weight
        n_u, n_l = len(batch.index), len(batch.y_l)
        z, logits = self.student(torch.cat([*batch.x_u, batch.x_l[0]]))
        strong, _, weak, labelled = logits.split([n_u, n_u, n_u, n_l])
        e_one, e_other, e_weak, e_l = self.projection(z).split([n_u, n_u, n_u, n_l])
        with torch.no_grad():
            answer = torch.softmax(weak, dim=-1)
            q = self.recent.aligned(answer)
            target = self._smoothed(q, e_weak)
            Q = pseudo_label_graph(target, c.edge)
            known = F.one_hot(batch.y_l, self.task.n_classes).to(q.dtype)
            # remembered is the answer before it was smoothed, or memory would feed on itself
            self._met.append((answer, torch.cat([e_weak, e_l]), torch.cat([q, known])))
        self.observed = seen(answer)
        return {
            "supervised": label_cross_entropy(labelled, batch.y_l) / n_l,
            "guesses": unlabelled_weight * c.lambda_u * masked_cross_entropy(strong, target, target.amax(1) >= c.threshold),
            "contrast": unlabelled_weight * c.lambda_c * F.cross_entropy(inner(e_one, e_other) / c.temperature, Q),
        }

    def after_step(self) -> None:
        self.step += 1
        if self._met:
            answer, points, answers = (torch.cat(parts) for parts in zip(*self._met, strict=True))
            self._met.clear()
            self.recent.keep(answer)
            self.queue.keep(points, answers)
        update_ema(self.average, self.student, warmed_up_decay(self.alpha, int(self.step)), statistics="copy")

    def refresh(self, pool: Dataset) -> None:
        """The pool is not looked at."""

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.average)

    def _smoothed(self, q: Tensor, e_weak: Tensor) -> Tensor:
        """q and what the memory, once it is full, says of rows close by."""
        if not self.queue.full:
            return q
        near = torch.softmax(inner(e_weak, self.queue.points) / self.config.temperature, dim=-1)
        return self.config.smoothing * q + (1.0 - self.config.smoothing) * inner(near, self.queue.answers.T)
