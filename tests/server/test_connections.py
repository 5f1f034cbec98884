"""Limits of connections: half-sent requests, their number, and the end of the server while they are open."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from samekind.server import connections
from samekind.server.connections import server_config
from samekind.server.serve import open_socket

Connect = Callable[[bytes], socket.socket]
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HALF_BODY = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"


async def read_all(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond as soon as the whole body is there."""
    while (message := await receive())["type"] == "http.request" and message["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Serve with short limits, and stop at the end; yield a function that connects, sends bytes and returns the socket."""
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.5)
    monkeypatch.setattr(connections, "STOP_SECONDS", 0.2)
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 8)
    server, listening = uvicorn.Server(server_config(read_all)), open_socket("127.0.0.1", 0)
    address = listening.getsockname()
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    with ExitStack() as opened:

        def connect(sent: bytes) -> socket.socket:
            client = opened.enter_context(socket.create_connection(address, timeout=60))
            client.sendall(sent)
            return client

        yield connect
        server.should_exit = True
        thread.join(60)
    assert not thread.is_alive()


def is_closed(client: socket.socket) -> bool:
    """Wait until the server closes the connection."""
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def responds(client: socket.socket) -> bool:
    return client.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize("half", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_headers_that_do_not_arrive_end_the_connection(connect: Connect, half: bytes) -> None:
    assert is_closed(connect(half))
    assert responds(connect(REQUEST))


def test_half_a_second_request_ends_a_connection_that_had_a_response(connect: Connect) -> None:
    client = connect(REQUEST)
    assert responds(client)
    client.sendall(b"GET / HT")
    while client.recv(1000):
        pass


def test_a_body_may_take_longer_than_the_headers(connect: Connect) -> None:
    client = connect(HALF_BODY)
    assert is_closed(connect(b""))
    client.sendall(b"defghi")
    assert responds(client)


def test_the_server_stops_while_requests_are_half_sent(connect: Connect) -> None:
    for sent in (b"", b"GET / HT", HALF_BODY, REQUEST):
        connect(sent)
    assert responds(connect(REQUEST))  # the fixture asserts that the server ends


def test_idle_connections_make_room_for_new_ones(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 600.0)
    idle = [connect(b"") for _ in range(80)]  # the server accepts many at once
    assert responds(connect(REQUEST))
    assert all(is_closed(client) for client in idle[:70])


def test_connections_with_a_request_in_progress_keep_their_place(connect: Connect) -> None:
    busy = [connect(HALF_BODY) for _ in range(8)]
    busy[-1].sendall(b"defghi")
    assert responds(busy[-1])
    assert responds(connect(REQUEST))
    for client in busy[:-1]:
        client.sendall(b"defghi")
    assert all(responds(client) for client in busy[:-1])
