"""The socket that the server listens on."""

from __future__ import annotations

import asyncio
import socket

from samekind.server.serve import open_socket


def test_the_socket_sends_without_delay() -> None:
    at_once = []

    async def response(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at_once.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async def info() -> None:
        listening = open_socket("127.0.0.1", 0)
        async with await asyncio.start_server(response, sock=listening):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            await reader.read()
            writer.close()

    asyncio.run(info())
    assert at_once == [1]
