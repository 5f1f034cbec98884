"""The training loop that all methods share. It contains nothing that is special to one method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.optim import Optimizer

from samekind.data.dataset import Batch
from samekind.methods.base import Method
from samekind.training.engine import Engine, LocalEngine
from samekind.training.monitor import require_finite
from samekind.training.schedules import Schedule
from samekind.training.step_plan import StepPlan

OnStep = Callable[[int, Mapping[str, Tensor], Mapping[str, Tensor]], None]
LOCAL_ENGINE = LocalEngine()


def fit(
    method: Method,
    batches: Iterable[Batch],
    optimizer: Optimizer,
    schedule: Schedule,
    engine: Engine = LOCAL_ENGINE,
    *,
    plan: StepPlan,
    start: int = 0,
    on_step: OnStep,
    around_step: Callable[[int], AbstractContextManager[object]] = lambda step: nullcontext(),
) -> None:
    """Train the method: minimize the sum of its loss terms, one batch per step.

    `on_step` is called after each step with the loss terms of the last part of the batch; it may shorten the plan.
    `around_step(step)` is a context manager around the forward and backward passes of a step, for example to count operations.
    """
    method.train()
    for step, batch in zip(plan.remaining(start), batches, strict=False):
        progress = plan.progress(step)
        schedule.apply(optimizer, progress)
        optimizer.zero_grad(set_to_none=True)
        terms: Mapping[str, Tensor] = {}
        with around_step(step):
            for part in engine.parts(batch):
                with engine.autocast():
                    terms = method.losses(part, progress)
                require_finite(terms, step)
                engine.backward(torch.stack(list(terms.values())).sum())
        engine.step(optimizer, method)
        method.after_step()
        on_step(step, terms, method.diagnostics)
