"""Progress: the type of functions to which long operations report, and progress bars on stderr.

The display library (rich) is imported when a bar is created, so that a run without bars never loads it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Progress = Callable[[str, int, int], None]  # called with (title of the operation, number of units done, number of all units)
REFRESH_SECONDS = 0.2  # seconds between two updates of a bar, or two calls of a function


class ProgressBar:
    """Progress bar on stderr for one operation of `total` units.

    With `unit="bytes"` it shows sizes and the transfer speed. `fields` are the names of further columns of text, which `update`
    sets.
    """

    def __init__(self, total: int, title: str, *, done: int = 0, unit: str = "items", fields: tuple[str, ...] = ()) -> None:
        self._display = _display(unit, fields)
        self._task = self._display.add_task(title, total=total, completed=done, **dict.fromkeys(fields, ""))

    def shorten(self, total: int) -> None:
        """Show another total, after the operation became shorter."""
        self._display.update(self._task, total=total)

    def update(self, done: int, **fields: str) -> None:
        """Show that `done` units are done. The first call makes the bar visible."""
        self._display.start()
        self._display.update(self._task, completed=done, **fields)

    def close(self) -> None:
        """Leave the bar on the screen as it is, so that other output can follow."""
        if self._display.live.is_started:
            self._display.stop()


class TrainingBar:
    """Progress bar of a training run, with the loss terms, the speed and the time left."""

    def __init__(self, steps: int, title: str, *, done: int = 0, batch_size: int = 0) -> None:
        self._bar = ProgressBar(steps, title, done=done, fields=("speed", "terms"))
        self._bar.update(done)
        self._done, self._steps, self._batch_size = done, steps, batch_size
        self._started = self._drawn = time.perf_counter()

    def __call__(self, step: int, terms: Mapping[str, Any]) -> None:
        """Show the loss terms after `step`.

        Most calls return at once, because reading the value of a loss waits for the device.
        """
        now = time.perf_counter()
        if now - self._drawn < REFRESH_SECONDS and step + 1 < self._steps:
            return
        self._drawn = now
        speed = (step + 1 - self._done) / (now - self._started)
        self._bar.update(
            step + 1,
            speed=f"{speed:.{0 if speed >= 10 else 1}f} steps/s, {speed * self._batch_size:.0f} samples/s",
            terms="  ".join(f"{name} {float(term.detach()):.3f}" for name, term in terms.items()),
        )

    def shorten(self, steps: int) -> None:
        """Show another number of steps, after the run became shorter."""
        self._steps = steps
        self._bar.shorten(steps)

    def close(self) -> None:
        """Leave the bar on the screen as it is, so that other output can follow."""
        self._bar.close()


@contextmanager
def counting_bar(total: int, title: str, *, visible: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function `(done, total)` that draws a bar from its first call on; yield None if not `visible`."""
    if not visible:
        yield None
        return
    bar = ProgressBar(total, title)
    try:
        yield lambda done, _: bar.update(done)
    finally:
        bar.close()


@contextmanager
def progress_bars(*, unit: str = "items") -> Iterator[Progress]:
    """Yield a Progress function that draws a bar for each title and total, from its first call on."""
    display, tasks = _display(unit), {}

    def show(title: str, done: int, total: int) -> None:
        display.start()
        bar = title, total  # an operation with the same title but another total gets its own bar
        if bar not in tasks:
            tasks[bar] = display.add_task(title, total=total, completed=done)
        display.update(tasks[bar], completed=done)
        if display.finished:
            display.stop()  # other output of the program can follow

    try:
        yield show
    finally:
        if tasks:
            display.stop()


def show_line(text: str) -> None:
    """Write one line to stderr."""
    sys.stderr.write(f"{text}\n")


def throttled(progress: Progress | None, title: str, total: int) -> Callable[[int], None]:
    """Return a function of the number of units done.

    It calls `progress` at once, then at most once in REFRESH_SECONDS, and at the end.
    """
    last = -REFRESH_SECONDS

    def report(done: int) -> None:
        nonlocal last
        if progress is not None and (time.monotonic() - last >= REFRESH_SECONDS or done == total):
            last = time.monotonic()
            progress(title, done, total)

    return report


def _display(unit: str, fields: tuple[str, ...] = ()) -> Any:
    from rich import progress as rich
    from rich.console import Console

    amount = (rich.DownloadColumn(), rich.TransferSpeedColumn()) if unit == "bytes" else (rich.MofNCompleteColumn(),)
    extra = [rich.TextColumn(f"{{task.fields[{name}]}}") for name in fields]
    columns = (rich.TextColumn("[bold]{task.description}"), rich.BarColumn(), *amount, rich.TimeRemainingColumn(), *extra)
    return rich.Progress(*columns, console=Console(stderr=True))
