"""A browser for the tests of the page. Without one they are skipped, unless SAMEKIND_BROWSER_REQUIRED is set, as in CI."""

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
def photos(run: Path) -> Path:
    return run.parent / "photos"


@pytest.fixture(scope="module")
def link(browser: Browser, run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on a copy of the run, so that one module does not see what another did."""
    own = tmp_path_factory.mktemp("served") / "run"
    shutil.copytree(run, own)
    with serving(own) as address:
        yield address


class Watch:
    """What a page must never do, noted as it happens."""

    def __init__(self, page: Page, origin: str) -> None:
        self.faults: list[str] = []
        self.origin = origin
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("dialog", self._asked)
        page.on("console", self._heard)
        page.on("request", lambda request: self._called(request.url))

    def _asked(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _heard(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(message.text)

    def _called(self, address: str) -> None:
        if not address.startswith(self.origin):
            self.faults.append(f"foreign address: {address}")


@pytest.fixture
def opened(browser: Browser, link: str) -> Iterator[Callable[..., Page]]:
    """Opens the page at a width; at the end no error, no refused script and no foreign address may have been seen."""
    seen: list[tuple[Page, Watch]] = []

    def open_page(width: int = 1280, *, address: str = link, until: str = ".tile .chip:not([hidden])", **how: Any) -> Page:
        page = browser.new_context(viewport={"width": width, "height": 800}, accept_downloads=True, **how).new_page()
        page.set_default_timeout(60_000)  # a busy machine; nothing waits longer than it must
        seen.append((page, Watch(page, address.split("#")[0])))
        page.goto(address)
        page.wait_for_selector(until)
        return page

    yield open_page
    for page, watch in seen:
        page.context.close()
        assert watch.faults == []
