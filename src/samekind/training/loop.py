"""The one training loop. It knows no method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import torch
from torch import Tensor
from torch.optim import Optimizer

from samekind.data.pool import Batch
from samekind.methods.contract import Method
from samekind.training.schedules import Schedule
from samekind.training.watch import require_finite

OnStep = Callable[[int, Mapping[str, Tensor], Mapping[str, Tensor]], None]


def optimizer_for(method: Method) -> Optimizer:
    """Adam on everything that wants a gradient; the schedule sets rate and betas."""
    return torch.optim.Adam([p for p in method.parameters() if p.requires_grad], fused=True)


def fit(
    method: Method,
    batches: Iterable[Batch],
    optimizer: Optimizer,
    schedule: Schedule,
    *,
    steps: int,
    on_step: OnStep,
) -> None:
    """Minimise the sum of the method's terms, one batch a step."""
    method.train()
    for step, batch in enumerate(islice(batches, steps)):
        progress = step / steps
        schedule.apply(optimizer, progress)
        terms = method.losses(batch, progress)
        require_finite(terms, step)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(torch.stack(list(terms.values())).sum())
        optimizer.step()
        method.after_step()
        on_step(step, terms, method.observed)
