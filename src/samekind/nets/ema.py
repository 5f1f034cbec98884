"""EMA teacher: a copy of a network whose parameters are an exponential moving average (EMA) of the student's.

Batch-norm statistics of the teacher follow one of three rules: a teacher that forwards training data in train mode keeps its
`own` running statistics; a teacher that is used for evaluation only must `copy` the student's, or average them (`ema`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from samekind.nets.conv13 import MeanOnlyNorm
from samekind.nets.forward import eval_mode

M = TypeVar("M", bound=nn.Module)
Statistics = Literal["own", "copy", "ema"]


def ema_copy(module: M) -> M:
    """Return a copy with the same weights whose parameters need no gradient."""
    teacher = copy.deepcopy(module)
    for parameter in teacher.parameters():
        parameter.requires_grad_(False)
    return teacher


@torch.no_grad()
def update_ema(teacher: nn.Module, student: nn.Module, decay: float, *, statistics: Statistics = "own") -> None:
    """Update the teacher: theta' <- decay theta' + (1 - decay) theta, and batch-norm statistics by the rule `statistics`."""
    averaged = [p.data for p in teacher.parameters()]
    current = [p.data for p in student.parameters()]
    get_ema_multi_avg_fn(decay)(averaged, current, None)  # type: ignore[no-untyped-call]
    if statistics == "own":
        return
    for teacher_buffer, student_buffer in zip(teacher.buffers(), student.buffers(), strict=True):
        if statistics == "ema" and teacher_buffer.is_floating_point():
            teacher_buffer.lerp_(student_buffer, 1.0 - decay)
        else:
            teacher_buffer.copy_(student_buffer)


def warmed_up_decay(decay: float, step: int) -> float:
    """Return min(1 - 1/(step + 1), decay): the EMA begins as a plain average, so that the random initial weights soon fade."""
    return min(1.0 - 1.0 / (step + 1), decay)


@torch.no_grad()
def recompute_norm_statistics(net: nn.Module, batches: Iterable[Tensor]) -> None:
    """Recompute the batch-norm statistics as the mean over these batches, with the present weights.

    Averaged weights need this, because no net whose weights were averaged has the right statistics for the average. Everything
    but the norm layers is in eval mode, because the statistics are for predictions, which use no dropout.
    """
    norms = layers_with_running_statistics(net)
    momenta = [norm.momentum for norm in norms]
    with eval_mode(net):
        for norm in norms:
            norm.train()
        try:
            for k, x in enumerate(batches, start=1):
                for norm in norms:  # MeanOnlyNorm's momentum is the weight of the past, BatchNorm's that of the batch
                    norm.momentum = 1.0 - 1.0 / k if isinstance(norm, MeanOnlyNorm) else 1.0 / k
                net(x)
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum


def layers_with_running_statistics(net: nn.Module) -> list[Any]:
    """Return the layers of a net that keep running statistics of the batches they see."""
    return [layer for layer in net.modules() if getattr(layer, "running_mean", None) is not None]
