"""Time budget: how long a step and an inference pass take on this machine, so that a run can be planned in minutes."""

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
from samekind.io import atomic_write, parse_json, read_regular
from samekind.methods.base import Method
from samekind.training.determinism import single_thread
from samekind.training.engine import Engine
from samekind.training.loop import fit
from samekind.training.trainer import TrainConfig, make_sampler

WARM, TIMED = 3, 12  # steps before the timing begins, and timed steps
NAME = "time_budget.json"


class Clock:
    """Stopwatch that runs from its creation."""

    def __init__(self) -> None:
        self._began = perf_counter()

    def seconds(self) -> float:
        """Return the seconds since the creation."""
        return perf_counter() - self._began


def time_step(build: Callable[[int], Method], dataset: Dataset, views: Views, config: TrainConfig, engine: Engine) -> float:
    """Return the mean seconds of a step, from a short run of the method that `build` returns for a number of steps.

    The run leaves no trace: random states are restored, and `build` must work on copies.
    """
    with torch.random.fork_rng(devices=[]), single_thread(len(dataset.shape) == 1):
        method = build(WARM + TIMED)
        method.refresh(dataset)
        ends: list[float] = []
        fit(
            method,
            make_sampler(method, dataset, views, config),
            config.optimizer.build(method.parameters()),
            config.schedule,
            engine,
            steps=WARM + TIMED,
            on_step=lambda *_: ends.append(perf_counter()),
        )
    return (ends[-1] - ends[WARM - 1]) / TIMED


def time_inference(forward: Callable[[Tensor], Tensor], x: Tensor, n: int) -> float:
    """Return the seconds of a forward pass over n samples, estimated from the samples x after one pass to warm up."""
    with torch.inference_mode():
        forward(x)
        clock = Clock()
        forward(x)
    return clock.seconds() * n / len(x)


def load_step_budget(folder: Path, minutes: float) -> int | None:
    """Return the number of steps that the run in a directory began with, None if it began with other minutes."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        saved = parse_json(read_regular(folder / NAME))
        if saved["minutes"] == minutes:
            return max(1, int(saved["steps"]))
    return None


def save_step_budget(folder: Path, minutes: float, steps: int) -> None:
    """Write the number of steps, so that a resumed run makes as many."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / NAME, json.dumps({"minutes": minutes, "steps": steps}).encode())
