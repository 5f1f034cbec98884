"""Browser fixtures of the page tests. Without a browser the tests are skipped, unless SAMEKIND_BROWSER_REQUIRED is set."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.page.served import fitted, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def missing(what: str) -> None:
    if os.environ.get("SAMEKIND_BROWSER_REQUIRED"):
        pytest.fail(f"{what}, and SAMEKIND_BROWSER_REQUIRED is set")
    pytest.skip(what)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        missing("there is no Chromium on this machine")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="session")
def images(run: Path) -> Path:
    return run.parent / "photos"


@pytest.fixture(scope="module")
def link(browser: Browser, run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a copy of the run, so that one module does not see the changes of another; yield the link."""
    own = tmp_path_factory.mktemp("served") / "run"
    shutil.copytree(run, own)
    with serving(own) as address:
        yield address


class PageMonitor:
    """Records what a page must never do: errors, dialogs, and requests to other addresses."""

    def __init__(self, page: Page, origin: str) -> None:
        self.faults: list[str] = []
        self.origin = origin
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("dialog", self._on_dialog)
        page.on("console", self._on_console)
        page.on("request", lambda request: self._on_request(request.url))

    def _on_dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_console(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(message.text)

    def _on_request(self, address: str) -> None:
        if not address.startswith(self.origin):
            self.faults.append(f"foreign address: {address}")


@pytest.fixture
def opened(browser: Browser, link: str) -> Iterator[Callable[..., Page]]:
    """Yield a function that opens the page; at the end assert that no page had an error or a request to another address."""
    seen: list[tuple[Page, PageMonitor]] = []

    def open_page(width: int = 1280, *, address: str = link, until: str = ".tile .chip:not([hidden])", **how: Any) -> Page:
        page = browser.new_context(viewport={"width": width, "height": 800}, accept_downloads=True, **how).new_page()
        page.set_default_timeout(60_000)  # a busy machine; nothing waits longer than it must
        seen.append((page, PageMonitor(page, address.split("#")[0])))
        page.goto(address)
        page.wait_for_selector(until)
        return page

    yield open_page
    for page, watch in seen:
        page.context.close()
        assert watch.faults == []
