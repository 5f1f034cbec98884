"""HTTP connections with limits, so that a client that sends nothing, or half a request, blocks neither clients nor the
shutdown.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 100  # largest number of open connections; a browser opens six, and macOS lets a process open 256 files
# seconds in which all headers of a request must arrive, from the connection or from the request's first byte
HEADER_SECONDS = 10.0
STOP_SECONDS = 2.0  # seconds that running requests have to finish when the server stops


def server_config(app: ASGIApp) -> Config:
    """Return the settings with which uvicorn runs an application."""
    return Config(
        app,
        http=BoundedConnection,
        # must be later than `shutdown`, which closes the connections after STOP_SECONDS
        timeout_graceful_shutdown=int(STOP_SECONDS) + 1,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
    )


class BoundedConnection(H11Protocol):
    """Connection of a client, with limits on the number of connections, on the time for headers, and on the time to stop.

    At most MAX_CONNECTIONS are open. A further one replaces the connection that has waited longest for a request. So a program
    without the token cannot keep the page out by opening idle connections.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.waiting_since = 0.0
        self._header_timer: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Return whether the connection has no running request: none has arrived completely, or the last one was answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        self._limit_header_time()
        self._make_room()

    def _make_room(self) -> None:
        """Close one connection if there are too many: the one that has waited longest for a request.

        If none waits, this connection is closed.
        """
        # connections that are just being closed are still in the set, and must not be chosen again
        present = [one for one in self.connections if isinstance(one, BoundedConnection) and not one.transport.is_closing()]
        if len(present) > MAX_CONNECTIONS:
            idle = [one for one in present if one.is_waiting and one is not self]
            min(idle, key=lambda one: one.waiting_since, default=self).transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.is_waiting:
            self._limit_header_time()
        else:
            self._stop_header_timer()

    def on_response_complete(self) -> None:
        self.waiting_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_header_timer()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close the connection as soon as its request is answered; after STOP_SECONDS, close it in any case."""
        super().shutdown()
        if not self.is_waiting:
            self.loop.call_later(STOP_SECONDS, self.transport.abort)

    def _limit_header_time(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self._give_up_headers)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _give_up_headers(self) -> None:
        self._header_timer = None
        if self.is_waiting:
            self.transport.abort()
