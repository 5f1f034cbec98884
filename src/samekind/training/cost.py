"""What a run costs: time, memory and work."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

MB = 2**20
SECONDS = 0.2  # between two looks: one takes as long as a tenth of a small net's step


class Meter:
    """Seconds over all sittings of a run, and the most memory that was in use at any look."""

    def __init__(self, device: torch.device | None = None) -> None:
        self._device = device or torch.device("cpu")
        self._earlier, self._started = 0.0, time.perf_counter()
        self._peak, self._looked = 0, -SECONDS

    @property
    def seconds(self) -> float:
        return self._earlier + time.perf_counter() - self._started

    def look(self) -> None:
        """Notes the memory in use, if the last look was not just now."""
        if time.perf_counter() - self._looked >= SECONDS:
            self._peak, self._looked = max(self._peak, memory()), time.perf_counter()

    def summary(self, steps: int, rows: int, flops: float | None = None) -> dict[str, Any]:
        """`rows` and `flops` (floating-point operations, if somebody counted them) are those of one step."""
        self._peak = max(self._peak, memory())
        seconds = max(self.seconds, 1e-9)
        summary: dict[str, Any] = {
            "steps": steps,
            "seconds": round(seconds, 3),
            "steps_per_second": round(steps / seconds, 2),
            "rows_per_second": round(steps * rows / seconds, 1),
            "peak_memory_mb": round(self._peak / MB, 1),
        }
        if self._device.type == "cuda":
            summary["peak_gpu_memory_mb"] = round(torch.cuda.max_memory_allocated(self._device) / MB, 1)
        if flops is not None:
            summary |= {"flops": steps * flops, "flops_per_second": round(steps * flops / seconds)}
        return summary

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "peak_memory": self._peak}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._earlier, self._started = state["seconds"], time.perf_counter()
        self._peak = state["peak_memory"]


def memory() -> int:
    """Bytes that this process holds for itself: what it has mapped from files can be dropped at any time and is not counted."""
    if sys.platform == "linux":  # read directly: to load psutil takes longer than many a fit
        resident, shared = Path("/proc/self/statm").read_text().split()[1:3]
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    import psutil

    return int(psutil.Process().memory_info().rss)
