"""EMA teacher: a copy of a network whose parameters are an exponential moving average (EMA) of the student's.

The batch-norm statistics of the teacher follow one of three rules. "own": the teacher forwards training data in train mode and
keeps its own running statistics. "copy": the teacher is used for evaluation only, and copies the student's statistics. "ema":
as "copy", but the statistics are averaged too.
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
    """Return a copy of a module with the same weights, which need no gradient."""
    teacher = copy.deepcopy(module)
    for parameter in teacher.parameters():
        parameter.requires_grad_(False)
    return teacher


@torch.no_grad()
def update_ema(teacher: nn.Module, student: nn.Module, decay: float, *, statistics: Statistics = "own") -> None:
    """Update the teacher's weights, theta' <- decay theta' + (1 - decay) theta, where theta are the student's.

    Batch-norm statistics follow the rule `statistics`: "own", "copy" or "ema", as explained at the top of this file.
    """
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
    """Return min(1 - 1/(step + 1), decay), the EMA decay in step 1, 2, 3, ...

    So the EMA begins as the plain average of all weights so far, and the random initial weights soon have no influence.
    """
    return min(1.0 - 1.0 / (step + 1), decay)


@torch.no_grad()
def recompute_norm_statistics(net: nn.Module, batches: Iterable[Tensor]) -> None:
    """Recompute the batch-norm statistics as the mean over these batches, with the present weights.

    A net with averaged weights needs this: the nets whose weights were averaged have other statistics. All other layers are in
    eval mode, because the statistics are for predictions, which use no dropout.
    """
    norms = layers_with_running_statistics(net)
    momenta = [norm.momentum for norm in norms]
    with eval_mode(net):
        for norm in norms:
            norm.train()
        try:
            for k, x in enumerate(batches, start=1):
                # momentum is the weight of the past in MeanOnlyNorm, and the weight of the batch in torch's BatchNorm
                for norm in norms:
                    norm.momentum = 1.0 - 1.0 / k if isinstance(norm, MeanOnlyNorm) else 1.0 / k
                net(x)
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum


def layers_with_running_statistics(net: nn.Module) -> list[Any]:
    """Return the layers of a net that keep running statistics, such as batch norm."""
    return [layer for layer in net.modules() if getattr(layer, "running_mean", None) is not None]
