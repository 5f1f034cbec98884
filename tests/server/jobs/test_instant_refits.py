"""Predictions that follow every label: the worker process, the switch, and what happens if it is killed."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from starlette.testclient import TestClient
from tests.server.conftest import PORT, signed_in, stranger

from samekind.project.fit import FitConfig, fit
from samekind.server.app_state import AppState
from samekind.server.jobs.background import analyze
from samekind.server.security import Credentials
from samekind.server.session import Session

CENTERS = [[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]]
N = 60


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Return a run on 60 points of three clusters with 3 labels of two of them, and the cluster of each point."""
    folder = tmp_path_factory.mktemp("vectors")
    X, y = make_blobs(N, centers=CENTERS, cluster_std=0.5, random_state=0)
    shown = np.full(N, -1)
    for c in (0, 1):
        shown[np.flatnonzero(y == c)[:3]] = c
    np.savez(folder / "points.npz", X=X, y=shown)
    fit(FitConfig(str(folder / "points.npz")), folder / "run")
    Session(folder / "run").close()
    analyze(folder / "run" / "serve" / "model-1")
    return folder / "run", y


@pytest.fixture
def opened(vectors: tuple[Path, Any], tmp_path: Path) -> Iterator[tuple[AppState, TestClient, Any]]:
    run, y = vectors
    shutil.copytree(run, tmp_path / "run")
    state = AppState(Session(tmp_path / "run"), Credentials(PORT))
    yield state, signed_in(state), y
    state.close()


def wait_until(holds: Callable[[], Any], seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def label(browser: TestClient, items: Any, class_id: int | None) -> None:
    body = {"op": "clear"} if class_id is None else {"op": "set", "class_id": class_id}
    assert browser.post("/api/labels", json={**body, "ids": [int(i) for i in items]}).status_code == 200


def up_to_date(state: AppState) -> bool:
    return bool(state.session.predictions.metadata["labels_seq"] == state.session.store.last_seq)


def about(browser: TestClient) -> dict[str, Any]:
    return dict(browser.get("/api/run").json())


def predicted(state: AppState) -> list[int]:
    return [int(class_id) for class_id in state.session.predictions.pred]


def test_predictions_follow_labels_of_a_new_class_a_correction_and_an_undo(opened: tuple[AppState, TestClient, Any]) -> None:
    state, browser, y = opened
    third = np.flatnonzero(y == 2)
    assert about(browser)["instant"] == {"state": "idle", "seconds": None, "error": None}
    order = browser.get("/api/order")
    new = browser.post("/api/classes", json={"name": "third"}).json()["id"]
    label(browser, third[:2], new)
    wait_until(lambda: up_to_date(state))
    assert all(predicted(state)[i] == new for i in third)
    run = about(browser)
    assert run["model"]["version"] == 1 and run["model"]["stale_by"] == 0 and run["model"]["revision"] >= 1
    assert run["instant"]["state"] == "idle" and run["instant"]["seconds"] > 0
    now = browser.get("/api/order")  # of the same version, so the page keeps its order until it is asked
    assert now.headers["x-model-version"] == order.headers["x-model-version"] == "1"
    assert int(now.headers["x-model-revision"]) == run["model"]["revision"] > int(order.headers["x-model-revision"])
    assert browser.get("/api/events").json()["model_revision"] == run["model"]["revision"]

    browser.post("/api/undo", json={})
    wait_until(lambda: up_to_date(state))
    assert new not in predicted(state)
    assert state.session.predictions.f.shape == (N, 2)
    assert [path.name for path in (state.session.folder).glob("model-*")] == ["model-1"]  # an update is no model of its own


def test_after_a_pause_the_labels_are_fitted_in_full_and_quality_is_measured_again(
    opened: tuple[AppState, TestClient, Any],
) -> None:
    state, browser, y = opened
    before = about(browser)["model"]["quality"]
    assert before["n_labels"] == 6
    label(browser, np.flatnonzero(y == 0)[3:6], 0)
    wait_until(lambda: up_to_date(state))
    label(browser, np.flatnonzero(y == 1)[3:7], 1)  # the first labels are part of the first fit, these are updated
    wait_until(lambda: about(browser)["model"]["quality"]["n_labels"] == 13)
    assert up_to_date(state)


def test_a_killed_worker_loses_nothing_and_starts_again_at_the_next_label(opened: tuple[AppState, TestClient, Any]) -> None:
    state, browser, y = opened
    label(browser, np.flatnonzero(y == 0)[3:4], 0)
    wait_until(lambda: up_to_date(state))
    first = workers_of(state)
    for process in first:
        process.kill()
    wait_until(lambda: about(browser)["instant"]["state"] == "failed")
    assert "all labels are stored" in about(browser)["instant"]["error"]
    third = np.flatnonzero(y == 2)
    new = browser.post("/api/classes", json={"name": "third"}).json()["id"]
    label(browser, third[:1], new)
    wait_until(lambda: up_to_date(state))
    assert all(predicted(state)[i] == new for i in third)
    assert about(browser)["instant"]["error"] is None


def test_a_worker_that_ends_again_and_again_turns_the_updates_off(
    opened: tuple[AppState, TestClient, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, browser, y = opened
    monkeypatch.setattr(sys, "executable", shutil.which("false"))  # a process that ends at once
    more = iter(np.flatnonzero(y == 0)[4:])

    def off_after_another_label() -> bool:
        label(browser, [next(more)], 0)
        time.sleep(0.5)
        return bool(about(browser)["instant"]["state"] == "off")

    wait_until(off_after_another_label)
    assert "turn the updates on again" in about(browser)["instant"]["error"]
    monkeypatch.undo()
    assert browser.post("/api/instant", json={"on": True}).json()["error"] is None
    wait_until(lambda: up_to_date(state))


def test_labels_that_come_during_a_refit_are_in_the_predictions_after_it(opened: tuple[AppState, TestClient, Any]) -> None:
    state, browser, y = opened
    label(browser, np.flatnonzero(y == 0)[3:4], 0)
    wait_until(lambda: up_to_date(state))
    browser.post("/api/fit", json={})
    third = np.flatnonzero(y == 2)
    new = browser.post("/api/classes", json={"name": "third"}).json()["id"]
    label(browser, third[:2], new)
    state.refits.wait(120)
    assert state.session.predictions.version == 2
    wait_until(lambda: up_to_date(state))
    assert all(predicted(state)[i] == new for i in third)


def workers_of(state: AppState) -> list[Any]:
    import psutil

    name = str(state.session.folder / "instant")
    return [one for one in psutil.Process().children() if name in one.cmdline()]


def test_a_server_that_was_killed_catches_up_with_the_labels_of_the_store(vectors: tuple[Path, Any], tmp_path: Path) -> None:
    run, y = vectors
    shutil.copytree(run, tmp_path / "run")
    third = np.flatnonzero(y == 2)
    state = AppState(Session(tmp_path / "run"), Credentials(PORT))
    state.instant.close()  # the labels are stored, and the server ends before it has used them
    browser = signed_in(state)
    new = browser.post("/api/classes", json={"name": "third"}).json()["id"]
    label(browser, third[:2], new)
    state.close()
    again = AppState(Session(tmp_path / "run"), Credentials(PORT))
    wait_until(lambda: up_to_date(again))
    assert all(predicted(again)[i] == new for i in third)
    again.close()


def test_the_switch_turns_updates_off_and_is_kept(opened: tuple[AppState, TestClient, Any]) -> None:
    state, browser, y = opened
    assert browser.post("/api/instant", json={"on": False}).json()["state"] == "off"
    label(browser, np.flatnonzero(y == 0)[3:5], 0)
    time.sleep(0.5)
    assert about(browser)["model"]["stale_by"] == 2 and not workers_of(state)
    run = state.session.run
    state.close()
    again = AppState(Session(run), Credentials(PORT))
    assert about(signed_in(again))["instant"]["state"] == "off"
    signed_in(again).post("/api/instant", json={"on": True})
    wait_until(lambda: up_to_date(again))
    again.close()
    assert not (run / "serve" / "instant").exists()


def test_too_few_classes_are_reported_and_the_next_label_repairs_it(opened: tuple[AppState, TestClient, Any]) -> None:
    state, browser, y = opened
    label(browser, np.flatnonzero(y == 1)[:3], None)
    wait_until(lambda: about(browser)["instant"]["state"] == "failed")
    assert "two classes" in about(browser)["instant"]["error"]
    label(browser, np.flatnonzero(y == 1)[:2], 1)
    wait_until(lambda: up_to_date(state))
    assert about(browser)["instant"]["state"] == "idle"


def test_a_model_that_is_trained_by_steps_is_not_updated(state: AppState, browser: TestClient) -> None:
    assert about(browser)["instant"]["state"] == "unavailable"
    label(browser, [20], 1)
    time.sleep(0.4)
    assert about(browser)["model"]["stale_by"] == 1


def test_a_stranger_cannot_switch(state: AppState) -> None:
    assert stranger(state).post("/api/instant", json={"on": False}).status_code in (401, 403)


def test_a_read_only_server_does_not_update(vectors: tuple[Path, Any], tmp_path: Path) -> None:
    shutil.copytree(vectors[0], tmp_path / "run")
    session = Session(tmp_path / "run", read_only=True)
    state = AppState(session, Credentials(PORT))
    assert about(signed_in(state))["instant"]["state"] == "off"
    state.close()
