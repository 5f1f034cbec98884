"""How long a step and a look take on this machine, so that a run can be planned in minutes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from samekind.data.augment.transforms import Views
from samekind.data.dataset import Dataset
from samekind.io import atomic_write
from samekind.methods.base import Method
from samekind.training.engine import Engine
from samekind.training.loop import fit
from samekind.training.threads import single_thread
from samekind.training.trainer import TrainConfig, make_stream

WARM, TIMED = 3, 12  # steps that are not timed, and that are
NAME = "pace.json"


class Clock:
    """Runs from the moment it is made."""

    def __init__(self) -> None:
        self._began = perf_counter()

    def seconds(self) -> float:
        return perf_counter() - self._began


def time_step(make: Callable[[int], Method], pool: Dataset, views: Views, plan: TrainConfig, engine: Engine) -> float:
    """Of a method that `make` makes for so many steps, in the mean over a short run with all that a long one has.

    Nothing of it is kept: random numbers are where they were, and so is all that `make` was given.
    """
    with torch.random.fork_rng(devices=[]), single_thread(len(pool.shape) == 1):
        method = make(WARM + TIMED)
        method.refresh(pool)
        ends: list[float] = []
        fit(
            method,
            make_stream(method, pool, views, plan),
            plan.optimizer.optimizer(method.parameters()),
            plan.schedule,
            engine,
            steps=WARM + TIMED,
            on_step=lambda *_: ends.append(perf_counter()),
        )
    return (ends[-1] - ends[WARM - 1]) / TIMED


def time_inference(look: Callable[[Tensor], Tensor], some: Tensor, n: int) -> float:
    """At n rows, from a look at some like them; one before it is not timed."""
    with torch.inference_mode():
        look(some)
        clock = Clock()
        look(some)
    return clock.seconds() * n / len(some)


def load_step_budget(folder: Path, minutes: float) -> int | None:
    """How many steps these minutes were when the run in a folder began: it goes on with as many."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        words = json.loads((folder / NAME).read_text(encoding="utf-8"))
        if words["minutes"] == minutes:
            return int(words["steps"])
    return None


def save_step_budget(folder: Path, minutes: float, steps: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / NAME, json.dumps({"minutes": minutes, "steps": steps}).encode())
