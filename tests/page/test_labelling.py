"""The page in a browser, on a small run: labels, search, refit, import, export, audit and map."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.page.served import HOSTILE, saved, serving, wait_for_message

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., Any]


def shown(page: Page, n: int) -> None:
    page.wait_for_function("n => samekind.state.order.length === n", arg=n)


def keep(page: Page, status: str) -> None:
    page.locator(f"[name=status][value={status}]").check()


def refreshed(page: Page) -> None:
    """Wait until all changes are saved and the page has read the run again."""
    page.wait_for_function("() => samekind.state.pending === 0 && samekind.state.run.last_seq === samekind.state.seq")


def go_to_unlabelled(page: Page) -> None:
    """Move to the next unlabelled item with `u`; repeat it if the page stopped at a labelled item that was not loaded yet."""
    item = "samekind.state.items.get(samekind.state.order[samekind.state.focus])"
    for _ in range(60):
        page.keyboard.press("u")
        page.wait_for_function(f"() => {item}")
        if page.evaluate(f"() => {item}.status") == "unlabelled":
            return
    raise AssertionError("no unlabelled item was found")


def labelled(page: Page) -> int:
    """Return the number of labelled items, as the server counts them."""
    run: dict[str, int] = page.evaluate("() => import('/static/api.js').then(({ api }) => api.run())")
    return run["n_labelled"]


def test_label_undo_search_refit_and_export(opened: Open, tmp_path: Path) -> None:
    page = opened()
    keep(page, "unlabelled")
    shown(page, 48)
    for _ in range(3):
        page.locator("#grid").press("Space")
        page.keyboard.press("ArrowRight")
    page.keyboard.press("2")
    wait_for_message(page, "3 images → across")
    saved(page)
    assert labelled(page) == 15
    assert page.locator(".tile.done").count() == 3  # they stay where they are

    page.keyboard.press("Control+z")
    wait_for_message(page, "3 images undone")
    assert labelled(page) == 12
    page.keyboard.press("Control+Shift+z")
    wait_for_message(page, "3 images redone")
    assert labelled(page) == 15

    page.locator("#min-sim-number").fill("0.1")  # after so short a fit all similarities are below 0.5
    page.wait_for_selector("#similar .mini img")
    page.locator("#grid").press("s")
    wait_for_message(page, "most similar")
    page.keyboard.press("Escape")
    shown(page, 45)

    page.keyboard.press("r")
    page.wait_for_selector("#fit progress")
    page.wait_for_function("() => ['done', 'failed'].includes(samekind.state.job.state)", timeout=120_000)
    wait_for_message(page, "Model 2 is ready")
    page.get_by_text("New order ready").click()
    shown(page, 45)

    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_text("Save the file").click()
    download.value.save_as(tmp_path / "labels.csv")
    with (tmp_path / "labels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60 and sum(row["status"] == "labelled" for row in rows) == 15

    page.reload()
    shown(page, 45)
    assert page.locator("[name=status][value=unlabelled]").is_checked()
    assert page.get_by_text("model 2", exact=True).is_visible()
    assert labelled(page) == 15


def test_ten_labels_undo_refit_and_export_without_a_mouse(opened: Open) -> None:
    page = opened()
    before = labelled(page)
    keys = page.keyboard
    for _ in range(10):
        go_to_unlabelled(page)
        keys.press("1")
    saved(page)
    assert labelled(page) == before + 10
    for _ in range(10):
        keys.press("Control+z")
    saved(page)
    assert labelled(page) == before
    keys.press("l")
    keys.type("brand new")
    keys.press("Enter")
    wait_for_message(page, "1 image → brand new")
    keys.press("Control+z")
    refreshed(page)  # a redrawn top bar would lose the focus
    keys.press("?")
    page.wait_for_selector("dialog[open] .keylist")
    keys.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    keys.press("f")
    page.wait_for_selector("#full[open]")
    keys.press("f")
    page.wait_for_selector("#full", state="detached")
    for _ in range(40):  # backwards by Tab to the export of the top line
        if page.evaluate("document.activeElement.textContent") == "Export":
            break
        keys.press("Shift+Tab")
    keys.press("Enter")
    page.wait_for_selector("dialog[open]")
    for _ in range(10):
        if page.evaluate("document.activeElement.textContent") == "Save the file":
            break
        keys.press("Tab")
    with page.expect_download():
        keys.press("Enter")


def test_what_is_typed_into_the_filter_labels_nothing(opened: Open) -> None:
    page = opened()
    before = labelled(page)
    page.keyboard.press("/")
    page.keyboard.type("1")
    page.wait_for_function("() => location.hash.includes('q=1')")
    saved(page)
    assert labelled(page) == before and page.locator("#search").input_value() == "1"
    page.keyboard.press("Enter")  # only moves the focus to the grid
    assert labelled(page) == before


def test_names_of_files_and_classes_are_only_ever_text(opened: Open) -> None:
    page = opened()
    page.keyboard.press("/")
    page.keyboard.type("onerror")
    shown(page, 1)
    page.keyboard.press("Enter")
    page.locator("#inspector .path", has_text=HOSTILE).wait_for()
    assert page.locator(".class-row", has_text=HOSTILE).count() == 1
    page.keyboard.press("1")
    wait_for_message(page, HOSTILE)
    page.keyboard.press("Control+z")
    for key in ("l", "?"):
        page.keyboard.press(key)
        page.wait_for_selector("dialog[open]")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
    assert page.locator("img[src=x]").count() == 0


def test_the_address_brings_back_filter_order_and_focus(opened: Open) -> None:
    page = opened()
    page.locator("#sort").select_option("path")
    keep(page, "labelled")
    page.wait_for_function("() => location.hash.includes('status=labelled')")
    page.locator("#grid").press("ArrowRight")
    page.locator("#grid").press("ArrowRight")
    page.wait_for_function("() => location.hash.includes(`focus=${samekind.state.order[2]}`)")
    page.reload()
    page.wait_for_function("() => samekind.state.focus === 2")
    assert page.locator("#sort").input_value() == "path"
    page.go_back()
    page.wait_for_function("() => samekind.state.order.length === 60")


def test_a_label_is_shown_before_the_server_responds_and_reverted_if_it_refuses(opened: Open) -> None:
    page = opened()
    held_requests: list[Any] = []
    page.route("**/api/labels", lambda route: held_requests.append(route))
    page.keyboard.press("u")
    tile = page.locator(".tile.focused")
    place = f"#{tile.get_attribute('id')}"
    assert page.locator(f"{place} .chip.given").count() == 0
    page.keyboard.press("1")
    page.wait_for_selector(f"{place}.saving .chip.given")
    held_requests[0].fulfill(status=507, content_type="application/problem+json", body='{"detail": "The disk is full."}')
    wait_for_message(page, "Not saved, the old labels are back: The disk is full.")
    page.wait_for_selector(f"{place}:not(.saving) .chip:not(.given)")


def test_labels_wait_while_the_server_is_away(opened: Open) -> None:
    page = opened()
    page.keyboard.press("u")
    before = labelled(page)
    page.context.set_offline(True)
    page.keyboard.press("1")
    page.wait_for_selector("#banner:not([hidden])")
    assert "1 change will be saved" in page.locator("#banner").inner_text()
    page.context.set_offline(False)
    page.wait_for_selector("#banner", state="hidden")
    saved(page)
    assert labelled(page) == before + 1
    page.keyboard.press("Control+z")
    saved(page)


def test_a_second_tab_sees_the_labels_of_the_first(opened: Open) -> None:
    page = opened()
    other = page.context.new_page()
    other.goto(page.url)
    other.wait_for_selector(".tile .chip:not([hidden])")
    page.keyboard.press("x")
    saved(page)
    other.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # as when the user returns to a tab
    wait_for_message(other, "1 label changed elsewhere")
    page.keyboard.press("Control+z")
    saved(page)


def test_a_tab_that_has_not_seen_a_label_does_not_overwrite_it(opened: Open) -> None:
    page = opened()
    other = page.context.new_page()
    other.route("**/api/job", lambda route: None)  # never answered, so this tab polls no events
    other.goto(page.url)
    other.wait_for_selector(".tile .chip:not([hidden])")
    page.keyboard.press("2")
    saved(page)
    other.keyboard.press("3")
    wait_for_message(other, "1 image changed in another tab meanwhile and skipped")
    assert other.locator("#tile-0").get_attribute("aria-label").endswith("labelled across")
    page.keyboard.press("Control+z")
    saved(page)


def test_a_label_given_while_the_server_was_down_is_saved_by_the_next_one(opened: Open, run: Path, tmp_path: Path) -> None:
    own = shutil.copytree(run, tmp_path / "run")
    with serving(own) as address:
        page = opened(390, address=address)
        page.keyboard.press("u")
    page.keyboard.press("2")
    page.wait_for_selector("#banner:not([hidden])")
    port = address.split(":")[2].split("/")[0]
    with serving(own, "--port", port) as address:
        page.get_by_label("Link or token").fill(address)  # the new server has another token
        page.keyboard.press("Enter")
        saved(page)
        assert labelled(page) == 13


def test_a_hundred_thousand_images_put_few_tiles_into_the_document(opened: Open) -> None:
    page = opened()
    page.set_viewport_size({"width": 2500, "height": 1400})
    page.evaluate("""() => {
        const { state, emit } = samekind;
        state.order = Uint32Array.from({ length: 100000 }, (_, i) => i % state.run.n_total);
        state.preferences.size = 64;
        ['order', 'preferences'].forEach(emit);
    }""")
    most = page.evaluate("""async () => {
        const grid = document.querySelector('#grid');
        let most = 0;
        for (let i = 0; i <= 6; i++) {
            grid.scrollTop = (grid.scrollHeight * i) / 6;
            await new Promise(requestAnimationFrame);
            await new Promise(requestAnimationFrame);
            most = Math.max(most, document.querySelectorAll('.tile').length);
        }
        return most;
    }""")
    assert 50 < most <= 300
    page.locator("#grid").press("End")
    page.wait_for_selector("#tile-99999.focused .chip:not([hidden])")


def test_all_similar_images_get_one_label_and_one_undo(opened: Open) -> None:
    page = opened()
    before = labelled(page)
    page.locator("#min-sim-number").fill("0")
    page.locator("#min-sim-number").press("Tab")
    page.wait_for_function("() => document.querySelectorAll('#similar .mini').length > 5")
    page.get_by_role("button", name="label all shown as …").click()
    page.keyboard.type("down")
    page.keyboard.press("Enter")
    wait_for_message(page, "images → down")
    saved(page)
    assert labelled(page) > before + 5
    page.locator("#grid").press("Control+z")
    wait_for_message(page, "undone")
    assert labelled(page) == before


def test_redrawing_does_not_interrupt_typing_a_number(opened: Open) -> None:
    page = opened()
    number = page.locator("#min-sim-number")
    number.focus()
    number.select_text()
    page.evaluate("() => ['items', 'detail', 'run'].forEach(samekind.emit)")
    page.wait_for_timeout(400)  # longer than the page waits before it loads and draws
    page.keyboard.type("0.25")
    assert number.input_value() == "0.25"
    page.wait_for_function("() => samekind.state.minSimilarity === 0.25")


def test_an_import_reports_what_it_would_change_first(opened: Open, tmp_path: Path) -> None:
    page = opened()
    before = labelled(page)
    page.locator("#sort").select_option("path")
    keep(page, "unlabelled")
    page.wait_for_function("() => location.hash.includes('unlabelled')")
    last = "import('/static/api.js').then(({ api }) => api.item(samekind.state.order.at(-1)))"
    free = page.evaluate(f"() => {last}.then(item => item.path)")
    (tmp_path / "more.csv").write_text(f"path,label\n{free},sideways\nroll2/nowhere.png,down\n")
    page.get_by_role("button", name="Import").click()
    page.locator("dialog input[type=file]").set_input_files(tmp_path / "more.csv")
    report = page.locator("dialog [aria-live]")
    report.get_by_text("1 label would change").wait_for()
    assert "match no image: 1" in report.inner_text() and "new classes: sideways" in report.inner_text()
    assert labelled(page) == before
    report.get_by_role("button", name="Import").click()
    wait_for_message(page, "1 label imported")
    assert labelled(page) == before + 1
    page.locator("#grid").press("Control+z")
    wait_for_message(page, "undone")


def test_an_image_that_is_gone_becomes_a_tile_with_the_reason(opened: Open, link: str, images: Path) -> None:
    (images / "roll2" / "59.png").rename(images / "roll2" / "59.away")
    try:
        page = opened(address=link.replace("#", "#q=59&"))
        page.wait_for_selector(".tile.failed, .tile.broken")
    finally:
        (images / "roll2" / "59.away").rename(images / "roll2" / "59.png")


def test_an_audit_is_blind_and_gives_an_accuracy(opened: Open) -> None:
    page = opened()
    page.get_by_role("button", name="Start an audit").click()
    page.get_by_role("button", name="Begin").click()
    page.wait_for_function("() => location.hash.includes('sort=audit')")
    page.wait_for_function("() => samekind.state.items.has(samekind.state.order[0])")
    assert page.locator(".tile .chip:not([hidden])").count() == 0
    for _ in range(4):
        page.locator("#grid").press("1")
    saved(page)
    page.get_by_text("From 4 random images labelled blind.").wait_for()
    assert page.locator("#audit .score").is_visible()


def test_the_map_selects_for_the_same_keys(opened: Open) -> None:
    page = opened()
    page.keyboard.press("m")
    canvas = page.locator("#map canvas")
    canvas.focus()
    page.wait_for_function("() => document.querySelector('#map canvas').width > 300")
    page.wait_for_timeout(600)
    page.locator("#brush").fill("300")
    page.locator("#brush").press("Tab")
    canvas.focus()
    page.keyboard.press("Space")
    page.wait_for_function("() => samekind.state.selection.size > 0")
    n = page.evaluate("samekind.state.selection.size")
    page.keyboard.press("2")
    wait_for_message(page, f"{n} image")
    page.keyboard.press("Control+z")
    wait_for_message(page, "undone")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_has_no_serious_accessibility_fault(opened: Open, width: int, scheme: str) -> None:
    from axe_playwright_python.base import AXE_FILE_PATH

    page = opened(width, color_scheme=scheme)
    page.keyboard.press("Space")
    page.wait_for_selector("#inspector .bars", state="attached")
    page.evaluate(Path(AXE_FILE_PATH).read_text(encoding="utf-8"))
    faults = []
    for state in ("grid", "help", "map"):
        if state == "help":
            page.locator("#grid").press("?")
        if state == "map":
            page.keyboard.press("Escape")
            page.locator("#grid").press("m")
        found = page.evaluate("() => axe.run()")
        assert len(found["passes"]) > 20  # it did check the page
        serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        faults += [(state, one["id"], one["nodes"][0]["html"]) for one in serious]
    assert faults == []


def test_filter_select_and_label_work_at_390_pixels(opened: Open) -> None:
    page = opened(390, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Classes and filters").tap()
    keep(page, "unlabelled")
    page.keyboard.press("Escape")
    before = labelled(page)
    for tile in (0, 1):
        page.locator(f"#tile-{tile} .tick").tap()
    page.get_by_role("button", name="Label across").tap()
    wait_for_message(page, "2 images → across")
    saved(page)
    assert labelled(page) == before + 2
    page.get_by_role("button", name="Undo (Ctrl+Z)").tap()
    wait_for_message(page, "2 images undone")
    page.get_by_role("button", name="Details").tap()
    page.wait_for_selector("#inspector .bars")


def test_a_read_only_page_changes_nothing(opened: Open, run: Path, tmp_path: Path) -> None:
    with serving(shutil.copytree(run, tmp_path / "run"), "--read-only") as address:
        page = opened(390, address=address)
        page.keyboard.press("1")
        wait_for_message(page, "read-only")
        assert labelled(page) == 12 and page.get_by_role("button", name="Refit").is_disabled()
