"""The page on texts in a browser: a tile is a card with the beginning of a text; texts are labelled, searched and compared."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.page.served import saved, serious_faults, serving, wait_for_message
from tests.preprocessing.test_text_input import sentences

from samekind.project.fit import FitConfig, fit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Open = Callable[..., Any]
HOSTILE = "<img src=x onerror=alert(1)> We sell pears <b>cheap</b>."
LONG = "We sell iron and tin at the market. " * 200
CARD = ".tile .excerpt:not([hidden])"


@pytest.fixture(scope="module")
def texts(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a run fitted on the column "body" of a table; yield the link."""
    folder = tmp_path_factory.mktemp("texts")
    body, topics, _ = sentences(30)
    with (folder / "offers.csv").open("w", newline="", encoding="utf-8") as file:
        rows = zip([*body, HOSTILE, LONG, ""], [*topics, None, None, None], strict=True)
        csv.writer(file).writerows([("body", "topic"), *rows])
    fit(FitConfig(str(folder / "offers.csv"), text="body", label_column="topic", encoder="tfidf"), folder / "run")
    with serving(folder / "run") as link:
        yield link


@pytest.mark.parametrize("width", [1280, 400])
def test_a_card_shows_the_beginning_of_a_text_without_markup(opened: Open, texts: str, width: int) -> None:
    page = opened(width, address=f"{texts}&sort=path", until=CARD)
    page.wait_for_function("() => samekind.state.items.has(samekind.state.order[0])")
    assert page.locator("#tile-0 .excerpt").inner_text() == sentences(30)[0][0]
    assert sentences(30)[0][0] in (page.locator("#tile-0").get_attribute("aria-label") or "")
    assert page.locator(".tile.failed, .tile.broken").count() == 0 and page.locator(".tile img[src]").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width and serious_faults(page) == []
    assert page.evaluate("document.body.innerText").count("image") == 0


def test_texts_are_found_by_their_words(opened: Open, texts: str) -> None:
    page = opened(address=texts, until=CARD)
    page.locator("#search").fill("SELL pears")
    page.wait_for_function("() => samekind.state.order.length === 1")
    page.wait_for_function("() => document.querySelector('#tile-0 .excerpt').textContent === 'We sell pears cheap .'")
    page.locator("#whole").get_by_text(HOSTILE).wait_for()  # the whole text stays as it is, and runs no code


def test_a_long_text_is_cut_on_its_card_and_whole_when_opened(opened: Open, texts: str) -> None:
    page = opened(address=f"{texts}&q={LONG[:35]} {LONG[:4]}".replace(" ", "%20"), until=CARD)
    page.wait_for_function("() => samekind.state.order.length === 1")
    assert page.locator("#tile-0 .excerpt").inner_text().endswith("…")
    page.wait_for_function("n => document.querySelector('#whole')?.textContent.length === n", arg=len(LONG))
    page.locator("#grid").press("f")
    page.wait_for_function("n => document.querySelector('#full .whole').textContent.length === n", arg=len(LONG))
    assert page.locator("#full img").is_hidden()
    page.keyboard.press("f")
    page.wait_for_selector("#full", state="detached")


def test_words_that_matter_are_marked_and_plain_again(opened: Open, texts: str) -> None:
    page = opened(address=f"{texts}&sort=path&status=unlabelled", until=CARD)
    page.locator("#ask-words").wait_for()
    page.locator("#grid").press("w")
    page.locator("#whole mark").first.wait_for()
    assert "instead of" in (page.locator("#whole mark").first.get_attribute("title") or "")
    assert page.locator("#whole").inner_text() == sentences(30)[0][8] and serious_faults(page) == []
    page.keyboard.press("w")
    page.locator("#whole mark").first.wait_for(state="detached")


def test_texts_are_labelled_by_keys_and_similar_ones_are_shown(opened: Open, texts: str) -> None:
    page = opened(address=f"{texts}&sort=path&status=unlabelled", until=CARD)
    page.locator("#similar .mini .excerpt").first.wait_for()
    page.locator("#grid").press("1")
    wait_for_message(page, "1 text → fruit")
    saved(page)
    page.keyboard.press("s")
    wait_for_message(page, "most similar texts")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+z")
    wait_for_message(page, "ndone")
    saved(page)
