"""Interpolation consistency training (ICT): the prediction for a mixture of two samples is the mixture of their predictions.

Verma et al. 2019, arXiv:1903.03825.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.config import Config, Fraction, NonNegative, Positive
from samekind.data.dataset import Batch
from samekind.losses.consistency import target_mse
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.mixup import mix, sample_mixup_ratio
from samekind.losses.ramps import sigmoid_rampup
from samekind.methods.base import Method, Task, prediction_statistics
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import LogUniform, MethodSpec
from samekind.nets.classifier import Classifier
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay


@dataclass(frozen=True)
class ICTConfig(Config):
    """Settings of ICT; the defaults are the paper's."""

    # a of the distribution Beta(a, a), from which mixup ratios are drawn; the paper has 0.1 on SVHN
    mixup_alpha: Positive = 1.0
    w_max: NonNegative = 100.0  # weight of the consistency term after the ramp-up
    rampup: NonNegative = 0.25  # fraction of training over which the weight rises from 0
    ema_decay: Fraction | None = None  # decay per step of the EMA teacher; None: averages over 2 % of the steps
    mix_logits: bool = False  # True: mix the logits of the teacher, as in the authors' code; False: mix its probabilities


class ICT(Method):
    """Applies mixup to labelled samples, and to unlabelled samples with the predictions of an EMA teacher as targets."""

    step: Tensor
    teacher: Classifier

    def __init__(self, net: Classifier, task: Task, config: ICTConfig | None = None) -> None:
        super().__init__()
        self.config = config or ICTConfig()
        self.ema_decay = ema_decay_for(self.config.ema_decay, task)
        self.w_max = task.unlabelled_weight * self.config.w_max
        self.student, self.teacher = net, ema_copy(net)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        x_l, y, (x_u,) = batch.x_l[0], batch.y_l, batch.x_u
        order, lam = self._draw_mixup(x_l)
        labelled = self.student(mix(x_l, order, lam)).logits
        supervised = lam * label_cross_entropy(labelled, y) + (1.0 - lam) * label_cross_entropy(labelled, y[order])

        order, lam = self._draw_mixup(x_u)
        with torch.no_grad():
            target = self._mix_targets(self.teacher(x_u).logits, order, lam)
        unlabelled = self.student(mix(x_u, order, lam)).logits
        self.diagnostics = prediction_statistics(torch.softmax(unlabelled.detach(), dim=-1))
        w = self.w_max * sigmoid_rampup(progress, self.config.rampup)
        return {"supervised": supervised.sum() / len(y), "consistency": w * target_mse(unlabelled, target)}

    def _draw_mixup(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the position of the sample with which each sample is mixed, and one mixup ratio (1,) for the whole batch."""
        return torch.randperm(len(x), device=x.device), sample_mixup_ratio(1, self.config.mixup_alpha, x)

    def _mix_targets(self, logits: Tensor, order: Tensor, lam: Tensor) -> Tensor:
        if self.config.mix_logits:
            return torch.softmax(mix(logits, order, lam), dim=-1)
        return mix(torch.softmax(logits, dim=-1), order, lam)

    def after_step(self) -> None:
        self.step += 1
        update_ema(self.teacher, self.student, warmed_up_decay(self.ema_decay, int(self.step)))

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.teacher)


SPEC = MethodSpec(
    "ict",
    ICT,
    ICTConfig,
    "the prediction for a mixture is the mixture of the predictions",
    paper="Verma et al. 2019, arXiv:1903.03825",
    defaults={"w_max": 10.0},  # 10, as for the Pi model; the paper's weight of 100 suits long training
    search_space={"w_max": LogUniform(1.0, 100.0), "mixup_alpha": (0.1, 0.5, 1.0)},
)
