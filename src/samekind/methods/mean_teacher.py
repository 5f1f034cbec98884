"""Mean Teacher: consistency between the student and an EMA teacher on two views of each unlabelled sample.

Tarvainen & Valpola 2017, arXiv:1703.01780.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from samekind.config import Config, Fraction, NonNegative
from samekind.data.dataset import Batch
from samekind.losses.consistency import softmax_mse
from samekind.losses.cross_entropy import label_cross_entropy
from samekind.losses.ramps import sigmoid_rampup
from samekind.methods.base import BatchOutput, Method, StepCounter, Task, prediction_statistics
from samekind.methods.pi_model import consistency_weight
from samekind.methods.predictors import DeepPredictor
from samekind.methods.spec import CONSISTENCY_SPACE, MethodSpec
from samekind.nets.classifier import Classifier, split_output
from samekind.nets.ema import ema_copy, update_ema, warmed_up_decay


@dataclass(frozen=True)
class MeanTeacherConfig(Config):
    """Settings of Mean Teacher; the defaults are the paper's."""

    ema_decay: Fraction | None = None  # decay per step of the EMA teacher; None: averages over 2 % of the steps
    # decay during the ramp-up; None: the same as ema_decay; the paper has 0.99 for SVHN
    ema_decay_start: Fraction | None = None
    w_max: NonNegative | None = None  # weight of the consistency term after the ramp-up; None: 100 n_labelled/n_samples
    rampup: NonNegative = 80 / 300  # fraction of training over which the weight rises from 0
    strong_view: bool = False  # True: the student gets the strong view and the teacher the weak one


class EmaSchedule(StepCounter):
    """EMA decay of each step: `start` during the ramp-up, then `decay`.

    In the first steps it is lower; see `warmed_up_decay`.
    """

    def __init__(self, decay: float | None, start: float | None, rampup: float, task: Task) -> None:
        super().__init__()
        self.decay, self.start = ema_decay_for(decay, task), start
        self.rampup, self.rampup_steps = rampup, rampup * task.steps

    def next_decay(self) -> float:
        """Count a step, and return the EMA decay of this step."""
        self.step += 1
        step = int(self.step)
        return warmed_up_decay(self.decay if self.start is None or step > self.rampup_steps else self.start, step)

    def replan(self, step_at: Callable[[float], float]) -> None:
        self.rampup_steps = step_at(self.rampup)


class MeanTeacher(Method):
    """Adds the squared difference of the student's and the teacher's prediction to the cross-entropy of the labels."""

    averages_over_batch = True
    has_second_view = True
    keeps_output = True
    keeps_target_features = True
    teacher: Classifier

    def __init__(self, net: Classifier, task: Task, config: MeanTeacherConfig | None = None) -> None:
        super().__init__()
        self.config = config or MeanTeacherConfig()
        self.w_max = consistency_weight(self.config.w_max, task)
        self.student, self.teacher = net, ema_copy(net)
        c = self.config
        self.ema_schedule = EmaSchedule(c.ema_decay, c.ema_decay_start, c.rampup, task)
        self.unlabelled_views = ("strong" if self.config.strong_view else "weak", "weak")

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        student_view, teacher_view = batch.x_u
        n = len(student_view) + len(batch.y_l)
        with torch.no_grad():
            target_z, target = self.teacher(teacher_view)
        output = self.student(torch.cat([student_view, batch.x_l[0]]))
        unlabelled, labelled = split_output(output, [len(student_view), len(batch.y_l)])
        self.diagnostics = prediction_statistics(torch.softmax(unlabelled.logits.detach(), dim=-1))
        w = self.w_max * sigmoid_rampup(progress, self.config.rampup)
        self.last_output = BatchOutput(unlabelled, labelled, torch.softmax(target, dim=-1), w, target_z)
        return {
            "supervised": label_cross_entropy(labelled.logits, batch.y_l) / n,
            "consistency": w * softmax_mse(unlabelled.logits, target),
        }

    def after_step(self) -> None:
        update_ema(self.teacher, self.student, self.ema_schedule.next_decay())

    def predictor(self) -> nn.Module:
        return DeepPredictor(self.teacher)


def ema_decay_for(decay: float | None, task: Task) -> float:
    """Return the EMA decay; for None, that of an average over 2 % of the training steps, but at most over the paper's 1000
    steps.
    """
    return max(0.0, 1.0 - 1.0 / min(1000.0, max(1.0, 0.02 * task.steps))) if decay is None else decay


SPEC = MethodSpec(
    "mean_teacher",
    MeanTeacher,
    MeanTeacherConfig,
    "predictions agree with those of an EMA teacher",
    paper="Tarvainen & Valpola 2017, arXiv:1703.01780",
    # with a dozen labels among thousands of samples, the default 100 n_labelled/n_samples is far too small
    defaults={"w_max": 10.0},
    search_space=CONSISTENCY_SPACE,
)
