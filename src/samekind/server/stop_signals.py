"""Signals: SIGTERM and SIGHUP end the server like Ctrl+C. Running requests finish, and labels.csv is written before the end."""

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
    """The part of uvicorn.Server that is needed here."""

    started: bool
    should_exit: bool

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ask the server to end after the running requests."""


class StopSignals:
    """Context in which SIGTERM and SIGHUP end `server` after its running requests; if it is not running, Interrupted is raised.

    A signal that is ignored, such as SIGHUP in a program under nohup, stays ignored.
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
        """Ignore further signals. The run is being closed, which takes a moment and must not be interrupted."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.server is not None and self.server.started and not self.server.should_exit:
            self.server.handle_exit(number, frame)
        else:  # the server has not started yet, or uvicorn raises the signal again after its end
            raise Interrupted(f"Stopped by {signal.Signals(number).name}. All labels are stored.", number)


@contextmanager
def exit_when_stopped(log: Callable[[str], None]) -> Iterator[None]:
    """End this process at once if a signal has stopped the block.

    Otherwise Python waits for the threads of requests that were given up, for example while one loads torch for minutes.
    """
    try:
        yield
    except (KeyboardInterrupt, Interrupted) as stop:
        try:
            if isinstance(stop, Interrupted):
                log(f"samekind: {stop}")
            sys.stdout.flush()
        finally:  # also if the terminal is gone, and nothing can be written to it
            os._exit(stop.exit_code if isinstance(stop, Interrupted) else 128 + signal.SIGINT)
