"""Time budget: how long a step and an inference pass take on this machine. Plans a run in minutes, and chooses its threads."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from samekind.data.augment.transforms import Views
from samekind.data.dataset import Dataset
from samekind.io import atomic_write, parse_json, read_regular
from samekind.methods.base import Method
from samekind.training.determinism import single_thread, thread_count
from samekind.training.engine import Engine
from samekind.training.loop import fit
from samekind.training.trainer import TrainConfig, make_sampler

WARM, TIMED = 3, 12  # steps before the timing begins, and timed steps
NAME = "time_budget.json"
THREADS_NAME = "threads.json"
WORTH_TIMING = 200  # runs with fewer steps are not worth timing to choose the number of threads
# Several threads are used only if a step then takes less than this fraction of its time with one thread, because one thread
# also does well on busy cores.
MAX_GAIN = 0.9
logger = logging.getLogger(__name__)


class Clock:
    """Stopwatch that runs from its creation."""

    def __init__(self) -> None:
        self._began = perf_counter()

    def seconds(self) -> float:
        """Return the seconds since the creation."""
        return perf_counter() - self._began


def time_step(
    build: Callable[[int], Method],
    dataset: Dataset,
    views: Views,
    config: TrainConfig,
    engine: Engine,
    *,
    warm: int = WARM,
    timed: int = TIMED,
) -> float:
    """Return the mean seconds of a step, from a short run of the method that `build` returns for a number of steps.

    The run leaves no trace: random states are restored, and `build` must work on copies.
    """
    with torch.random.fork_rng(devices=[]), single_thread(len(dataset.shape) == 1):
        method = build(warm + timed)
        method.refresh(dataset)
        ends: list[float] = []
        fit(
            method,
            make_sampler(method, dataset, views, config),
            config.optimizer.build(method.parameters()),
            config.schedule,
            engine,
            steps=warm + timed,
            on_step=lambda *_: ends.append(perf_counter()),
        )
    return (ends[-1] - ends[warm - 1]) / timed


def faster_thread_count(time_steps: Callable[[], float], available: int) -> int:
    """Return 1 or `available` threads, whichever is faster; `time_steps` makes a few steps and returns the seconds per step.

    More threads are not always faster: they make small nets slower, and on busy cores threads wait for each other.
    """
    seconds = {}
    for n in (1, available):
        with thread_count(n):
            seconds[n] = time_steps()
    chosen = _faster(seconds, available)
    logger.info("%s; training with %d", ", ".join(f"{n} threads: {s:.4f} s per step" for n, s in seconds.items()), chosen)
    return chosen


def _faster(seconds: Mapping[int, float], available: int) -> int:
    return available if seconds[available] < MAX_GAIN * seconds[1] else 1


def load_thread_count(folder: Path) -> int | None:
    """Return the number of threads with which the run in a directory began; None if no such number is saved there."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        n = parse_json(read_regular(folder / THREADS_NAME))["threads"]
        return n if isinstance(n, int) and 1 <= n <= 4096 else None
    return None


def save_thread_count(folder: Path, n: int) -> None:
    """Write the number of threads, so that a resumed run uses it too: another number changes the last bits of the results."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / THREADS_NAME, json.dumps({"threads": n}).encode())


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
    """Write the number of steps of the run, so that a resumed run makes the same number in all."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / NAME, json.dumps({"minutes": minutes, "steps": steps}).encode())
