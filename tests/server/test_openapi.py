"""The OpenAPI description: it holds every route, responses match it, and no request causes a server error."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from pydantic import TypeAdapter
from schemathesis import GenerationMode
from starlette.testclient import TestClient
from tests.server.conftest import stranger

from samekind.server.app import ROUTES
from samekind.server.app_state import AppState
from samekind.server.openapi import describe_api

# a refit would start a process for every example; it has tests of its own
OPERATIONS = [route for route in ROUTES if route.path not in ("/api/fit", "/api/openapi.json", "/api/docs")]
SCHEMA = schemathesis.openapi.from_dict(describe_api(ROUTES))


@pytest.fixture(scope="module")
def program(calm: AppState) -> TestClient:
    """Return a client with the token; all tests of this module share its labels and classes."""
    client = stranger(calm)
    client.headers["authorization"] = f"Bearer {calm.credentials.token}"
    return client


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("route", OPERATIONS, ids=lambda route: f"{route.method} {route.path}")
def test_no_request_causes_a_server_error(program: TestClient, route: Any, mode: GenerationMode) -> None:
    operation = SCHEMA[route.path][route.method]
    if mode is GenerationMode.NEGATIVE and not (route.body or route.query or route.path_types):
        pytest.skip("it takes no input that could be invalid")

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
        request = case.as_transport_kwargs()
        known = {name: request[name] for name in ("params", "json", "data") if request.get(name) is not None}
        content = known.pop("data", None)
        kind = {"content-type": case.media_type} if case.media_type else {}
        response = program.request(
            route.method,
            case.formatted_path,
            **known,
            content=content if content is None or isinstance(content, (bytes, str)) else str(content),
            headers=kind,
        )
        assert response.status_code < 500 or response.status_code == 503, response.text
        assert response.status_code < 400 or response.headers["content-type"] == "application/problem+json"
        if route.returns is not None and response.status_code < 300:
            TypeAdapter(route.returns).validate_json(response.content, strict=True)

    sent()
    assert program.get("/api/run").status_code == 200


def test_every_route_is_described(program: TestClient) -> None:
    request = program.get("/api/openapi.json").json()
    assert {(method.upper(), path) for path, methods in request["paths"].items() for method in methods} == {
        (route.method, route.path) for route in ROUTES
    }
    SCHEMA.validate()


def test_the_html_description_lists_every_route_without_scripts(program: TestClient) -> None:
    session = program.get("/api/docs")
    assert session.headers["content-type"].startswith("text/html") and "<script" not in session.text
    assert all(f"{route.method} {route.path}" in session.text for route in ROUTES)
