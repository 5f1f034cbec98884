"""OpenAPI description of all routes, generated from their models; also as an HTML page without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Literal

from pydantic import TypeAdapter

from samekind import __version__
from samekind.server.routing import Route
from samekind.server.schemas import JsonSchema, describe

PROBLEM = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "status": {"type": "integer"}, "detail": {"type": "string"}},
    "required": ["title", "status", "detail"],
}
REFUSALS = {
    400: "The host name is not one of this server",
    401: "No login and no token",
    403: "The request comes from another site, or the server is read-only",
    404: "Not found",
    409: "The request does not fit the current state",
    413: "The body is too large",
    422: "The request does not fit its description",
    503: "Temporarily unavailable",
}
UPLOADS = ("text/csv", "application/x-ndjson", "application/json")
Mode = Literal["validation", "serialization"]
Place = tuple[str, Mode]


def describe_api(routes: Sequence[Route]) -> JsonSchema:
    """Return the OpenAPI 3.1 description of all routes."""
    schemas, definitions = _schemas(routes)
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, definitions)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "samekind",
            "version": __version__,
            "description": "The server of a run. Programs send the token as `Authorization: Bearer TOKEN`; `samekind serve RUN "
            "--token-file FILE` writes it to a file. /api/v1 is for programs: predict, neighbours, similarity.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": PROBLEM, **definitions},
        },
        "security": [{"token": []}],
    }


def _schemas(routes: Sequence[Route]) -> tuple[dict[Place, JsonSchema], JsonSchema]:
    """Return the schemas of all bodies, queries, responses and path parameters, and the definitions to which they refer."""
    inputs: list[tuple[str, Mode, TypeAdapter[Any]]] = []
    for route in routes:
        key = f"{route.method} {route.path}"
        if route.body not in (None, bytes):
            inputs.append((f"{key} body", "validation", TypeAdapter(route.body)))
        if route.query is not None:
            inputs.append((f"{key} query", "validation", TypeAdapter(route.query)))
        if route.returns is not None:
            inputs.append((f"{key} response", "serialization", TypeAdapter(route.returns)))
        inputs += [(f"{key} {name}", "validation", adapter) for name, adapter in route.path_types.items()]
    schemas, shared = TypeAdapter.json_schemas(inputs, ref_template="#/components/schemas/{model}")
    return dict(schemas), shared.get("$defs", {})


def _operation(route: Route, schemas: dict[Place, JsonSchema], definitions: JsonSchema) -> JsonSchema:
    key = f"{route.method} {route.path}"
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": schemas[f"{key} {name}", "validation"]}
        for name in route.path_types
    ]
    query = _target(schemas.get((f"{key} query", "validation"), {}), definitions)
    parameters += [{"name": name, "in": "query", "schema": one} for name, one in query.get("properties", {}).items()]
    refused = {str(status): {"description": text, "content": _problem()} for status, text in REFUSALS.items()}
    accepted: JsonSchema = {"description": route.summary}
    if route.options.status != 204:
        binary = {"type": "string", "format": "binary"}
        schema = schemas[f"{key} response", "serialization"] if route.returns is not None else binary
        accepted["content"] = {route.options.media_type: {"schema": schema}}
    operation: JsonSchema = {
        "summary": route.summary,
        "parameters": parameters,
        "responses": {**refused, str(route.options.status): accepted},
    }
    if route.body is bytes:
        operation["requestBody"] = {"required": True, "content": {kind: {"schema": {"type": "string"}} for kind in UPLOADS}}
    elif route.body is not None:
        body = {"schema": schemas[f"{key} body", "validation"]}
        operation["requestBody"] = {"required": True, "content": {"application/json": body}}
    if route.options.public:
        operation["security"] = []
    return operation


def _target(schema: JsonSchema, definitions: JsonSchema) -> JsonSchema:
    return definitions[schema["$ref"].rsplit("/", 1)[-1]] if "$ref" in schema else schema


def _problem() -> JsonSchema:
    return {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


# ---------------------------------------------------------------- description as an HTML page


def render_html(routes: Sequence[Route]) -> str:
    """Return a description of all routes with their fields, as HTML that needs neither scripts nor styles."""
    sections = "\n".join(_section(route) for route in routes)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>samekind: the API</title></head><body>"
        "<h1>The API</h1><p>Programs send the token as <code>Authorization: Bearer TOKEN</code>; "
        "<code>samekind serve RUN --token-file FILE</code> writes it to a file. Errors are "
        "<code>application/problem+json</code>. "
        "The same for programs: <a href='/api/openapi.json'>openapi.json</a>.</p>\n"
        f"{sections}\n</body></html>\n"
    )


def _section(route: Route) -> str:
    lines: list[str] = []
    for model, before in ((route.query, "?"), (route.body, "")):
        if model is None or model is bytes:
            continue
        root = model.model_json_schema()
        for name, schema in root.get("properties", {}).items():
            required = " (required)" if name in root.get("required", []) else ""
            more = f"; {schema['description']}" if "description" in schema else ""
            lines.append(f"<li><code>{before}{escape(name)}</code>{required}: {escape(describe(schema, root) + more)}</li>")
    fields = "".join(lines)
    return f"<h2><code>{route.method} {escape(route.path)}</code></h2><p>{escape(route.summary)}</p><ul>{fields}</ul>"
