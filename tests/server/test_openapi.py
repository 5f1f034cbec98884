"""The description of the API: it holds every route, and whatever is sent in its terms or against them, nothing breaks."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from starlette.testclient import TestClient
from tests.server.conftest import stranger

from samekind.server.app import ROUTES
from samekind.server.app_state import AppState
from samekind.server.openapi import describe_api

# a refit starts a process for every example; it has tests of its own
OPERATIONS = [route for route in ROUTES if route.path not in ("/api/fit", "/api/openapi.json", "/api/docs")]
SCHEMA = schemathesis.openapi.from_dict(describe_api(ROUTES))


@pytest.fixture(scope="module")
def program(calm: AppState) -> TestClient:
    """With the token; labels and classes pile up here."""
    client = stranger(calm)
    client.headers["authorization"] = f"Bearer {calm.credentials.token}"
    return client


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("route", OPERATIONS, ids=lambda route: f"{route.method} {route.path}")
def test_nothing_that_is_sent_breaks_the_server(program: TestClient, route: Any, mode: GenerationMode) -> None:
    operation = SCHEMA[route.path][route.method]
    if mode is GenerationMode.NEGATIVE and not (route.body or route.query or route.path_types):
        pytest.skip("it takes nothing that could be wrong")

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=8,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def sent(case: Any) -> None:
        words = case.as_transport_kwargs()
        known = {name: words[name] for name in ("params", "json", "data") if words.get(name) is not None}
        content = known.pop("data", None)
        kind = {"content-type": case.media_type} if case.media_type else {}
        answer = program.request(
            route.method,
            case.formatted_path,
            **known,
            content=content if content is None or isinstance(content, (bytes, str)) else str(content),
            headers=kind,
        )
        assert answer.status_code < 500 or answer.status_code == 503, answer.text
        assert answer.status_code < 400 or answer.headers["content-type"] == "application/problem+json"

    sent()
    assert program.get("/api/run").status_code == 200


def test_every_route_is_described(program: TestClient) -> None:
    words = program.get("/api/openapi.json").json()
    assert {(method.upper(), path) for path, methods in words["paths"].items() for method in methods} == {
        (route.method, route.path) for route in ROUTES
    }
    SCHEMA.validate()


def test_people_can_read_it_without_a_script(program: TestClient) -> None:
    session = program.get("/api/docs")
    assert session.headers["content-type"].startswith("text/html") and "<script" not in session.text
    assert all(f"{route.method} {route.path}" in session.text for route in ROUTES)
