"""Temporal ensembling: the target of a row is the average of what was said about it in the epochs before.

Laine & Aila 2017, arXiv:1610.02242.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.data.dataset import Batch, Dataset
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.ramps import sigmoid_rampup
from samekind.methods.base import Look, Task, refuse_unknown_values, seen
from samekind.methods.pi_model import consistency_weight
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier, split_output


@dataclass(frozen=True)
class TemporalEnsemblingConfig:
    alpha: float = 0.6  # how much of itself the memory of a row keeps per epoch
    w_max: float | None = None  # weight of the consistency term once ramped up; None: 30 n_labelled/n_pool
    rampup: float = 80 / 300  # share of the run over which it rises

    def __post_init__(self) -> None:
        refuse_unknown_values(self)


RECIPE = {"w_max": 10.0}  # as for the Pi model


class TemporalEnsembling(nn.Module):
    """Z (n_pool, C) is the memory of every row, `visits` (n_pool,) how often it was seen: once in each epoch."""

    iterative = True
    per_row = True
    Z: Tensor
    visits: Tensor
    labelled_views: tuple[str, ...] = ("weak",)
    unlabelled_views: tuple[str, ...] = ("weak",)

    def __init__(self, net: Classifier, task: Task, config: TemporalEnsemblingConfig | None = None) -> None:
        super().__init__()
        self.config = config or TemporalEnsemblingConfig()
        self.w_max = consistency_weight(self.config.w_max, task, rule=30.0)
        self.student = net
        self.register_buffer("Z", torch.zeros(task.n_samples, task.n_classes))
        self.register_buffer("visits", torch.zeros(task.n_samples, dtype=torch.long))
        self._said: list[tuple[Tensor, Tensor]] = []  # rows and answers of this step, for each part of its batch
        self.observed: dict[str, Tensor] = {}
        self.look: Look | None = None

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        (x_u,) = batch.x_u
        n = len(x_u) + len(batch.y_l)
        unlabelled, labelled = split_output(self.student(torch.cat([x_u, batch.x_l[0]])), [len(x_u), len(batch.y_l)])
        f = torch.softmax(unlabelled.logits, dim=-1)
        self._said.append((batch.index, f.detach()))
        self.observed = seen(f.detach())
        w = self.w_max * sigmoid_rampup(progress, self.config.rampup)
        targets = self.targets(batch.index)
        self.look = Look(unlabelled, labelled, targets, w)
        known = (self.visits[batch.index] > 0).to(f.dtype)[:, None]  # in the first epoch there is nothing to agree with
        return {
            "supervised": label_cross_entropy(labelled.logits, batch.y_l) / n,
            "consistency": w * (known * (f - targets)).square().mean(),
        }

    def targets(self, rows: Tensor) -> Tensor:
        """Z/(1 - alpha^visits) (n, C): sums to one, however often a row was seen; 0 for a row that never was."""
        weight = 1.0 - self.config.alpha ** self.visits[rows].clamp_min(1).to(self.Z.dtype)
        return self.Z[rows] / weight[:, None]

    @torch.no_grad()
    def after_step(self) -> None:
        """Z <- alpha Z + (1 - alpha) f, for the rows of this step. Their targets are next asked for in another epoch."""
        for rows, f in self._said:
            self.Z[rows] = self.config.alpha * self.Z[rows] + (1.0 - self.config.alpha) * f
            self.visits[rows] += 1
        self._said = []

    def refresh(self, pool: Dataset) -> None:
        """The pool is not looked at."""

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)
