"""Time budget: how long a step and an inference pass take on this machine. Plans a run in minutes, and chooses its threads."""

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
from samekind.io import atomic_write, parse_json, read_regular
from samekind.methods.base import Method
from samekind.training.determinism import single_thread, thread_count
from samekind.training.engine import Engine
from samekind.training.loop import fit
from samekind.training.step_plan import StepPlan
from samekind.training.trainer import TrainConfig, make_sampler

WARM, TIMED = 3, 12  # steps before the timing begins, and timed steps
FEW_SAMPLES = 16  # samples of an inference pass that is timed first, to see whether more of them can be timed
NAME = "time_budget.json"
THREADS_NAME = "threads.json"
WORTH_TIMING = 200  # runs with fewer steps are not worth timing to choose the number of threads
WORTH_TIMING_MINUTES = 2.0  # the same for a run in minutes
# Several threads are used only if a step then takes less than this fraction of its time with one thread, because one thread
# also does well on busy cores.
MAX_GAIN = 0.9
THREADS_PART, STEPS_PART, INFERENCE_PART = 0.05, 0.04, 0.01  # of the minutes, for timing: a tenth in all
PLANNED_PART = 0.95  # of the training time, so that a machine of steady speed makes all planned steps
MOST_INFERENCE, LEAST_TRAINING = 0.5, 0.1  # of the minutes: at most for the final inference pass, at least for training
logger = logging.getLogger(__name__)


class StepSeconds(NamedTuple):
    """Mean seconds of a step of the supervised warm-up and of the method, and the fraction of warm-up steps."""

    warmup: float
    method: float
    warmup_fraction: float

    @property
    def mean(self) -> float:
        """Return the mean seconds of all steps."""
        return self.warmup_fraction * self.warmup + (1.0 - self.warmup_fraction) * self.method


@dataclass(frozen=True)
class StepBudget:
    """Plan of a run in minutes: its steps, and the seconds of its training and of the supervised warm-up therein."""

    minutes: float
    steps: int
    seconds: float
    warmup_seconds: float


def plan_steps(minutes: float, step: StepSeconds, *, spent: float, inference: float) -> StepBudget:
    """Return the steps that fit into the minutes, less the seconds already spent and those of the final inference pass.

    Training gets at least a tenth of the minutes, and the inference pass at most half, because a net that was hardly trained is
    of no use.
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
    """Return the mean seconds of a step, from a short run of the method that `build` returns for a number of steps.

    After `limit` seconds no further step is begun. If only one step was made, its time is returned, and else the steps before
    the timing are left out as far as possible. The run leaves no trace: random states are restored, and `build` must work on
    copies.
    """
    with torch.random.fork_rng(devices=[]), single_thread(len(dataset.shape) == 1):
        method = build(warm + timed)
        method.refresh(dataset)
        clock = Clock()
        ends = [0.0]

        def batches() -> Iterator[Batch]:
            stream = iter(make_sampler(method, dataset, views, config))
            while not engine.any(len(ends) > 1 and ends[-1] >= limit)[0]:  # all processes make the same steps
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


def time_inference(forward: Callable[[Tensor], Tensor], x: Tensor, n: int, limit: float = float("inf")) -> float:
    """Return the seconds of a forward pass over n samples, estimated from the samples x after one pass to warm up.

    If that would take more than `limit` seconds, the estimate is from a few of the samples.
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
    """Return the plan that the run in a directory began with, None if it began with other minutes."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        saved = parse_json(read_regular(folder / NAME))
        if saved["minutes"] == minutes:
            seconds, warmup = float(saved["seconds"]), float(saved["warmup_seconds"])
            return StepBudget(minutes, max(1, int(saved["steps"])), seconds, warmup)
    return None


def save_step_budget(folder: Path, budget: StepBudget) -> None:
    """Write the plan, so that a resumed run begins with the same."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / NAME, json.dumps(asdict(budget)).encode())
