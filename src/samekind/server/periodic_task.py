"""Work that is repeated periodically in a background thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from samekind.errors import StoreError


class PeriodicTask:
    """Calls `work` every `seconds` in a thread of its own, until the task is closed.

    A StoreError, for example because of a full disk, is ignored, because the next call tries again.
    """

    def __init__(self, seconds: float, work: Callable[[], None]) -> None:
        self._seconds, self._work = seconds, work
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def closing(self) -> bool:
        return self._stop.is_set()

    def close(self) -> None:
        """Stop the task, after waiting for a running call to end."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            with suppress(StoreError):
                self._work()
