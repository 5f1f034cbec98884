"""Cost of a run: its time, its memory and its floating-point operations."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from samekind.flops import count_flops

MB = 2**20
# seconds between two measurements of memory; one measurement takes a tenth of the time of a small net's step
SAMPLE_SECONDS = 0.2


class Meter:
    """Meter of the cost of a run: seconds over all its sessions, the highest memory measured, and the operations of one step.

    A session is the time from the start or resumption of a run to its end or interruption.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self._device = device or torch.device("cpu")
        self._earlier, self._started = 0.0, time.perf_counter()
        self._cpu_earlier, self._cpu_started = 0.0, time.process_time()
        self._peak, self._sampled_at = 0, -SAMPLE_SECONDS
        self._flops = 0  # floating-point operations of one step in this process

    @property
    def seconds(self) -> float:
        """Return the wall-clock seconds of all sessions."""
        return self._earlier + time.perf_counter() - self._started

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all threads and sessions. Other programs on the machine do not change them."""
        return self._cpu_earlier + time.process_time() - self._cpu_started

    @contextmanager
    def count_flops(self) -> Iterator[None]:
        """Count the floating-point operations inside the block, which must compute exactly one training step."""
        with count_flops() as flops:
            yield
        self._flops = flops()

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
        flops = steps * self._flops * processes
        summary: dict[str, Any] = {
            "steps": steps,
            "rows": steps * batch_size,
            "seconds": round(seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "steps_per_second": round(steps / seconds, 2),
            "rows_per_second": round(steps * batch_size / seconds, 1),
            "peak_memory_mb": round(self._peak / MB, 1),
            "flops": flops,
            "flops_per_second": round(flops / seconds),
        }
        if self._device.type == "cuda":
            summary["peak_gpu_memory_mb"] = round(torch.cuda.max_memory_allocated(self._device) / MB, 1)
        return summary

    def state_dict(self) -> dict[str, Any]:
        """Return the cost of all sessions so far, for a checkpoint."""
        return {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds, "peak_memory": self._peak}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the cost of the earlier sessions from a checkpoint, and measure on from there."""
        self._earlier, self._started = state["seconds"], time.perf_counter()
        self._cpu_earlier, self._cpu_started = state["cpu_seconds"], time.process_time()
        self._peak = state["peak_memory"]


def merge_costs(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cost of two stages together: the sums, the higher of the two memory peaks, and the mean speeds."""
    costs = (first, second)
    summed = ("steps", "rows", "seconds", "cpu_seconds", "flops")
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
