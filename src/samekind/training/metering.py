"""Cost of a run: time, memory and floating-point operations."""

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
SAMPLE_SECONDS = 0.2  # between two measurements of the memory, each of which takes a tenth of the time of a small net's step


class Meter:
    """Cost meter of a run: seconds over all its sessions, peak of the sampled memory, and operations of a step."""

    def __init__(self, device: torch.device | None = None) -> None:
        self._device = device or torch.device("cpu")
        self._earlier, self._started = 0.0, time.perf_counter()
        self._cpu_earlier, self._cpu_started = 0.0, time.process_time()
        self._peak, self._sampled_at = 0, -SAMPLE_SECONDS
        self._flops = 0  # of a step in this process

    @property
    def seconds(self) -> float:
        """Return the wall-clock seconds."""
        return self._earlier + time.perf_counter() - self._started

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all threads, which other work on the machine does not change."""
        return self._cpu_earlier + time.process_time() - self._cpu_started

    @contextmanager
    def count_flops(self) -> Iterator[None]:
        """Count the floating-point operations of one step, made inside the block."""
        with count_flops() as flops:
            yield
        self._flops = flops()

    def sample_memory(self) -> None:
        """Sample the memory in use, unless the last sample is recent."""
        if time.perf_counter() - self._sampled_at >= SAMPLE_SECONDS:
            self._peak, self._sampled_at = max(self._peak, memory()), time.perf_counter()

    def summary(self, steps: int, batch_size: int, processes: int = 1) -> dict[str, Any]:
        """Return the cost of `steps` steps. Operations are counted in one process and multiplied by `processes`."""
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
        """Return the cost so far."""
        return {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds, "peak_memory": self._peak}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from the cost of earlier sessions."""
        self._earlier, self._started = state["seconds"], time.perf_counter()
        self._cpu_earlier, self._cpu_started = state["cpu_seconds"], time.process_time()
        self._peak = state["peak_memory"]


def merge_costs(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cost of two stages: sums, the highest memory, and speeds over both."""
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
    """Return the bytes of private memory of this process; pages mapped from files can be dropped and do not count."""
    if sys.platform == "linux":  # /proc is read directly, because importing psutil takes longer than a short fit
        resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    import psutil

    return int(psutil.Process().memory_info().rss)
