"""The description of all routes for other programs (OpenAPI), and the same for people as a plain page."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from starlette.responses import Response

from samekind import __version__
from samekind.server.app_state import AppState
from samekind.server.routing import ParsedRequest, Route
from samekind.server.shapes import Schema

PROBLEM = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "status": {"type": "integer"}, "detail": {"type": "string"}},
    "required": ["title", "status", "detail"],
}
REFUSALS = {400: "Another name than this server's", 401: "No session and no token", 403: "From another page, or read-only"}
MORE_REFUSALS = {404: "Not there", 409: "Does not fit what is", 413: "Too much", 422: "Not as described", 503: "Not yet"}


def description(routes: Sequence[Route]) -> Schema:
    """The whole as OpenAPI 3.1."""
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "samekind",
            "version": __version__,
            "description": "A page on a run. Programs send the token as `Authorization: Bearer TOKEN`; `samekind serve RUN "
            "--token-file FILE` writes it down. Under /api/v1 is what needs no page: predict, neighbours, similarity.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": PROBLEM},
        },
        "security": [{"token": []}],
    }


def _operation(route: Route) -> Schema:
    parts = re.findall(r"{(\w+)}", route.path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": route.parts[name].schema()} for name in parts]
    parameters += [{"name": name, "in": "query", "schema": shape.schema()} for name, shape in route.query.known.items()]
    good = {str(status): {"description": route.says, **_content(route, status)} for status in route.statuses if status < 400}
    refused = {400: REFUSALS[400], 401: REFUSALS[401], 403: REFUSALS[403], **MORE_REFUSALS}
    bad = {str(status): {"description": words, "content": _problem()} for status, words in refused.items()}
    operation: Schema = {"summary": route.says, "parameters": parameters, "responses": {**bad, **good}}
    if route.sends_bytes:
        all_classes = ("text/csv", "application/x-ndjson", "application/json")
        operation["requestBody"] = {"required": True, "content": {kind: {"schema": {"type": "string"}} for kind in all_classes}}
    elif route.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": route.body.schema()}}}
    if route.open:
        operation["security"] = []
    return operation


def _content(route: Route, status: int) -> Schema:
    if status == 204:
        return {}
    schema = {"type": "object"} if route.gives == "application/json" else {"type": "string", "format": "binary"}
    return {"content": {route.gives: {"schema": schema}}}


def _problem() -> Schema:
    return {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


# ---------------------------------------------------------------- for people


def as_page(routes: Sequence[Route]) -> str:
    """Every route with what it takes, in HTML that needs neither script nor style."""
    sections = "\n".join(_section(route) for route in routes)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>samekind: the API</title></head><body>"
        "<h1>The API</h1><p>Programs send the token as <code>Authorization: Bearer TOKEN</code>; "
        "<code>samekind serve RUN --token-file FILE</code> writes it down. Errors are <code>application/problem+json</code>. "
        "The same for programs: <a href='/api/openapi.json'>openapi.json</a>.</p>\n"
        f"{sections}\n</body></html>\n"
    )


def _section(route: Route) -> str:
    lines = [(f"?{name}", shape.schema()) for name, shape in route.query.known.items()]
    body = route.body.schema() if route.body is not None else {}
    needed = body.get("required", [])
    lines += [(name + (" (needed)" if name in needed else ""), one) for name, one in body.get("properties", {}).items()]
    rows = "".join(f"<li><code>{escape(name)}</code>: {escape(_in_words(schema))}</li>" for name, schema in lines)
    return f"<h2><code>{route.method} {escape(route.path)}</code></h2><p>{escape(route.says)}</p><ul>{rows}</ul>"


def _in_words(schema: Schema) -> str:
    if "anyOf" in schema:
        return " or ".join(_in_words(one) for one in schema["anyOf"])
    words = schema["type"]
    if "enum" in schema:
        words = "one of " + ", ".join(schema["enum"])
    elif schema["type"] == "array":
        words = f"list of at most {schema['maxItems']}: {_in_words(schema['items'])}"
    elif schema["type"] in ("integer", "number"):
        words = f"{schema['type']} from {schema['minimum']:g} to {schema['maximum']:g}"
    said = schema.get("description")
    return f"{words}; {said}" if said else words


def routes_for(all_routes: Callable[[], Sequence[Route]]) -> list[Route]:
    """The two routes that tell about all others."""

    def as_json(state: AppState, request: ParsedRequest) -> Any:
        return description(all_routes())

    def as_html(state: AppState, request: ParsedRequest) -> Response:
        return Response(as_page(all_routes()), media_type="text/html")

    return [
        Route("GET", "/api/openapi.json", as_json, "This description"),
        Route("GET", "/api/docs", as_html, "This description for people", gives="text/html"),
    ]
