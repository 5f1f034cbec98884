"""A progress bar that shows the loss terms, the speed and the time left."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


class Bar:
    """A bar on the terminal; made only when asked for, so that a quiet run never loads the display library."""

    def __init__(self, steps: int, title: str) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = ("[bold]{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, TextColumn("{task.fields[speed]}"), TextColumn("{task.fields[terms]}"))
        self._task = self._progress.add_task(title, total=steps, speed="", terms="")
        self._progress.start()

    def __call__(self, step: int, terms: Mapping[str, Tensor]) -> None:
        speed = self._progress.tasks[0].speed
        self._progress.update(
            self._task,
            completed=step + 1,
            speed=f"{speed:.0f} steps/s" if speed else "",
            terms="  ".join(f"{name} {float(term.detach()):.3f}" for name, term in terms.items()),
        )

    def close(self) -> None:
        self._progress.stop()
