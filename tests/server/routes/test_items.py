"""The run, orders, items, images, labels and classes."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient
from tests.server.conftest import N, signed_in

from samekind.server.app_state import AppState
from samekind.server.inference.ranking import SORTS

ACROSS, DOWN = 0, 1


def ids(browser: TestClient, **query: Any) -> list[int]:
    response = browser.get("/api/order", params=query)
    assert response.status_code == 200, response.text
    return [int(i) for i in np.frombuffer(response.content, "<u4")]


def item(browser: TestClient, number: int) -> dict[str, Any]:
    (found,) = browser.post("/api/items", json={"ids": [number]}).json()["items"]
    return dict(found)


def put(browser: TestClient, numbers: list[int], class_id: int, **more: Any) -> dict[str, Any]:
    response = browser.post("/api/labels", json={"op": "set", "ids": numbers, "class_id": class_id, **more})
    assert response.status_code == 200, response.text
    return dict(response.json())


def test_the_labels_of_the_fit_are_the_first_events(browser: TestClient) -> None:
    run = browser.get("/api/run").json()
    assert run["n_total"] == N and run["n_labelled"] == 6 and run["last_seq"] == 6
    assert [(kind["name"], kind["key"], kind["n_labelled"]) for kind in run["classes"]] == [
        ("across", "1", 3),
        ("down", "2", 3),
    ]
    assert run["can_undo"] is None and run["model"]["stale_by"] == 0


def test_an_order_holds_every_item_once_and_the_most_uncertain_first(state: AppState, browser: TestClient) -> None:
    order = ids(browser, sort="margin")
    assert sorted(order) == list(range(N))
    margins = state.session.predictions.margin[order]
    assert (np.diff(margins) >= 0).all()
    assert ids(browser, sort="margin", dir="desc") == order[::-1]


@pytest.mark.parametrize("sort", SORTS)
def test_every_sort_is_repeatable_and_cached_by_etag(browser: TestClient, sort: str) -> None:
    first = browser.get("/api/order", params={"sort": sort, "seed": 3})
    assert len(first.content) == 4 * (N - 6 if sort == "audit" else N)
    again = browser.get("/api/order", params={"sort": sort, "seed": 3}, headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304 and not again.content


def test_filters_combine(browser: TestClient) -> None:
    put(browser, [30], ACROSS)
    browser.post("/api/labels", json={"op": "skip", "ids": [31]})
    assert ids(browser, status="skipped") == [31]
    assert set(ids(browser, status="labelled", label=ACROSS)) == {0, 2, 4, 30}
    assert ids(browser, status="unlabelled", q="ROLL1 39") == [39]
    assert len(ids(browser, status="unlabelled")) == N - 8
    assert len(ids(browser, pred=ACROSS)) + len(ids(browser, pred=DOWN)) == N
    assert ids(browser, conf_min=1.0, conf_max=0.0) == []


def test_a_label_against_the_prediction_is_found(state: AppState, browser: TestClient) -> None:
    other = 1 - int(state.session.predictions.pred[20])
    put(browser, [20], other)
    assert ids(browser, status="differs") == [20]
    assert ids(browser, sort="differs")[0] == 20


def test_the_most_different_items_come_from_both_kinds(state: AppState, browser: TestClient) -> None:
    first = ids(browser, sort="diverse", seed=1)[:4]
    assert set(state.session.predictions.pred[first].tolist()) == {ACROSS, DOWN}


def test_newest_puts_the_last_changed_items_first(browser: TestClient) -> None:
    put(browser, [25], DOWN)
    put(browser, [12], DOWN)
    assert ids(browser, sort="newest")[:2] == [12, 25]


@pytest.mark.parametrize("query", ["sort=nonsense", "conf_min=2", "pred=-1", "colour=red", "sort=path&sort=margin", "seed=x"])
def test_an_invalid_query_is_refused_with_a_sentence(browser: TestClient, query: str) -> None:
    response = browser.get(f"/api/order?{query}")
    assert response.status_code == 422 and response.json()["detail"]


def test_an_item_has_its_label_its_prediction_and_its_image_key(browser: TestClient) -> None:
    put(browser, [10], DOWN, source="audit")
    found = item(browser, 10)
    assert (found["path"], found["label"], found["status"], found["source"]) == ("roll0/10.png", DOWN, "labelled", "audit")
    assert found["top3"][0] == [found["pred"], found["conf"]] and found["error"] is None


def test_accepting_gives_each_item_its_own_prediction(state: AppState, browser: TestClient) -> None:
    response = browser.post("/api/labels", json={"op": "accept", "ids": [20, 21, 22, 23]}).json()
    assert response["changed"] == 4
    assert {one["id"]: one["label"] for one in response["items"]} == {
        i: int(state.session.predictions.pred[i]) for i in (20, 21, 22, 23)
    }


def test_one_key_many_items_one_undo(browser: TestClient) -> None:
    put(browser, [20, 21, 22], ACROSS)
    undone = browser.post("/api/undo", json={}).json()
    assert undone["changed"] == 3 and {one["status"] for one in undone["items"]} == {"unlabelled"}
    assert browser.post("/api/redo", json={}).json()["changed"] == 3
    assert browser.get("/api/run").json()["can_undo"]["n"] == 3


def test_a_batch_counts_the_labels_that_it_replaced(browser: TestClient) -> None:
    assert put(browser, [0, 1, 2, 30], DOWN)["overwritten"] == 2
    assert put(browser, [0, 1, 2, 30], DOWN)["overwritten"] == 0
    assert browser.post("/api/labels", json={"op": "skip", "ids": [0, 31]}).json()["overwritten"] == 1
    assert browser.post("/api/labels", json={"op": "clear", "ids": [1]}).json()["overwritten"] == 0


def test_two_tabs_see_each_other_and_do_not_overwrite(state: AppState, browser: TestClient) -> None:
    other = signed_in(state)
    seen = browser.get("/api/run").json()["last_seq"]
    put(other, [20], ACROSS)
    late = put(browser, [20, 21], DOWN, seen=seen)
    assert late["conflicts"] == [20] and item(browser, 20)["label"] == ACROSS
    news = browser.get("/api/events", params={"since": seen}).json()
    assert [(event["id"], event["new_class"]) for event in news["events"]] == [(20, ACROSS), (21, DOWN)]
    assert news["last_seq"] == seen + 2 and not news["more"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"op": "set", "ids": [1]},
        {"op": "set", "ids": [1], "class_id": 77},
        {"op": "set", "ids": [N], "class_id": 0},
        {"op": "set", "ids": [-1], "class_id": 0},
        {"op": "set", "ids": [], "class_id": 0},
        {"op": "set", "ids": [True], "class_id": 0},
        {"op": "set", "ids": [1.5], "class_id": 0},
        {"op": "destroy", "ids": [1]},
        {"op": "clear", "ids": [1], "path": "/etc/passwd"},
        {"op": "clear", "ids": [1], "request_id": "x" * 65},
        [],
        None,
    ],
    ids=str,
)
def test_an_invalid_label_request_changes_nothing(state: AppState, browser: TestClient, body: Any) -> None:
    response = browser.post("/api/labels", json=body)
    assert response.status_code in (404, 422) and "detail" in response.json()
    assert state.session.store.last_seq == 6


def test_classes_are_added_renamed_and_merged_with_their_predictions(state: AppState, browser: TestClient) -> None:
    assert browser.post("/api/classes", json={"name": " round "}).json()["name"] == "round"
    assert browser.post("/api/classes", json={"name": "round"}).status_code == 409
    assert browser.patch("/api/classes/0", json={"name": "flat", "color": "#123abc"}).json()["name"] == "flat"
    assert browser.patch("/api/classes/0", json={"color": "red"}).status_code == 422
    merged = browser.patch("/api/classes/1", json={"merge_into": 0}).json()
    assert merged["archived"] and merged["merged"]["changed"] == 3
    assert set(state.session.predictions.pred.tolist()) == {0} and item(browser, 1)["conf"] == 1.0
    assert browser.post("/api/labels", json={"op": "set", "ids": [9], "class_id": 1}).status_code == 409
    browser.post("/api/undo", json={})
    assert set(state.session.predictions.pred.tolist()) == {0, 1}


def test_a_class_is_deleted_with_its_labels_and_predictions_and_comes_back(state: AppState, browser: TestClient) -> None:
    assert browser.post("/api/classes/1/delete", json={}).status_code == 409  # items have it as label
    assert browser.post("/api/classes/1/delete", json={"clear_labels": True}).json()["changed"] == 3
    assert browser.post("/api/classes/1/delete", json={"clear_labels": True}).status_code == 409
    run = browser.get("/api/run").json()
    assert run["n_labelled"] == 3 and run["classes"][1]["archived"]
    assert set(state.session.predictions.pred.tolist()) == {0} and np.allclose(state.session.predictions.f.sum(1), 1)
    browser.post("/api/undo", json={})
    run = browser.get("/api/run").json()
    assert run["n_labelled"] == 6 and (run["classes"][1]["archived"], run["classes"][1]["key"]) == (False, "2")
    assert set(state.session.predictions.pred.tolist()) == {0, 1}


def test_a_deleted_class_that_is_added_again_is_restored(state: AppState, browser: TestClient) -> None:
    before = state.session.predictions.pred.tolist()
    browser.post("/api/classes/1/delete", json={"clear_labels": True})
    assert browser.post("/api/classes", json={"name": "down"}).json()["id"] == 1
    assert state.session.predictions.pred.tolist() == before


def test_an_imported_label_restores_a_deleted_class(state: AppState, browser: TestClient) -> None:
    browser.post("/api/classes/1/delete", json={"clear_labels": True})
    rows = b"path,label,status\nroll0/00.png,down,labelled\n"
    browser.post("/api/import", content=rows, params={"overwrite": True}, headers={"content-type": "text/csv"})
    assert not browser.get("/api/run").json()["classes"][1]["archived"]
    assert set(state.session.predictions.pred.tolist()) == {0, 1}


def test_similarities_of_very_different_items_do_not_overflow(state: AppState) -> None:
    model = state.session.active_model
    z = np.array(model.predictions.z)
    z[20] = 1e6
    extreme = model.with_predictions(replace(model.predictions, z=z), None)
    found = extreme.nearest_among(20, np.ones(N, dtype=bool), 5)
    assert len(found) == 5 and all(0.0 <= W <= 1.0 for _, W, _ in found)


def test_predictions_are_read_again_only_after_a_merge(state: AppState, browser: TestClient) -> None:
    first = state.session.active_model
    browser.post("/api/labels", json={"op": "set", "ids": [9], "class_id": 1})
    browser.post("/api/undo", json={})
    browser.patch("/api/classes/0", json={"name": "flat"})
    assert state.session.active_model is first
    browser.patch("/api/classes/1", json={"merge_into": 0})
    assert state.session.active_model is not first and state.session.predictions.class_ids == (0,)


def test_colors_hold_prediction_and_label_of_every_item(state: AppState, browser: TestClient) -> None:
    browser.post("/api/labels", json={"op": "skip", "ids": [39]})
    triples = np.frombuffer(browser.get("/api/colors").content, "<i2").reshape(N, 3)
    assert (triples[:, 0] == state.session.predictions.pred).all()
    assert np.allclose(triples[:, 2] / 10_000, state.session.predictions.confidence, atol=1e-4)
    assert triples[[0, 1, 38, 39], 1].tolist() == [ACROSS, DOWN, -1, -2]


# ---------------------------------------------------------------- images


def test_a_thumbnail_is_made_once_and_then_cached(state: AppState, browser: TestClient) -> None:
    first = browser.get("/img/3/thumb?size=128")
    again = browser.get("/img/3/thumb?size=128")
    assert first.content == again.content and state.session.thumbnails.n_decoded == 1
    assert Image.open(io.BytesIO(first.content)).size == (12, 12)


def test_an_image_requested_by_its_key_may_be_cached_for_ever(browser: TestClient) -> None:
    key = item(browser, 3)["image_key"]
    assert "immutable" in browser.get(f"/img/3/thumb?key={key}").headers["cache-control"]
    assert "immutable" not in browser.get("/img/3/thumb?key=other").headers["cache-control"]


def test_a_changed_file_has_another_key_and_another_thumbnail(browser: TestClient, run: Path) -> None:
    before, old = item(browser, 3)["image_key"], browser.get("/img/3/thumb").content
    Image.new("RGB", (300, 200), "red").save(run.parent / "photos" / "roll0" / "03.png")
    assert item(browser, 3)["image_key"] != before
    new = browser.get("/img/3/thumb?size=256").content
    assert new != old and Image.open(io.BytesIO(new)).size == (256, 171)
    assert item(browser, 3)["label"] == DOWN  # a changed file keeps its label


def test_the_full_view_is_the_whole_image(browser: TestClient, run: Path) -> None:
    Image.new("RGB", (300, 200), "red").save(run.parent / "photos" / "roll0" / "03.png")
    assert Image.open(io.BytesIO(browser.get("/img/3/full").content)).size == (300, 200)
    assert browser.get("/api/items/3").json()["width"] == 300


def test_a_size_that_is_not_offered_is_refused(browser: TestClient) -> None:
    assert browser.get("/img/3/thumb?size=200").status_code == 422
