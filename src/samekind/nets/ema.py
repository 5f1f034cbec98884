"""The slow copy of a network: an exponential moving average of its parameters.

Batch-norm statistics follow one rule: a teacher that forwards training data in train mode keeps its `own` running
statistics; a teacher used for evaluation only must `copy` the student's, or average them (`ema`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from samekind.nets.conv13 import MeanOnlyNorm
from samekind.nets.forward import eval_mode

M = TypeVar("M", bound=nn.Module)
Statistics = Literal["own", "copy", "ema"]


def ema_copy(module: M) -> M:
    """A copy with the same weights that no optimiser will ever move."""
    twin = copy.deepcopy(module)
    for parameter in twin.parameters():
        parameter.requires_grad_(False)
    return twin


@torch.no_grad()
def update_ema(teacher: nn.Module, student: nn.Module, alpha: float, *, statistics: Statistics = "own") -> None:
    """theta' <- alpha theta' + (1 - alpha) theta, and batch-norm statistics by the rule above."""
    slow = [p.data for p in teacher.parameters()]
    fast = [p.data for p in student.parameters()]
    torch._foreach_lerp_(slow, fast, 1.0 - alpha)
    if statistics == "own":
        return
    for slow_buffer, fast_buffer in zip(teacher.buffers(), student.buffers(), strict=True):
        if statistics == "ema" and slow_buffer.is_floating_point():
            slow_buffer.lerp_(fast_buffer, 1.0 - alpha)
        else:
            slow_buffer.copy_(fast_buffer)


@torch.no_grad()
def recompute_norm_statistics(net: nn.Module, batches: Iterable[Tensor]) -> None:
    """Counts the batch-norm statistics anew: the mean over these batches, as the net with its present weights sees them.

    Weights that were averaged have statistics that no net they came from has. Everything but the norms is in eval mode: the
    statistics are for answers, which know no dropout, and nothing is drawn.
    """
    norms = layers_with_running_statistics(net)
    momenta = [norm.momentum for norm in norms]
    with eval_mode(net):
        for norm in norms:
            norm.train()
        try:
            for k, x in enumerate(batches, start=1):
                for norm in norms:  # the share that a batch has, or that is kept of the batches before
                    norm.momentum = 1.0 - 1.0 / k if isinstance(norm, MeanOnlyNorm) else 1.0 / k
                net(x)
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum


def layers_with_running_statistics(net: nn.Module) -> list[Any]:
    """The parts of a net that keep statistics of the batches they see."""
    return [part for part in net.modules() if getattr(part, "running_mean", None) is not None]


def warmed_up_decay(alpha: float, step: int) -> float:
    """min(1 - 1/(step + 1), alpha): a true average at first, so that the random start is soon forgotten."""
    return min(1.0 - 1.0 / (step + 1), alpha)
