"""An endless stream of batches, with the views that a method declared."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from samekind.data.pool import Batch, Pool
from samekind.data.views import Views
from samekind.errors import LabelError, SettingError, did_you_mean


def batches(
    pool: Pool,
    views: Views,
    *,
    labelled_views: tuple[str, ...],
    unlabelled_views: tuple[str, ...],
    n_labelled: int,
    n_unlabelled: int,
    generator: torch.Generator,
) -> Iterator[Batch]:
    """Batches without end: the pool in a new order each epoch (a last partial batch is dropped), and two independent
    endless shuffles of the labelled rows, half the labelled batch from each, so that pairs by position are random."""
    for name in {*labelled_views, *unlabelled_views} - set(views):
        raise SettingError(f"no view is called {name!r}; {did_you_mean(name, views)}")
    if len(pool.labelled) == 0:
        raise LabelError("the pool holds no labelled row: nothing to learn from. Label at least one row of each class.")
    half = n_labelled // 2
    first = _endless(pool.labelled, n_labelled - half, generator)
    second = _endless(pool.labelled, half, generator)
    everything = torch.arange(len(pool))
    order, at = everything, len(pool)
    while True:
        rows = torch.cat([next(first), next(second)])
        x_l = pool.x[rows]
        index = everything[:0]
        if unlabelled_views:
            if at + n_unlabelled > len(order):
                order, at = torch.randperm(len(pool), generator=generator), 0
            index = order[at : at + n_unlabelled]
            at += n_unlabelled
        x_u = pool.x[index]
        yield Batch(
            x_l=tuple(views[name](x_l, rows, generator) for name in labelled_views),
            y_l=pool.y[rows],
            x_u=tuple(views[name](x_u, index, generator) for name in unlabelled_views),
            index=index,
        )


def _endless(rows: Tensor, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """`size` rows at a time from one shuffle after another."""
    left = rows[:0]
    while True:
        while len(left) < size:
            left = torch.cat([left, rows[torch.randperm(len(rows), generator=generator)]])
        yield left[:size]
        left = left[size:]
