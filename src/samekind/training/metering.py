"""What a run costs: time, memory and work."""

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
SECONDS = 0.2  # between two looks: one takes as long as a tenth of a small net's step


class Meter:
    """Seconds over all sittings of a run, and the most memory that was in use at any look."""

    def __init__(self, device: torch.device | None = None) -> None:
        self._device = device or torch.device("cpu")
        self._earlier, self._started = 0.0, time.perf_counter()
        self._cpu_earlier, self._cpu_started = 0.0, time.process_time()
        self._peak, self._looked = 0, -SECONDS
        self._flops = 0  # of a step in this process

    @property
    def seconds(self) -> float:
        return self._earlier + time.perf_counter() - self._started

    @property
    def cpu_seconds(self) -> float:
        """Of all threads merge_costs: what other work on the machine does not change."""
        return self._cpu_earlier + time.process_time() - self._cpu_started

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Around the passes of one step: how many floating-point operations they take."""
        with count_flops() as flops:
            yield
        self._flops = flops()

    def look(self) -> None:
        """Notes the memory in use, if the last look was not just now."""
        if time.perf_counter() - self._looked >= SECONDS:
            self._peak, self._looked = max(self._peak, memory()), time.perf_counter()

    def summary(self, steps: int, rows: int, processes: int = 1) -> dict[str, Any]:
        """`rows` are those of one step, and operations the same in all processes."""
        self._peak = max(self._peak, memory())
        seconds = max(self.seconds, 1e-9)
        flops = steps * self._flops * processes
        summary: dict[str, Any] = {
            "steps": steps,
            "rows": steps * rows,
            "seconds": round(seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "steps_per_second": round(steps / seconds, 2),
            "rows_per_second": round(steps * rows / seconds, 1),
            "peak_memory_mb": round(self._peak / MB, 1),
            "flops": flops,
            "flops_per_second": round(flops / seconds),
        }
        if self._device.type == "cuda":
            summary["peak_gpu_memory_mb"] = round(torch.cuda.max_memory_allocated(self._device) / MB, 1)
        return summary

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds, "peak_memory": self._peak}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._earlier, self._started = state["seconds"], time.perf_counter()
        self._cpu_earlier, self._cpu_started = state["cpu_seconds"], time.process_time()
        self._peak = state["peak_memory"]


def merge_costs(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """What two parts of a run cost: sums, highest memory, and speeds over both."""
    costs = (first, then)
    summed = ("steps", "rows", "seconds", "cpu_seconds", "flops")
    total = {name: round(sum(cost[name] for cost in costs), 3) for name in summed}
    speeds = {
        "steps_per_second": round(total["steps"] / total["seconds"], 2),
        "rows_per_second": round(total["rows"] / total["seconds"], 1),
        "flops_per_second": round(total["flops"] / total["seconds"]),
    }
    peaks = {name: max(cost[name] for cost in costs) for name in then if name.startswith("peak")}
    return {**total, **speeds, **peaks}


def memory() -> int:
    """Bytes that this process holds for itself: what it has mapped from files can be dropped at any time and is not counted."""
    if sys.platform == "linux":  # read directly: to load psutil takes longer than many a fit
        resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    import psutil

    return int(psutil.Process().memory_info().rss)
