"""Stopwatch. Its module imports nothing heavy, so that a command can start it before it loads torch."""

from __future__ import annotations

from time import perf_counter


class Clock:
    """Stopwatch that starts when it is created. `earlier` is a number of seconds that count as passed already."""

    def __init__(self, earlier: float = 0.0) -> None:
        self._began = perf_counter() - earlier

    def seconds(self) -> float:
        """Return the seconds since the stopwatch was created, plus `earlier`."""
        return perf_counter() - self._began
