"""Stopwatch. It imports nothing heavy, so that a command can start it before it loads torch."""

from __future__ import annotations

from time import perf_counter


class Clock:
    """Stopwatch that runs from its creation; `earlier` seconds count as passed already."""

    def __init__(self, earlier: float = 0.0) -> None:
        self._began = perf_counter() - earlier

    def seconds(self) -> float:
        """Return the seconds since the creation."""
        return perf_counter() - self._began
