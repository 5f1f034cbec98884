"""Progress: the callback type that long operations report to, and the bars on stderr that show it.

The display library (rich) is imported when a bar is made, so that a run without bars never loads it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Progress = Callable[[str, int, int], None]  # (title of the operation, units done, units in total)
REFRESH_SECONDS = 0.2  # between two updates of a bar or two calls of a callback


class ProgressBar:
    """Progress bar on stderr for one operation of `total` units.

    `unit="bytes"` shows sizes and the transfer speed. `fields` names extra text columns, set by `update`.
    """

    def __init__(self, total: int, title: str, *, done: int = 0, unit: str = "items", fields: tuple[str, ...] = ()) -> None:
        self._display = _display(unit, fields)
        self._task = self._display.add_task(title, total=total, completed=done, **dict.fromkeys(fields, ""))

    def shorten(self, total: int) -> None:
        """Show another total."""
        self._display.update(self._task, total=total)

    def update(self, done: int, **fields: str) -> None:
        """Show that `done` units are done; the first call makes the bar visible."""
        self._display.start()
        self._display.update(self._task, completed=done, **fields)

    def close(self) -> None:
        """Leave the bar as it is on the screen and release the terminal."""
        if self._display.live.is_started:
            self._display.stop()


class TrainingBar:
    """Progress bar of a training run: loss terms, speed and the time left."""

    def __init__(self, steps: int, title: str, *, done: int = 0, batch_size: int = 0) -> None:
        self._bar = ProgressBar(steps, title, done=done, fields=("speed", "terms"))
        self._bar.update(done)
        self._done, self._steps, self._batch_size = done, steps, batch_size
        self._started = self._drawn = time.perf_counter()

    def __call__(self, step: int, terms: Mapping[str, Any]) -> None:
        """Show the loss terms after `step`. Most calls return at once, because reading a loss value waits for the device."""
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
        """Show another number of steps in all."""
        self._steps = steps
        self._bar.shorten(steps)

    def close(self) -> None:
        """Leave the bar as it is on the screen and release the terminal."""
        self._bar.close()


@contextmanager
def counting_bar(total: int, title: str, *, visible: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a callback `(done, total)` that draws a bar from its first call on; yield None if not `visible`."""
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
    """Yield a `Progress` callback that draws one bar for each title, and for each total of a title, from its first call on."""
    display, tasks = _display(unit), {}

    def show(title: str, done: int, total: int) -> None:
        display.start()
        bar = title, total  # data of another size gets its own bar
        if bar not in tasks:
            tasks[bar] = display.add_task(title, total=total, completed=done)
        display.update(tasks[bar], completed=done)
        if display.finished:
            display.stop()  # release the terminal for the next output of the program

    try:
        yield show
    finally:
        if tasks:
            display.stop()


def show_line(text: str) -> None:
    """Write one line to stderr."""
    sys.stderr.write(f"{text}\n")


def throttled(progress: Progress | None, title: str, total: int) -> Callable[[int], None]:
    """Return a function of the units done that calls `progress` at once, then a few times a second, and at the end."""
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
