"""Starts the server: on this machine only, unless told otherwise, and with a link that only the terminal shows."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from samekind.errors import SettingError
from samekind.io import atomic_write

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """How a run is served."""

    run: Path
    host: str = "127.0.0.1"
    port: int = 0  # 0: any that is free
    allow_hosts: tuple[str, ...] = ()
    read_only: bool = False
    browser: bool = True
    token_file: Path | None = None


def serve(wanted: Wanted, say: Say, tell: Say) -> None:
    """Serves until it is stopped. `tell` gets the link, `say` everything else."""
    try:
        import uvicorn

        from samekind.server.app import create_app
    except ImportError as error:
        raise SettingError(f"the page needs starlette and uvicorn ({error.name} is missing). Install samekind[web].") from error
    from samekind.server.app_state import AppState
    from samekind.server.security import LOOPBACK, Credentials, allowed_hosts
    from samekind.server.session import Session

    if wanted.host not in LOOPBACK | {"::1"} and not wanted.allow_hosts:
        raise SettingError(
            f"--host {wanted.host} opens the page to other machines. Name the host they will type with --allow-host NAME."
        )
    listening = _socket(wanted.host, wanted.port)
    state = None
    session = Session(wanted.run, read_only=wanted.read_only, say=say)
    try:
        port = listening.getsockname()[1]
        credentials = Credentials(port, allowed_hosts(wanted.allow_hosts))
        state = AppState(session, credentials, eager=True)
        name = wanted.allow_hosts[0] if wanted.host not in LOOPBACK | {"::1"} else "127.0.0.1"
        link = f"http://{name}:{port}/"
        if wanted.token_file is not None:
            atomic_write(wanted.token_file, credentials.token.encode(), SettingError, mode=0o600)
        if wanted.host not in LOOPBACK | {"::1"}:
            say(f"Other machines can reach this page at {wanted.host}, unencrypted. Whoever has the link can label.")
        tell(f"{link}#token={credentials.token}")
        if wanted.browser:
            _open_browser(f"{link}#token={credentials.one_time_token()}")
        logging.basicConfig(level=logging.WARNING)
        config = uvicorn.Config(
            create_app(state),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
        )
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        if state is not None:
            state.close()
        else:
            session.close()
        listening.close()


def _socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # with the protocol said, asyncio sends every answer at once: without, the end of each waits 40 ms for the other side
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host.strip("[]"), port))
        listening.listen()  # who follows the link at once must find somebody
    except OSError as error:
        listening.close()
        raise SettingError(f"port {port} of {host} cannot be used ({error.strerror}). Choose another with --port.") from error
    return listening


def _open_browser(link: str) -> None:
    import threading
    import webbrowser

    threading.Timer(0.5, webbrowser.open, (link,)).start()
