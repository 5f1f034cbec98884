"""MixMatch: the sharpened mean prediction over several views is the target, and mixup is applied to all samples of a batch.

Berthelot et al. 2019, arXiv:1905.02249.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from samekind.config import Config, Fraction, NonNegative, Positive, PositiveInt
from samekind.data.dataset import Batch
from samekind.losses.consistency import target_mse
from samekind.losses.cross_entropy import soft_cross_entropy
from samekind.losses.mixup import fold_mixup_ratio, mix, sample_mixup_ratio, sharpen
from samekind.losses.ramps import linear_ramp
from samekind.methods.base import Method, Task, prediction_statistics
from samekind.methods.mean_teacher import ema_decay_for
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import LogUniform, MethodSpec
from samekind.nets.classifier import Classifier
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay
from samekind.nets.forward import forward_without_buffer_updates, interleaved_logits

RAMPUP_STEPS = 16_384  # the paper's ramp-up, in steps: 1024 x 1024 images in batches of 64


@dataclass(frozen=True)
class MixMatchConfig(Config):
    """Settings of MixMatch; the defaults are the paper's."""

    K: PositiveInt = 2  # number of weak views of each unlabelled sample
    T: Positive = 0.5  # sharpening temperature: a smaller T brings targets nearer to one-hot
    mixup_alpha: Positive = 0.75  # a of the distribution Beta(a, a), from which mixup ratios are drawn
    mixup: bool = True  # False: no mixup, as in the paper's "MixMatch w/o mixup"
    # weight of the consistency term after the ramp-up; the paper has 250 on SVHN and 150 on CIFAR-100
    w_max: NonNegative = 75.0
    # fraction of training over which the weight rises to w_max; None: 16,384 steps, as in the paper
    rampup: NonNegative | None = None
    # decay per step of the EMA that predicts after training; None: averages over 2 % of the steps
    ema_decay: Fraction | None = None


class MixMatch(Method):
    """Trains on mixtures of labelled and unlabelled samples; the targets are mixtures of labels and sharpened predictions."""

    step: Tensor

    def __init__(self, net: Classifier, task: Task, config: MixMatchConfig | None = None) -> None:
        super().__init__()
        self.config = config or MixMatchConfig()
        self.ema_decay = ema_decay_for(self.config.ema_decay, task)
        self.w_max = task.unlabelled_weight * self.config.w_max
        self.rampup = rampup_length(self.config.rampup, task)
        self.unlabelled_views = ("weak",) * self.config.K
        # the EMA only predicts after training; targets are predicted by the student
        self.student, self.ema = net, ema_copy(net)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        q = self._sharpened_targets(batch.x_u)
        n_l, n_views = len(batch.y_l), len(batch.x_u)
        x = torch.cat([batch.x_l[0], *batch.x_u])
        target = torch.cat([F.one_hot(batch.y_l, q.shape[1]).to(q.dtype), *[q] * n_views])
        if self.config.mixup:
            x, target = mixup_batch(x, target, self.config.mixup_alpha)
        logits = interleaved_logits(self.student, x, n_views + 1)
        w = self.w_max * linear_ramp(progress, self.rampup)
        return {
            "supervised": soft_cross_entropy(logits[:n_l], target[:n_l]) / n_l,
            "consistency": w * target_mse(logits[n_l:], target[n_l:]),
        }

    @torch.no_grad()
    def _sharpened_targets(self, views: tuple[Tensor, ...]) -> Tensor:
        """Return the targets (n, C): the student's mean prediction over all views of a sample, sharpened."""
        predictions = [torch.softmax(forward_without_buffer_updates(self.student, x).logits, dim=-1) for x in views]
        f = torch.stack(predictions).mean(dim=0)
        self.diagnostics = prediction_statistics(f)
        return sharpen(f, self.config.T)

    def after_step(self) -> None:
        self.step += 1
        update_ema(self.ema, self.student, warmed_up_decay(self.ema_decay, int(self.step)), statistics="copy")

    def shortfall(self, epochs: float) -> str | None:
        return unfinished_rampup(self.rampup)

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.ema)


def mixup_batch(x: Tensor, target: Tensor, mixup_alpha: float) -> tuple[Tensor, Tensor]:
    """Mix each sample and its target with another random sample of the batch.

    The ratio is drawn for each sample and is at least 1/2, so that the sample itself has the larger part.
    """
    order = torch.randperm(len(x), device=x.device)
    lam = fold_mixup_ratio(sample_mixup_ratio(len(x), mixup_alpha, x))
    return mix(x, order, lam), mix(target, order, lam)


def rampup_length(rampup: float | None, task: Task) -> float:
    """Return the ramp-up as a fraction of training; for None, the paper's 16,384 steps, which is above 1 in a shorter
    training.
    """
    return RAMPUP_STEPS / max(1, task.steps) if rampup is None else rampup


def unfinished_rampup(rampup: float) -> str | None:
    """Return a clause that says that the ramp-up is longer than the training; None if it ends in time."""
    if rampup <= 1.0:
        return None
    return (
        f"the ramp-up of the unlabelled loss takes {RAMPUP_STEPS} steps, as in the paper, so in this training its weight only "
        f"reaches {100 / rampup:.2g} % of its maximum. Set rampup to a fraction of the training, such as 0.4"
    )


SPEC = MethodSpec(
    "mixmatch",
    MixMatch,
    MixMatchConfig,
    "mixup of all samples, with sharpened predictions as targets",
    paper="Berthelot et al. 2019, arXiv:1905.02249",
    search_space={"w_max": LogUniform(5.0, 100.0), "mixup_alpha": (0.5, 0.75)},
)
