"""Interpolation consistency training: between two rows, the answer lies between their answers.

Verma et al. 2019, arXiv:1903.03825.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.data.dataset import Batch, Dataset
from samekind.losses.consistency import target_mse
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.mixup import mixed, shares
from samekind.losses.ramps import sigmoid_rampup
from samekind.methods.base import Task, refuse_unknown_values, require_positive, seen
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay


@dataclass(frozen=True)
class ICTConfig:
    mixing: float = 1.0  # a of Beta(a, a), from which the shares of a mixture are drawn; 0.1 on SVHN
    w_max: float = 100.0  # weight of the consistency term once ramped up
    rampup: float = 0.25  # share of the run over which it rises
    alpha: float | None = None  # how much of itself the slow copy keeps per step; None: an average over 2 % of the run
    mix_logits: bool = False  # mix the slow copy's logits, as the authors' code does, instead of its probabilities

    def __post_init__(self) -> None:
        refuse_unknown_values(self)
        require_positive(self, "mixing")


RECIPE = {"w_max": 10.0}  # as for the Pi model: a weight of 100 is for long runs


class ICT(nn.Module):
    iterative = True
    step: Tensor
    labelled_views: tuple[str, ...] = ("weak",)
    unlabelled_views: tuple[str, ...] = ("weak",)

    def __init__(self, net: Classifier, task: Task, config: ICTConfig | None = None) -> None:
        super().__init__()
        self.config = config or ICTConfig()
        self.alpha = ema_decay_for(self.config.alpha, task)
        self.w_max = task.unlabelled_weight * self.config.w_max
        self.student, self.slow = net, ema_copy(net)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.observed: dict[str, Tensor] = {}

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        x_l, y, (x_u,) = batch.x_l[0], batch.y_l, batch.x_u
        order, lam = self._mixture(x_l)
        labelled = self.student(mixed(x_l, order, lam)).logits
        both = lam * label_cross_entropy(labelled, y) + (1.0 - lam) * label_cross_entropy(labelled, y[order])

        order, lam = self._mixture(x_u)
        with torch.no_grad():
            target = self._target(self.slow(x_u).logits, order, lam)
        unlabelled = self.student(mixed(x_u, order, lam)).logits
        self.observed = seen(torch.softmax(unlabelled.detach(), dim=-1))
        w = self.w_max * sigmoid_rampup(progress, self.config.rampup)
        return {"supervised": both.sum() / len(y), "consistency": w * target_mse(unlabelled, target)}

    def _mixture(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Who is mixed with whom, and lam (1,) for the whole batch; it is not folded."""
        return torch.randperm(len(x), device=x.device), shares(1, self.config.mixing, x)

    def _target(self, logits: Tensor, order: Tensor, lam: Tensor) -> Tensor:
        if self.config.mix_logits:
            return torch.softmax(mixed(logits, order, lam), dim=-1)
        return mixed(torch.softmax(logits, dim=-1), order, lam)

    def after_step(self) -> None:
        self.step += 1
        update_ema(self.slow, self.student, warmed_up_decay(self.alpha, int(self.step)))

    def refresh(self, pool: Dataset) -> None:
        """The pool is not looked at."""

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.slow)
