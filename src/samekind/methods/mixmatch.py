"""MixMatch: guess the labels of the pool from several looks, sharpen them, and learn from mixtures of everything.

Berthelot et al. 2019, arXiv:1905.02249.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.data.dataset import Batch, Dataset
from samekind.losses.consistency import target_mse
from samekind.losses.cross_entropy import soft_cross_entropy
from samekind.losses.mixup import folded, mixed, shares, sharpened
from samekind.losses.ramps import linear_ramp
from samekind.methods.base import Task, refuse_unknown_values, require_positive, seen
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay
from samekind.nets.forward import forward_without_buffer_updates, interleaved_logits

RAMP = 16_384  # steps: 1024 x 1024 images in batches of 64


@dataclass(frozen=True)
class MixMatchConfig:
    K: int = 2  # looks at each row of the pool
    T: float = 0.5  # temperature: the smaller, the surer the guesses are made
    mixing: float = 0.75  # a of Beta(a, a), from which the shares of a mixture are drawn
    mixup: bool = True  # False: nothing is mixed, the row "MixMatch w/o mixup"
    w_max: float = 75.0  # weight of the consistency term once ramped up; 250 on SVHN, 150 on CIFAR-100
    rampup: float | None = None  # share of the run over which it rises in a straight line; None: the paper's 16,384 steps
    alpha: float | None = None  # how much of itself the slow copy keeps per step; None: an average over 2 % of the run

    def __post_init__(self) -> None:
        refuse_unknown_values(self)
        require_positive(self, "K", "T", "mixing")


class MixMatch(nn.Module):
    iterative = True
    step: Tensor
    labelled_views: tuple[str, ...] = ("weak",)

    def __init__(self, net: Classifier, task: Task, config: MixMatchConfig | None = None) -> None:
        super().__init__()
        self.config = config or MixMatchConfig()
        self.alpha = ema_decay_for(self.config.alpha, task)
        self.w_max = task.unlabelled_weight * self.config.w_max
        self.rampup = rampup_length(self.config.rampup, task)
        self.unlabelled_views: tuple[str, ...] = ("weak",) * self.config.K
        self.student, self.slow = net, ema_copy(net)  # the slow copy answers in the end, and guesses nothing
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.observed: dict[str, Tensor] = {}

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        q = self._guess(batch.x_u)
        n_l, looks = len(batch.y_l), len(batch.x_u)
        x = torch.cat([batch.x_l[0], *batch.x_u])
        target = torch.cat([F.one_hot(batch.y_l, q.shape[1]).to(q.dtype), *[q] * looks])
        if self.config.mixup:
            x, target = mixup_batch(x, target, self.config.mixing)
        logits = interleaved_logits(self.student, x, looks + 1)
        w = self.w_max * linear_ramp(progress, self.rampup)
        return {
            "supervised": soft_cross_entropy(logits[:n_l], target[:n_l]) / n_l,
            "consistency": w * target_mse(logits[n_l:], target[n_l:]),
        }

    @torch.no_grad()
    def _guess(self, looks: tuple[Tensor, ...]) -> Tensor:
        """q (n, C): the mean answer of the student, as it is now, to all looks at a row, sharpened."""
        answers = [torch.softmax(forward_without_buffer_updates(self.student, x).logits, dim=-1) for x in looks]
        f = torch.stack(answers).mean(dim=0)
        self.observed = seen(f)
        return sharpened(f, self.config.T)

    def after_step(self) -> None:
        self.step += 1
        update_ema(self.slow, self.student, warmed_up_decay(self.alpha, int(self.step)), statistics="copy")

    def refresh(self, pool: Dataset) -> None:
        """The pool is not looked at."""

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.slow)


def mixup_batch(x: Tensor, target: Tensor, mixing: float) -> tuple[Tensor, Tensor]:
    """Each row and its target mixed with those of another, in shares of its own of which the larger is the row's."""
    order = torch.randperm(len(x), device=x.device)
    lam = folded(shares(len(x), mixing, x))
    return mixed(x, order, lam), mixed(target, order, lam)


def rampup_length(rampup: float | None, task: Task) -> float:
    """What was asked for, or as long as in the paper: in a shorter run guesses never get their full weight."""
    return RAMP / max(1, task.steps) if rampup is None else rampup
