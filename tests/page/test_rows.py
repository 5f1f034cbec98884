"""The page on tables and arrays in a browser: a tile is a card with the names and values of the columns, or a plot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.page.served import serious_faults, serving, wait_for_message
from typer.testing import CliRunner

from samekind.cli import app

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Open = Callable[..., Any]
N = 30
TABLE = "name,colour,length,width\n" + "".join(f"leaf {k},{'red' if k % 2 else 'green'},{k}.5,{10 * k}\n" for k in range(N))


@pytest.fixture(scope="module")
def table(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a table without labels; yield the link."""
    folder = tmp_path_factory.mktemp("table")
    (folder / "leaves.csv").write_text(TABLE)
    with serving(folder / "leaves.csv", "--out", str(folder / "run")) as link:
        yield link


def served_array(folder: Path, n_columns: int) -> Any:
    x = np.random.default_rng(0).normal(size=(N, n_columns))
    np.savez(folder / "data.npz", x=x)
    return serving(folder / "data.npz", "--out", str(folder / "run"))


@pytest.mark.parametrize("width", [1280, 400])
def test_a_tile_of_a_table_shows_the_names_and_values_of_its_columns(opened: Open, table: str, width: int) -> None:
    page = opened(width, address=f"{table}&sort=path", until=".tile .fields")
    page.wait_for_function("() => samekind.state.items.has(samekind.state.order[3])")
    card = page.locator("#tile-3")
    assert [line.inner_text().split() for line in card.locator(".fields li").all()] == [
        ["colour", "red"],
        ["length", "3.5"],
        ["width", "30"],
    ]
    assert page.locator(".tile.failed, .tile.broken").count() == 0 and page.get_by_text("cannot be read").count() == 0
    assert "colour red, length 3.5, width 30" in (card.get_attribute("aria-label") or "")
    assert page.evaluate("document.documentElement.scrollWidth") <= width and serious_faults(page) == []


def test_rows_are_labelled_by_keys_and_called_rows(opened: Open, table: str) -> None:
    page = opened(address=f"{table}&sort=path", until=".tile .fields")
    page.locator("#inspector").get_by_text("leaf 0").wait_for()
    page.locator("#values").get_by_text("length").wait_for()
    page.locator("#grid").press("l")
    page.keyboard.type("oak")
    page.keyboard.press("Enter")
    wait_for_message(page, "1 row → oak")
    page.locator(".tile.done .fields").first.wait_for()
    assert serious_faults(page) == []  # the values of a labelled row can be read, too
    assert page.evaluate("document.body.innerText").count("image") == 0


@pytest.mark.parametrize(("n_columns", "what"), [(5, ".fields li"), (40, "img[src]")])
def test_vectors_are_cards_of_numbered_columns_or_plots(opened: Open, tmp_path: Path, n_columns: int, what: str) -> None:
    with served_array(tmp_path, n_columns) as link:
        page = opened(address=link, until=f".tile {what}")
        page.wait_for_function("() => [...document.querySelectorAll('.tile img[src]')].every(i => i.naturalWidth)")
        assert page.locator(".tile.failed, .tile.broken").count() == 0
        page.wait_for_selector("#values li")
        assert page.locator("#values li").count() == n_columns


def test_the_panel_lists_what_became_of_each_column(opened: Open, tmp_path: Path) -> None:
    label = [("oak" if k % 2 else "elm") if k < 12 else "" for k in range(N)]
    rows = [f"{k},{'red' if k % 2 else 'green'},{'' if k % 5 == 0 else k},CH,{label[k]}" for k in range(N)]
    (tmp_path / "leaves.csv").write_text("id,colour,length,country,label\n" + "\n".join(rows))
    assert main_fit(tmp_path / "leaves.csv", tmp_path / "run") == 0
    with serving(tmp_path / "run") as link:
        page = opened(address=link, until="#columns details")
        page.locator("#columns summary").click()
        assert [line.inner_text().split(" ")[0] for line in page.locator("#columns li").all()] == [
            "colour",
            "length",
            "country",
        ]
        assert page.locator("#columns .unused").inner_text() == "country left out, because it is always 'CH'"


def main_fit(data: Path, out: Path) -> int:
    """Return the exit code of `samekind fit`."""
    return CliRunner().invoke(app, ["fit", str(data), "--out", str(out)]).exit_code
