"""Time budget: how many steps fit into a given number of minutes, from measured times; also chooses the thread count."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from samekind.clock import Clock
from samekind.data.augment.transforms import Views
from samekind.data.dataset import Batch, Dataset
from samekind.files.io import atomic_write, parse_json, read_regular
from samekind.methods.base import Method
from samekind.training.determinism import single_thread, thread_count
from samekind.training.engine import Engine
from samekind.training.loop import fit
from samekind.training.step_plan import StepPlan
from samekind.training.trainer import TrainConfig, make_sampler

WARM, TIMED = 3, 12  # number of steps before the timing begins, and number of steps that are timed
FEW_SAMPLES = 16  # size of the first timed inference pass, which shows whether there is time to measure a larger one
NAME = "time_budget.json"
THREADS_NAME = "threads.json"
# runs with fewer steps use the default number of threads, because the timing would take longer than it saves
WORTH_TIMING = 200
WORTH_TIMING_MINUTES = 2.0  # runs of fewer minutes use the default number of threads too, for the same reason
# Several threads are used only if a step then takes less than this fraction of its time with one thread. The threads wait for
# each other when the cores are busy, but one thread does not.
MAX_GAIN = 0.9
# fractions of the given minutes that may be spent on each timing; a tenth in all
THREADS_PART, STEPS_PART, INFERENCE_PART = 0.05, 0.04, 0.01
# fraction of the training time for which steps are planned; the rest is a reserve for steps that take a little longer
PLANNED_PART = 0.95
# fractions of the minutes: the final inference pass gets at most the first, training gets at least the second
MOST_INFERENCE, LEAST_TRAINING = 0.5, 0.1
logger = logging.getLogger(__name__)


class StepSeconds(NamedTuple):
    """Mean seconds of a step of the supervised warm-up and of a step of the method, and the fraction of warm-up steps."""

    warmup: float
    method: float
    warmup_fraction: float

    @property
    def mean(self) -> float:
        """Return the mean seconds per step over both kinds of steps."""
        return self.warmup_fraction * self.warmup + (1.0 - self.warmup_fraction) * self.method


@dataclass(frozen=True)
class StepBudget:
    """Budget of a run that has a limit in minutes: its number of steps, and the seconds of its training and of its warm-up.

    The seconds of the supervised warm-up are a part of the seconds of training.
    """

    minutes: float
    steps: int
    seconds: float
    warmup_seconds: float


def plan_steps(minutes: float, step: StepSeconds, *, spent: float, inference: float) -> StepBudget:
    """Return the number of steps that fit into the minutes, and the seconds of training.

    `spent` is the number of seconds that have already passed, `inference` the seconds of the final inference pass; both are
    subtracted from the minutes. Training gets at least a tenth of the minutes, and the inference pass is counted with at most
    half of them, because a net that was hardly trained is of no use.
    """
    total = 60.0 * minutes
    left = total - spent - min(inference, MOST_INFERENCE * total)
    seconds = max(left, LEAST_TRAINING * total)
    if seconds > left:
        logger.warning(
            "%.0f of %.0f s have passed before training, which gets %.0f s more; allow more minutes", spent, total, seconds
        )
    warmup_seconds = seconds * step.warmup_fraction * step.warmup / step.mean
    return StepBudget(minutes, max(1, int(PLANNED_PART * seconds / step.mean)), seconds, warmup_seconds)


def time_step(
    build: Callable[[int], Method],
    dataset: Dataset,
    views: Views,
    config: TrainConfig,
    engine: Engine,
    *,
    warm: int = WARM,
    timed: int = TIMED,
    limit: float = float("inf"),
) -> float:
    """Return the mean seconds of a training step, measured in a short run.

    `build` receives the number of steps and returns the method to train. It must return a copy, and the random states are
    restored, so that the measurement does not change the real run. After `limit` seconds no further step is begun. The first
    `warm` steps are not counted, if enough steps were made; if only one was made, its time is returned.
    """
    with torch.random.fork_rng(devices=[]), single_thread(len(dataset.shape) == 1):
        method = build(warm + timed)
        method.refresh(dataset)
        clock = Clock()
        ends = [0.0]

        def batches() -> Iterator[Batch]:
            stream = iter(make_sampler(method, dataset, views, config))
            while not engine.any(len(ends) > 1 and ends[-1] >= limit)[0]:  # all processes must make the same number of steps
                yield next(stream)

        fit(
            method,
            batches(),
            config.optimizer.build(method.parameters()),
            config.schedule,
            engine,
            plan=StepPlan(warm + timed),
            on_step=lambda *_: ends.append(clock.seconds()),
        )
    first = min(warm, len(ends) - 2)
    return (ends[-1] - ends[first]) / (len(ends) - 1 - first)


def faster_thread_count(time_steps: Callable[[], float], available: int) -> int:
    """Return the faster number of threads, 1 or `available`.

    `time_steps` makes a few steps and returns the seconds per step. More threads are not always faster: they slow small nets
    down, and on busy cores the threads wait for each other.
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
    """Return the number of threads with which the run in a checkpoint directory began; None if that was not saved."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        n = parse_json(read_regular(folder / THREADS_NAME))["threads"]
        return n if isinstance(n, int) and 1 <= n <= 4096 else None
    return None


def save_thread_count(folder: Path, n: int) -> None:
    """Write the number of threads of a run, so that it resumes with the same number.

    Another number of threads would change the last bits of the results.
    """
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / THREADS_NAME, json.dumps({"threads": n}).encode())


def time_inference(forward: Callable[[Tensor], Tensor], x: Tensor, n: int, limit: float = float("inf")) -> float:
    """Return the estimated seconds of a forward pass over n samples.

    The estimate is from the second of two timed passes over the samples x, or over 16 of them if x would take more than `limit`
    seconds. The first pass only warms up.
    """
    few = x[:FEW_SAMPLES]
    with torch.inference_mode():
        seconds = _time_second_pass(forward, few) / len(few)
        if len(x) > len(few) and 2.0 * seconds * len(x) <= limit:
            seconds = _time_second_pass(forward, x) / len(x)
    return seconds * n


def _time_second_pass(forward: Callable[[Tensor], Tensor], x: Tensor) -> float:
    forward(x)
    clock = Clock()
    forward(x)
    return clock.seconds()


def load_step_budget(folder: Path, minutes: float) -> StepBudget | None:
    """Return the budget that was saved when the run in a checkpoint directory began; None if that run had other minutes."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        saved = parse_json(read_regular(folder / NAME))
        if saved["minutes"] == minutes:
            seconds, warmup = float(saved["seconds"]), float(saved["warmup_seconds"])
            return StepBudget(minutes, max(1, int(saved["steps"])), seconds, warmup)
    return None


def save_step_budget(folder: Path, budget: StepBudget) -> None:
    """Write the budget of a run, so that the run resumes with the same number of steps."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / NAME, json.dumps(asdict(budget)).encode())
