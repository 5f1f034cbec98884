"""A progress bar that shows the loss terms, the speed and the time left."""

from __future__ import annotations

import time
from collections.abc import Mapping

from torch import Tensor

SECONDS = 0.2  # between two pictures: reading a loss waits for the device


class Bar:
    """A bar on stderr; made only when asked for, so that a quiet run never loads the display library."""

    def __init__(self, steps: int, title: str, *, done: int = 0, rows: int = 0) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        numbers = (TextColumn("{task.fields[speed]}"), TextColumn("{task.fields[terms]}"))
        columns = ("[bold]{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), *numbers)
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._task = self._progress.add_task(title, total=steps, completed=done, speed="", terms="")
        self._done, self._steps, self._rows = done, steps, rows
        self._started = self._drawn = time.perf_counter()
        self._progress.start()

    def __call__(self, step: int, terms: Mapping[str, Tensor]) -> None:
        now = time.perf_counter()
        if now - self._drawn < SECONDS and step + 1 < self._steps:
            return
        self._drawn = now
        speed = (step + 1 - self._done) / (now - self._started)
        self._progress.update(
            self._task,
            completed=step + 1,
            speed=f"{speed:.{0 if speed >= 10 else 1}f} steps/s, {speed * self._rows:.0f} rows/s",
            terms="  ".join(f"{name} {float(term.detach()):.3f}" for name, term in terms.items()),
        )

    def close(self) -> None:
        self._progress.stop()
