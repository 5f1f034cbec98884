"""Similarity search, refits in a child process, and activation of models."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.server.conftest import PORT, N, signed_in, striped
from tests.server.routes.test_items import ids, item, put

from samekind.errors import ModelFileError
from samekind.project.predict import predict
from samekind.project.run_folder import active_model_dir, open_run
from samekind.server.app_state import AppState
from samekind.server.jobs.refit_jobs import RefitJob
from samekind.server.security import Credentials
from samekind.server.session import Session


def test_the_most_similar_items_have_the_same_class(browser: TestClient) -> None:
    response = browser.post("/api/similar", json={"ids": [20, 22], "k": 5}).json()
    found = [one["id"] for one in response["results"]]
    assert len(found) == 5 and response["exact"] and not {20, 22} & set(found)
    assert all(i % 2 == 0 for i in found)
    assert [one["similarity"] for one in response["results"]] == sorted(
        (one["similarity"] for one in response["results"]), reverse=True
    )


def test_similarity_search_filters_by_status_similarity_and_counterexamples(browser: TestClient) -> None:
    unlabelled = browser.post("/api/similar", json={"ids": [20], "k": N, "only": "unlabelled"}).json()["results"]
    assert not {one["id"] for one in unlabelled} & set(range(6))
    sure = browser.post("/api/similar", json={"ids": [20], "k": N, "min_similarity": 0.2}).json()["results"]
    assert all(one["similarity"] >= 0.2 for one in sure) and len(sure) < N - 1
    without = browser.post("/api/similar", json={"ids": [20], "not_ids": [20 + 2], "k": N}).json()["results"]
    plain = browser.post("/api/similar", json={"ids": [20], "k": N}).json()["results"]
    assert sum(one["similarity"] for one in without) < sum(one["similarity"] for one in plain)


def test_an_item_lists_similar_labelled_items_and_its_history(browser: TestClient) -> None:
    put(browser, [20], 0)
    about = browser.get("/api/items/20").json()
    assert about["nearest"][0]["id"] in (0, 2, 4) and about["nearest"][0]["label"] == 0
    assert all(one["label"] == about["pred"] and one["similarity"] >= 0.5 for one in about["supporting"])
    assert all(one["label"] != about["pred"] and one["similarity"] >= 0.5 for one in about["contrary"])
    assert [event["kind"] for event in about["events"]] == ["set"] and about["previous"] is None
    assert about["events"][0]["pred_class"] == about["pred"]
    assert browser.get("/api/items/999").status_code == 404


def test_the_index_is_built_once_for_a_model(state: AppState) -> None:
    first = state.session.active_model.index
    assert state.session.active_model.index is first and len(first) == N


def test_of_many_labelled_items_only_those_with_the_nearest_features_are_compared(state: AppState) -> None:
    model, everything = state.session.active_model, np.ones(N, dtype=bool)
    exact = model.nearest_among(20, everything, 3)
    assert model.nearest_among(20, everything, 3, max_compared=15) == exact
    assert 20 not in [item for item, *_ in exact]


# ---------------------------------------------------------------- refits


def finished(browser: TestClient, state: AppState) -> dict[str, Any]:
    state.refits.wait(120)
    return dict(browser.get("/api/job").json())


def test_a_refit_uses_the_labels_of_the_page_and_reports_changed_predictions(
    state: AppState, browser: TestClient, run: Path
) -> None:
    put(browser, [20], 1)  # against its true class
    browser.post("/api/classes", json={"name": "third"})
    put(browser, [7], 2)
    (run.parent / "photos" / "roll0" / "05.png").rename(run.parent / "photos" / "roll0" / "other name.png")
    late = striped(0, 99)
    late.save(run.parent / "photos" / "roll1" / "late.png")  # came after the fit
    begun = browser.post("/api/fit", json={"mode": "quick"})
    assert begun.status_code == 202 and begun.json()["labels_seq"] == state.session.store.last_seq
    refused = browser.post("/api/fit", json={})
    assert refused.status_code == 409 and refused.json()["job"]["id"] == begun.json()["id"]
    put(browser, [21], 1)  # labels can be set meanwhile
    job = finished(browser, state)
    assert job["state"] == "done", job
    about = browser.get("/api/run").json()
    assert about["model"]["version"] == 2 and about["model"]["stale_by"] == 1
    assert about["n_total"] == N + 1 and item(browser, N)["path"] == "roll1/late.png" and item(browser, N)["pred"] == 0
    assert item(browser, 20)["pred"] == 1 and item(browser, 7)["pred"] == 2
    renamed = item(browser, 5)  # a renamed file is the same item
    assert (renamed["path"], renamed["label"], renamed["pred"], renamed["error"]) == ("roll0/other name.png", 1, 1, None)
    changed = ids(browser, status="changed")
    assert job["changed"]["n"] == len(changed) > 0 and {20, 7} <= set(changed)
    assert sum(pair["n"] for pair in job["changed"]["by_pair"]) == len(changed)
    assert browser.get("/api/items/20").json()["previous"]["pred"] == 0
    assert active_model_dir(run) == run / "serve" / "model-2"
    predict(run, run.parent / "photos" / "roll0", run / "new.csv")  # the command line uses it too
    back = browser.post("/api/models/1/activate", json={}).json()
    assert back["model"]["version"] == 1 and item(browser, 20)["pred"] == 0
    assert [(one["version"], one["active"]) for one in browser.get("/api/models").json()["models"]] == [(1, True), (2, False)]
    state.close()
    again = AppState(Session(run), Credentials(PORT))
    before = again.session.active_model.previous
    assert again.session.predictions.version == 1 and before is not None and before.version == 2
    again.close()


def test_a_refit_that_fails_leaves_the_old_model(state: AppState, browser: TestClient, run: Path) -> None:
    manifest = json.loads((run / "run.json").read_text())
    manifest["config"]["data"] = str(run / "gone")
    (run / "run.json").write_text(json.dumps(manifest))
    browser.post("/api/fit", json={})
    job = finished(browser, state)
    assert job["state"] == "failed" and "does not exist" in job["error"]
    assert state.session.predictions.version == 1 and not list((run / "serve").glob("model-2*"))
    assert browser.get("/api/run").status_code == 200


def test_a_refit_can_be_stopped(state: AppState, browser: TestClient, run: Path) -> None:
    number = browser.post("/api/fit", json={}).json()["id"]
    assert browser.post("/api/job/other/cancel", json={}).status_code == 404
    stopped = browser.post(f"/api/job/{number}/cancel", json={}).json()
    assert stopped["state"] == "cancelled" and not list((run / "serve").glob("model-2*"))


def test_two_classes_are_needed(state: AppState, browser: TestClient) -> None:
    browser.post("/api/labels", json={"op": "clear", "ids": [1, 3, 5]})
    assert browser.post("/api/fit", json={}).status_code == 409
    assert browser.get("/api/job").json() == {"state": "idle"}
    assert browser.post("/api/models/9/activate", json={}).status_code == 404


def test_the_time_left_follows_the_speed_of_the_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    job = RefitJob("a", "quick", 0, 2)
    job.update({"phase": "learning", "step": 10, "total": 110})
    assert job.eta() is None
    clock[0] += 5.0
    job.update({"phase": "learning", "step": 60, "total": 110})
    assert job.eta() == 5.0


def test_files_of_a_killed_refit_are_removed(run: Path) -> None:
    (run / "serve" / "model-7.part").mkdir()
    state = AppState(Session(run), Credentials(PORT))
    assert not (run / "serve" / "model-7.part").exists()
    assert signed_in(state).get("/api/models").json()["models"][0]["version"] == 1
    state.close()


@pytest.mark.parametrize("manifest", ["nonsense", "[]", '{"format": 2}', '{"format": 1, "version": 1, "model": "model"}'])
def test_a_damaged_active_json_stops_the_page_and_the_command_line(run: Path, manifest: str) -> None:
    (run / "serve" / "active.json").write_text(manifest)
    for reader in (Session, open_run):
        with pytest.raises(ModelFileError, match=r"active\.json.*Remove this file"):
            reader(run)


@pytest.mark.parametrize("file", ["run.json", "model/model.json", "serve/model-1/predictions.json"])
def test_a_file_of_another_format_version_is_refused(run: Path, file: str) -> None:
    manifest = json.loads((run / file).read_text())
    ours = manifest["format"]
    (run / file).write_text(json.dumps({**manifest, "format": ours + 1}))
    with pytest.raises(ModelFileError, match=f"has format {ours + 1}, but this version of samekind reads format {ours}"):
        Session(run)
