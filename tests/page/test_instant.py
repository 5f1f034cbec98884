"""Predictions that follow every label on the page: the order stays, the tiles change, and the panel shows the quality."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from tests.page.served import saved, serious_faults, serving

from samekind.project.fit import FitConfig, fit
from samekind.server.jobs.background import analyze
from samekind.server.session import Session

if TYPE_CHECKING:
    from playwright.sync_api import Page

N = 60


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Return a run on 60 points of three clusters, where the third cluster is labelled like the second."""
    folder = tmp_path_factory.mktemp("points")
    X, y = make_blobs(N, centers=[[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], cluster_std=0.6, random_state=0)
    names = np.array(["ant", "bee", "crab"], dtype=object)
    shown = np.full(N, "", dtype=object)
    for c in (0, 1):
        shown[np.flatnonzero(y == c)[:4]] = names[c]
    shown[np.flatnonzero(y == 2)[0]] = "crab"
    np.savez(folder / "points.npz", X=X, y=shown.astype(str))
    fit(FitConfig(str(folder / "points.npz")), folder / "run")
    Session(folder / "run").close()
    analyze(folder / "run" / "serve" / "model-1")
    return folder / "run", y


@pytest.fixture
def served(points: tuple[Path, Any], tmp_path: Path) -> Iterator[str]:
    shutil.copytree(points[0], tmp_path / "run")
    with serving(tmp_path / "run") as address:
        yield address


def order_of(page: Page) -> list[int]:
    return list(page.evaluate("() => [...samekind.state.order]"))


def up_to_date(page: Page) -> None:
    page.wait_for_function(
        "() => samekind.state.run.model.stale_by === 0 && samekind.state.run.model.revision > 0 "
        "&& samekind.state.run.instant.state === 'idle'"
    )


def confidences(page: Page) -> list[float]:
    return list(page.evaluate("() => [...samekind.state.order].map((id) => samekind.state.items.get(id)?.conf)"))


def test_labels_change_the_predictions_shown_and_keep_the_order_until_the_person_asks(
    opened: Callable[..., Page], served: str, tmp_path: Path
) -> None:
    page = opened(address=served)
    order, before = order_of(page), confidences(page)
    assert page.locator("#offers").get_by_text("New order ready").count() == 0
    page.locator("#grid").focus()
    page.keyboard.press("2")
    page.keyboard.press("1")
    saved(page)
    up_to_date(page)
    page.wait_for_selector("text=predictions up to date")
    page.wait_for_function(
        "old => [...samekind.state.order].some((id, i) => old[i] != null && samekind.state.items.get(id)?.conf !== old[i])",
        arg=before,
    )
    page.wait_for_function(  # the inspector follows too
        "() => document.querySelector('#inspector').textContent.includes("
        "`margin ${samekind.state.items.get(samekind.state.order[samekind.state.focus]).margin.toFixed(2)}`)"
    )
    assert order_of(page) == order
    assert page.evaluate("() => samekind.state.run.model.version") == 1
    page.screenshot(path=str(tmp_path / "instant.png"))
    page.locator("#offers").get_by_text("New order ready").click()
    page.wait_for_function("() => samekind.state.orderRevision === samekind.state.run.model.revision")
    assert order_of(page) != order


def test_the_panel_shows_accuracy_interval_and_the_class_with_one_label(opened: Callable[..., Page], served: str) -> None:
    page = opened(address=served)
    quality = page.locator("#quality")
    assert "95 % interval" in quality.inner_text() and "calibrated" in quality.inner_text()
    assert "audit" in quality.inner_text()
    assert "One label only: crab" in quality.get_by_role("list", name="Advice").inner_text()
    assert serious_faults(page) == []


def test_the_switch_stops_the_updates(opened: Callable[..., Page], served: str) -> None:
    page = opened(address=served)
    switch = page.get_by_label("Update predictions after every label")
    assert switch.is_checked()
    switch.uncheck()
    page.wait_for_function("() => samekind.state.run.instant.state === 'off'")
    page.locator("#grid").focus()
    page.keyboard.press("1")
    saved(page)
    page.wait_for_selector("text=1 label newer than the model")
    switch.check()
    up_to_date(page)


def test_a_model_that_cannot_be_updated_has_no_switch(opened: Callable[..., Page]) -> None:
    page = opened()
    assert page.get_by_label("Update predictions after every label").count() == 0
