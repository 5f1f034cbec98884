"""Being stopped: Ctrl-C (SIGINT) and a polite kill (SIGTERM) wait until the step is done and saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class SignalCatcher:
    """In here the first signal is kept in `caught` instead of obeyed; a Ctrl-C after it stops at once.

    Python lets only the main thread listen; in another one nothing changes. Afterwards everything is as it was.
    """

    def __init__(self) -> None:
        self.caught: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> SignalCatcher:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):  # nohup asked for silence; None is not Python's
                    self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.caught is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.caught = self.caught or signal.Signals(number)
