"""Start of the server. By default only this machine can reach it, and only the terminal shows the link."""

from __future__ import annotations

import logging
import socket
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from samekind.errors import SettingError
from samekind.files.io import write_output
from samekind.server.stop_signals import StopSignals

LogFunction = Callable[[str], None]


@dataclass(frozen=True)
class ServeConfig:
    """Which run to serve, and how the server can be reached."""

    run: Path
    host: str = "127.0.0.1"
    port: int = 0  # 0: any free port
    allow_hosts: tuple[str, ...] = ()
    read_only: bool = False
    browser: bool = True
    token_file: Path | None = None


def serve(config: ServeConfig, log: LogFunction, print_link: LogFunction) -> None:
    """Serve a run until the process is stopped. `print_link` gets the link with the token, and `log` all other messages."""
    with StopSignals() as signals:
        _serve(config, log, print_link, signals)


def _serve(config: ServeConfig, log: LogFunction, print_link: LogFunction, signals: StopSignals) -> None:
    try:
        import uvicorn

        from samekind.server.app import create_app
        from samekind.server.connections import server_config
    except ImportError as error:
        raise SettingError(
            f"the page needs starlette, uvicorn and pydantic ({error.name} is missing). Install samekind[web]."
        ) from error
    from samekind.server.app_state import AppState
    from samekind.server.security import LOOPBACK, Credentials, allowed_hosts
    from samekind.server.session import Session

    is_local = config.host in LOOPBACK | {"::1"}
    if not is_local and not config.allow_hosts:
        raise SettingError(
            f"--host {config.host} opens the page to other machines. Give the host name they will use with --allow-host NAME."
        )
    listening = open_socket(config.host, config.port)
    state = None
    session = Session(config.run, read_only=config.read_only, preload=True, log=log)
    try:
        port = listening.getsockname()[1]
        credentials = Credentials(port, allowed_hosts(config.allow_hosts))
        state = AppState(session, credentials)
        link = f"http://{'127.0.0.1' if is_local else config.allow_hosts[0]}:{port}/"
        if config.token_file is not None:
            write_output(config.token_file, credentials.token.encode(), SettingError, mode=0o600)
        if not is_local:
            log(f"Other machines can reach this page at {config.host}, unencrypted. Everybody with the link can label.")
        print_link(f"{link}#token={credentials.token}")
        if config.browser:
            threading.Timer(0.5, webbrowser.open, (f"{link}#token={credentials.one_time_token()}",)).start()
        logging.basicConfig(level=logging.WARNING)
        signals.server = server = uvicorn.Server(server_config(create_app(state)))
        server.run(sockets=[listening])
    finally:
        signals.ignore()
        if state is not None:
            state.close()
        else:
            session.close()
        listening.close()


def open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on this host and port; raise SettingError if that is not possible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if IPPROTO_TCP is given; without TCP_NODELAY, each response ends 40 ms later
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host.strip("[]"), port))
        listening.listen()  # listens already now, so that the link works as soon as it is printed
    except (OSError, UnicodeError) as error:  # UnicodeError is raised for a name that no host can have
        listening.close()
        reason = getattr(error, "strerror", None) or "no such host"
        raise SettingError(f"port {port} of {host[:100]} cannot be used ({reason}). Choose another with --port.") from error
    return listening
