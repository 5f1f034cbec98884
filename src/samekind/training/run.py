"""One run from a pool to a predictor: the steps that estimator and experiments share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from samekind.data.pool import Batch, Pool
from samekind.data.stream import batches
from samekind.data.views import Views
from samekind.methods.contract import Method
from samekind.training.loop import fit, optimizer_for
from samekind.training.progress import Bar
from samekind.training.schedules import Schedule
from samekind.training.watch import Watch


@dataclass(frozen=True)
class Plan:
    """How long, how fast, and how much at a time."""

    steps: int
    n_labelled: int
    n_unlabelled: int
    schedule: Schedule
    seed: int
    device: torch.device
    title: str = ""
    verbose: bool = False
    history: str | Path | None = None
    looks: int = 100  # records kept of a run


def train(method: Method, pool: Pool, views: Views, plan: Plan) -> tuple[nn.Module, list[dict[str, Any]]]:
    """Trains the method on the pool; gives its predictor and the history of the run."""
    method.refresh(pool)
    watch = Watch(plan.history)
    bar = Bar(plan.steps, plan.title) if plan.verbose and plan.steps else None
    every = max(1, plan.steps // plan.looks)

    def on_step(step: int, terms: Any, observed: Any) -> None:
        if step % every == 0 or step == plan.steps - 1:
            watch(step, terms, observed)
            if bar is not None:
                bar(step, terms)

    threads = torch.get_num_threads()
    if pool.x.ndim == 2:
        torch.set_num_threads(1)  # small matrices: more threads cost more than they save, and change the last bits
    try:
        if plan.steps:
            fit(
                method,
                _stream(method, pool, views, plan),
                optimizer_for(method),
                plan.schedule,
                steps=plan.steps,
                on_step=on_step,
            )
    finally:
        torch.set_num_threads(threads)
        watch.close()
        if bar is not None:
            bar.close()
    return method.predictor().eval(), watch.records


def _stream(method: Method, pool: Pool, views: Views, plan: Plan) -> Iterator[Batch]:
    stream = batches(
        pool,
        views,
        labelled_views=method.labelled_views,
        unlabelled_views=method.unlabelled_views,
        n_labelled=plan.n_labelled,
        n_unlabelled=plan.n_unlabelled,
        generator=torch.Generator().manual_seed(plan.seed),
    )
    for batch in stream:
        yield batch.to(plan.device)
