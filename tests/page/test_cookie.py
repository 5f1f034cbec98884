"""The login cookie in a browser: no other server on this machine gets it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def other() -> Iterator[tuple[str, list[str]]]:
    """Yield the address of another server on this machine, and the Cookie headers that it gets."""
    cookies: list[str] = []

    class Recorder(BaseHTTPRequestHandler):
        """Records the cookies of every request."""

        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Set-Cookie", "own=1")
            self.end_headers()

        def log_message(self, format: str, *values: object) -> None:
            """Write nothing to the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Recorder) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", cookies
        server.shutdown()
        thread.join()


def test_the_cookie_does_not_reach_another_server_on_this_machine(
    opened: Callable[..., Page], other: tuple[str, list[str]]
) -> None:
    address, cookies = other
    page = opened()
    tab = page.context.new_page()
    for path in ("/", "/api/run", "/img/0/thumb", "/s-x/api/run"):
        tab.goto(address + path)
    assert any("own=1" in cookie for cookie in cookies)
    assert not any("samekind" in cookie for cookie in cookies)
    assert any(one["name"].startswith("samekind") for one in page.context.cookies())


def test_the_page_stays_logged_in_after_a_reload_and_loads_its_images(opened: Callable[..., Page]) -> None:
    page = opened()
    page.reload()
    page.wait_for_function("() => [...document.querySelectorAll('.tile img')].some((image) => image.naturalWidth > 0)")
    assert "/s-" not in page.url
