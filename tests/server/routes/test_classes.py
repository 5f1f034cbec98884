"""The list of classes."""

from __future__ import annotations

from starlette.testclient import TestClient


def test_all_classes_are_listed_with_their_counts(calm_browser: TestClient) -> None:
    classes = calm_browser.get("/api/classes").json()["classes"]
    assert [(one["name"], one["n_labelled"]) for one in classes] == [("across", 3), ("down", 3)]


def test_an_unknown_field_of_the_query_is_refused(calm_browser: TestClient) -> None:
    response = calm_browser.get("/api/classes?archived=1")
    assert response.status_code == 422 and "no field 'archived'" in response.json()["detail"]
