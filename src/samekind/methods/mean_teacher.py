"""Mean Teacher: the target of a thing is what a slow average of the student says about it.

Tarvainen & Valpola 2017, arXiv:1703.01780.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.data.dataset import Batch, Dataset
from samekind.losses.consistency import softmax_mse
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.ramps import sigmoid_rampup
from samekind.methods.base import Look, Task, refuse_unknown_values, seen
from samekind.methods.pi_model import consistency_weight
from samekind.methods.predictors import DeepPredictor
from samekind.nets.classifier import Classifier, split_output
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay


@dataclass(frozen=True)
class MeanTeacherConfig:
    alpha: float | None = None  # how much of itself the teacher keeps per step; None: an average over 2 % of the run
    alpha_start: float | None = None  # the same during the ramp-up, 0.99 in the SVHN settings; None: alpha
    w_max: float | None = None  # weight of the consistency term once ramped up; None: 100 n_labelled/n_pool
    rampup: float = 80 / 300  # share of the run over which it rises
    strong: bool = False  # the student looks through the strong view, the teacher through the weak one

    def __post_init__(self) -> None:
        refuse_unknown_values(self)


RECIPE = {"w_max": 10.0}  # as for the Pi model


class MeanTeacher(nn.Module):
    iterative = True
    per_row = True
    step: Tensor
    labelled_views: tuple[str, ...] = ("weak",)

    def __init__(self, net: Classifier, task: Task, config: MeanTeacherConfig | None = None) -> None:
        super().__init__()
        self.config = config or MeanTeacherConfig()
        self.alpha = ema_decay_for(self.config.alpha, task)
        self.rising_steps = self.config.rampup * task.steps
        self.w_max = consistency_weight(self.config.w_max, task)
        self.student, self.teacher = net, ema_copy(net)
        self.register_buffer("step", torch.zeros((), dtype=torch.long))
        self.observed: dict[str, Tensor] = {}
        self.look: Look | None = None
        self.unlabelled_views: tuple[str, ...] = ("strong" if self.config.strong else "weak", "weak")

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        seen_by_student, seen_by_teacher = batch.x_u
        n = len(seen_by_student) + len(batch.y_l)
        with torch.no_grad():
            target = self.teacher(seen_by_teacher).logits
        output = self.student(torch.cat([seen_by_student, batch.x_l[0]]))
        unlabelled, labelled = split_output(output, [len(seen_by_student), len(batch.y_l)])
        self.observed = seen(torch.softmax(unlabelled.logits.detach(), dim=-1))
        w = self.w_max * sigmoid_rampup(progress, self.config.rampup)
        self.look = Look(unlabelled, labelled, torch.softmax(target, dim=-1), w)
        return {
            "supervised": label_cross_entropy(labelled.logits, batch.y_l) / n,
            "consistency": w * softmax_mse(unlabelled.logits, target),
        }

    def after_step(self) -> None:
        self.step += 1
        start = self.config.alpha_start
        alpha = self.alpha if start is None or int(self.step) > self.rising_steps else start
        update_ema(self.teacher, self.student, warmed_up_decay(alpha, int(self.step)))

    def refresh(self, pool: Dataset) -> None:
        """The pool is not looked at."""

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.teacher)


def ema_decay_for(alpha: float | None, task: Task) -> float:
    """What was asked for, or an average over the last 2 % of the run, never longer than the paper's 1000 steps."""
    return max(0.0, 1.0 - 1.0 / min(1000.0, max(1.0, 0.02 * task.steps))) if alpha is None else alpha
