"""SIGTERM and SIGHUP end the server like Ctrl+C: requests are finished, and labels.csv is written before the process ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

from samekind.errors import Interrupted

STOP_SIGNALS = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]


class StoppableServer(Protocol):
    """What is needed of uvicorn.Server."""

    started: bool
    should_exit: bool

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ask the server to end after the current requests."""


class StopSignals:
    """Context in which SIGTERM and SIGHUP stop `server` in order, or raise Interrupted if it is not running.

    A signal that is ignored, such as SIGHUP under nohup, stays ignored.
    """

    def __init__(self) -> None:
        self.server: StoppableServer | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ignore(self) -> None:
        """Ignore further signals: the run is being closed, which takes a moment and must not stop half-way."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.server is not None and self.server.started and not self.server.should_exit:
            self.server.handle_exit(number, frame)
        else:  # before the start, or raised again by uvicorn after its end
            raise Interrupted(f"Stopped by {signal.Signals(number).name}. All labels are stored.", number)


@contextmanager
def exit_when_stopped(log: Callable[[str], None]) -> Iterator[None]:
    """End this process at once when a signal has stopped the block.

    Python would wait for the threads of requests that were given up, which may take minutes to load torch.
    """
    try:
        yield
    except (KeyboardInterrupt, Interrupted) as stop:
        try:
            if isinstance(stop, Interrupted):
                log(f"samekind: {stop}")
            sys.stdout.flush()
        finally:  # also when the terminal is gone, and nothing can be written to it
            os._exit(stop.exit_code if isinstance(stop, Interrupted) else 128 + signal.SIGINT)
