"""Somebody has pictures and no label: from the folder to the first predictions, in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.page.served import picture, serving
from tests.page.test_labelling import said, saved

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Open = Callable[..., Any]
N = 24
LOOKED = ".tile img[src]"  # there is no chip to wait for


@pytest.fixture(scope="module")
def pile(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A link to the page of a folder of pictures of two kinds, and its run."""
    folder = tmp_path_factory.mktemp("pile")
    for k in range(N):
        path = folder / "photos" / f"{k:02d}.png"
        path.parent.mkdir(exist_ok=True)
        picture(1 + k % 2, k).save(path)
    with serving(folder / "photos", "--out", str(folder / "run")) as link:
        yield link, folder / "run"


def name_of_focus(page: Page) -> str:
    found = "() => samekind.state.items.get(samekind.state.order[samekind.state.focus])?.path"
    page.wait_for_function(found)
    return str(page.evaluate(found))


def name_on_a_narrow_page(page: Page, name: str) -> None:
    """Where the panel is a drawer, a line above the grid says what comes next."""
    page.locator(".step").get_by_role("button").click()
    page.locator("dialog input").fill(name)
    page.keyboard.press("Enter")
    said(page, f"New class {name}")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


def serious_faults(page: Page) -> list[str]:
    from axe_playwright_python.base import AXE_FILE_PATH

    page.evaluate(Path(AXE_FILE_PATH).read_text(encoding="utf-8"))
    found = page.evaluate("() => axe.run()")
    return [one["id"] + one["nodes"][0]["html"] for one in found["violations"] if one["impact"] in ("serious", "critical")]


def test_from_a_folder_to_the_first_predictions(opened: Open, pile: tuple[str, Path]) -> None:
    link, run = pile
    words = json.loads((run / "run.json").read_text())
    words["config"].update(epochs=6, method="supervised")  # in moments
    (run / "run.json").write_text(json.dumps(words))
    page = opened(address=link, until=LOOKED)
    assert page.locator("#sort").input_value() == "diverse" and page.locator("#model").inner_text() == "no model yet"
    assert page.locator(".tile:not([hidden]) .chip:not([hidden])").count() == 0 and page.locator("#confidence").is_hidden()
    assert "By the cosine" in page.locator("#inspector").inner_text()
    page.locator("#grid").press("Enter")
    said(page, "no prediction to accept")
    page.keyboard.press("r")
    said(page, "Name at least 2 classes")

    name_on_a_narrow_page(opened(390, address=link, until=LOOKED), "across")
    page.wait_for_selector(".class-row:has-text('across')")  # the other tab told it
    page.locator("#first-class").fill("down")
    page.keyboard.press("Enter")
    page.wait_for_selector(".class-row:has-text('down')")
    assert serious_faults(page) == []
    page.locator("#grid").focus()
    counts = {"across": 0, "down": 0}
    for _ in range(N):
        if min(counts.values()) >= 2:
            break
        kind = "down" if int(name_of_focus(page)[:2]) % 2 else "across"
        page.keyboard.press("2" if kind == "down" else "1")
        counts[kind] += 1
    saved(page)
    page.wait_for_selector("#fit .primary")
    page.keyboard.press("r")
    said(page, "Model 1 is ready")
    page.wait_for_selector(".tile .chip:not([hidden]):not(.given)")
    assert page.locator("#begin").is_hidden() and page.locator("#confidence").is_visible()
    page.set_viewport_size({"width": 390, "height": 820})  # words and an offer are not squeezed into one line
    words_at = page.locator("#message").bounding_box()
    assert words_at is not None and words_at["width"] > 220 and words_at["height"] < 80
    page.set_viewport_size({"width": 1280, "height": 820})
    page.get_by_text("New order ready").click()
    page.wait_for_function("() => samekind.state.orderVersion === 1")
    assert page.locator("#sort").input_value() == "margin" and page.locator(".tile .number").first.inner_text().endswith("%")
