"""Pi model: two noisy looks at the same thing by the same network must agree.

Laine & Aila 2017, arXiv:1610.02242.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.data.dataset import Batch, Dataset
from samekind.errors import SettingError
from samekind.losses.consistency import softmax_mse
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.ramps import sigmoid_rampup
from samekind.methods.base import Look, Task, seen
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier, split_output


@dataclass(frozen=True)
class PiModelConfig:
    w_max: float | None = None  # weight of the consistency term once ramped up; None: 100 n_labelled/n_pool
    rampup: float = 80 / 300  # share of the run over which it rises
    mirror: bool = False  # mirror half of the images, both looks at one alike; for views that do not mirror by themselves


RECIPE = {"w_max": 10.0}  # the rule of Laine & Aila is far too weak for a dozen labels among thousands of rows


class PiModel(nn.Module):
    iterative = True
    per_row = True
    labelled_views: tuple[str, ...] = ("weak",)
    unlabelled_views: tuple[str, ...] = ("weak", "weak")

    def __init__(self, net: Classifier, task: Task, config: PiModelConfig | None = None) -> None:
        super().__init__()
        self.config = config or PiModelConfig()
        self.w_max = consistency_weight(self.config.w_max, task)
        self.student = net
        self.teacher: Classifier | None = None  # the target is the student's own
        self.observed: dict[str, Tensor] = {}
        self.look: Look | None = None

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        x_a, x_b = batch.x_u
        x_l = batch.x_l[0]
        n_u, n = len(x_a), len(x_a) + len(batch.y_l)
        if self.config.mirror:
            half = torch.rand(n, device=x_a.device) < 0.5
            x_a, x_b, x_l = _mirrored(x_a, half[:n_u]), _mirrored(x_b, half[:n_u]), _mirrored(x_l, half[n_u:])
        output = self.student(torch.cat([x_a, x_b, x_l]))
        one, other, labelled = split_output(output, [n_u, n_u, len(batch.y_l)])
        self.observed = seen(torch.softmax(one.logits.detach(), dim=-1))
        w = self.w_max * sigmoid_rampup(progress, self.config.rampup)
        self.look = Look(one, labelled, torch.softmax(other.logits.detach(), dim=-1), w)
        return {
            "supervised": label_cross_entropy(labelled.logits, batch.y_l) / n,
            "consistency": w * softmax_mse(one.logits, other.logits),  # gradient through both branches
        }

    def after_step(self) -> None:
        """Nothing moves but the student."""

    def refresh(self, pool: Dataset) -> None:
        if self.config.mirror and len(pool.shape) != 3:
            raise SettingError(
                f"mirror is on, and rows of shape {pool.shape} cannot be mirrored. Give images, or leave it off."
            )

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.student)


def consistency_weight(w_max: float | None, task: Task, rule: float = 100.0) -> float:
    """What was asked for, or the rule of Laine & Aila: 100 n_labelled/n_pool, where two looks are compared."""
    return task.unlabelled_weight * (rule * task.n_labelled / task.n_samples if w_max is None else w_max)


def _mirrored(x: Tensor, which: Tensor) -> Tensor:
    """These of the images (n, C, H, W) turned left to right."""
    return torch.where(which.view(-1, 1, 1, 1), x.flip(-1), x)
