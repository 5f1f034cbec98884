"""Cost of a run: its time, its memory and its floating-point operations."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from samekind.flops import count_flops

MB = 2**20
# seconds between two measurements of memory; one measurement takes a tenth of the time of a small net's step
SAMPLE_SECONDS = 0.2


class Meter:
    """Meter of the cost of a run: seconds over all its sessions, the highest memory measured, and the operations.

    A session is the time from the start or resumption of a run to its end or interruption.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self._device = device or torch.device("cpu")
        self._earlier, self._started = 0.0, time.perf_counter()
        self._cpu_earlier, self._cpu_started = 0.0, time.process_time()
        self._peak, self._sampled_at = 0, -SAMPLE_SECONDS
        self._flops, self._full_pass_flops = 0, 0  # floating-point operations of this process until now
        self._step_flops = 0  # floating-point operations of the last step whose operations were counted
        self._terms: list[str] = []  # names of the loss terms of the last step
        self._count_next = True  # True: the next step is counted, because the loss terms have changed

    @property
    def seconds(self) -> float:
        """Return the wall-clock seconds of all sessions."""
        return self._earlier + time.perf_counter() - self._started

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all threads and sessions. Other programs on the machine do not change them."""
        return self._cpu_earlier + time.process_time() - self._cpu_started

    @contextmanager
    def step(self, step: int, steps: int) -> Iterator[None]:
        """Add the floating-point operations of training step number `step`, which must be computed inside the block.

        Counting takes time. So operations are counted in the first two of all `steps`, in four more steps at equal distances,
        and in the step after a change of the loss terms. Every other step is assumed to cost as much as the last step that was
        counted.
        """
        if self._count_next or step < 2 or step % max(1, steps // 5) == 0:
            with count_flops() as flops:
                yield
            self._step_flops, self._count_next = flops(), False
        else:
            yield
        self._flops += self._step_flops

    def note_terms(self, names: Iterable[str]) -> None:
        """Store the names of the loss terms of a step.

        If they differ from those of the step before, the next step is counted.
        """
        found = sorted(names)
        self._count_next = self._count_next or found != self._terms
        self._terms = found

    @contextmanager
    def full_pass(self) -> Iterator[None]:
        """Add the floating-point operations of a full pass over the dataset, which must be computed inside the block."""
        with count_flops() as flops:
            yield
        self.add_full_pass(flops())

    def add_full_pass(self, flops: int) -> None:
        """Add floating-point operations of a full pass over the dataset that were counted elsewhere."""
        self._flops += flops
        self._full_pass_flops += flops

    def sample_memory(self) -> None:
        """Measure the memory in use, unless the last measurement is less than 0.2 seconds old."""
        if time.perf_counter() - self._sampled_at >= SAMPLE_SECONDS:
            self._peak, self._sampled_at = max(self._peak, memory()), time.perf_counter()

    def summary(self, steps: int, batch_size: int, processes: int = 1) -> dict[str, Any]:
        """Return the cost of `steps` steps as {name: number}.

        The floating-point operations are counted in this process and multiplied by the number of processes.
        """
        self._peak = max(self._peak, memory())
        seconds = max(self.seconds, 1e-9)
        flops = self._flops * processes
        summary: dict[str, Any] = {
            "steps": steps,
            "rows": steps * batch_size,
            "seconds": round(seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "steps_per_second": round(steps / seconds, 2),
            "rows_per_second": round(steps * batch_size / seconds, 1),
            "peak_memory_mb": round(self._peak / MB, 1),
            "flops": flops,
            "full_pass_flops": self._full_pass_flops * processes,  # the operations of full passes are a part of "flops"
            "flops_per_second": round(flops / seconds),
        }
        if self._device.type == "cuda":
            summary["peak_gpu_memory_mb"] = round(torch.cuda.max_memory_allocated(self._device) / MB, 1)
        return summary

    def state_dict(self) -> dict[str, Any]:
        """Return the cost of all sessions so far, for a checkpoint."""
        return {
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "peak_memory": self._peak,
            "flops": self._flops,
            "full_pass_flops": self._full_pass_flops,
            "step_flops": self._step_flops,
            "terms": self._terms,
            "count_next": self._count_next,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the cost of the earlier sessions from a checkpoint, and measure on from there."""
        self._earlier, self._started = state["seconds"], time.perf_counter()
        self._cpu_earlier, self._cpu_started = state["cpu_seconds"], time.process_time()
        self._peak = state["peak_memory"]
        self._flops, self._full_pass_flops = state["flops"], state["full_pass_flops"]
        self._step_flops, self._terms, self._count_next = state["step_flops"], state["terms"], state["count_next"]


def merge_costs(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cost of two stages together: the sums, the higher of the two memory peaks, and the mean speeds."""
    costs = (first, second)
    summed = ("steps", "rows", "seconds", "cpu_seconds", "flops", "full_pass_flops")
    total = {name: round(sum(cost[name] for cost in costs), 3) for name in summed}
    seconds = max(total["seconds"], 1e-9)
    speeds = {
        "steps_per_second": round(total["steps"] / seconds, 2),
        "rows_per_second": round(total["rows"] / seconds, 1),
        "flops_per_second": round(total["flops"] / seconds),
    }
    peaks = {name: max(cost.get(name, 0.0) for cost in costs) for name in second if name.startswith("peak")}
    return {**total, **speeds, **peaks}


def memory() -> int:
    """Return the bytes of private memory of this process.

    Pages mapped from files do not count, because the operating system can drop them at any time.
    """
    if sys.platform == "linux":  # /proc is read directly, because importing psutil takes longer than a short fit
        resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    import psutil

    return int(psutil.Process().memory_info().rss)
