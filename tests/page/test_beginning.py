"""An unlabelled project in a browser: from a folder of images to the first predictions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.page.served import draw_image, saved, serious_faults, serving, wait_for_message

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Open = Callable[..., Any]
N = 24
LOADED = ".tile img[src]"  # without predictions there is no chip to wait for


@pytest.fixture(scope="module")
def project(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Serve a folder of images of two classes without labels; yield the link and the run."""
    folder = tmp_path_factory.mktemp("unlabelled")
    for k in range(N):
        path = folder / "photos" / f"{k:02d}.png"
        path.parent.mkdir(exist_ok=True)
        draw_image(1 + k % 2, k).save(path)
    with serving(folder / "photos", "--out", str(folder / "run")) as link:
        yield link, folder / "run"


def name_of_focus(page: Page) -> str:
    found = "() => samekind.state.items.get(samekind.state.order[samekind.state.focus])?.path"
    page.wait_for_function(found)
    return str(page.evaluate(found))


def name_on_a_narrow_page(page: Page, name: str) -> None:
    """Add a class on a narrow page, where a line above the grid replaces the panel."""
    page.locator(".step").get_by_role("button").click()
    page.locator("dialog input").fill(name)
    page.keyboard.press("Enter")
    wait_for_message(page, f"New class {name}")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


def test_from_a_folder_to_the_first_predictions(opened: Open, project: tuple[str, Path]) -> None:
    link, run = project
    manifest = json.loads((run / "run.json").read_text())
    manifest["config"].update(epochs=6, method="supervised")  # fast
    (run / "run.json").write_text(json.dumps(manifest))
    page = opened(address=link, until=LOADED)
    assert page.locator("#sort").input_value() == "diverse" and page.locator("#model").inner_text() == "no model yet"
    assert page.locator(".tile:not([hidden]) .chip:not([hidden])").count() == 0 and page.locator("#confidence").is_hidden()
    assert "By the cosine" in page.locator("#inspector").inner_text()
    page.locator("#grid").press("Enter")
    wait_for_message(page, "no prediction to accept")
    page.keyboard.press("r")
    wait_for_message(page, "Name at least 2 classes")

    name_on_a_narrow_page(opened(390, address=link, until=LOADED), "across")
    page.wait_for_selector(".class-row:has-text('across')")  # the other tab added it
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
    wait_for_message(page, "Model 1 is ready")
    page.wait_for_selector(".tile .chip:not([hidden]):not(.given)")
    assert page.locator("#begin").is_hidden() and page.locator("#confidence").is_visible()
    page.set_viewport_size({"width": 390, "height": 820})  # a message and an offer do not fit into one line
    message_box = page.locator("#message").bounding_box()
    assert message_box is not None and message_box["width"] > 220 and message_box["height"] < 80
    page.set_viewport_size({"width": 1280, "height": 820})
    page.get_by_text("New order ready").click()
    page.wait_for_function("() => samekind.state.orderVersion === 1")
    assert page.locator("#sort").input_value() == "margin" and page.locator(".tile .number").first.inner_text().endswith("%")
