"""Routes of the server: the signature of a route's handler declares what the request takes and what it returns.

The parameters of a handler are bound by name: `session`, `credentials` and `refits` (fields of AppState), `body` and `query`
(subclasses of RequestModel; a `body` of bytes is passed as sent), `headers`, and one for each `{part}` of the path. A handler
returns a TypedDict, which is sent as JSON, or a Response. Validation and the OpenAPI description follow from these annotations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter
from starlette.responses import Response

from samekind.server.app_state import AppState
from samekind.server.schemas import RequestModel

MAX_JSON_BYTES = 1 << 20
BINARY = "application/octet-stream"
STATE_FIELDS = frozenset(one.name for one in fields(AppState))
Handler = TypeVar("Handler", bound=Callable[..., Any])


@dataclass(frozen=True)
class RouteOptions:
    """Properties of a route that its handler's signature does not show."""

    max_bytes: int = MAX_JSON_BYTES
    writes: bool = False  # refused with --read-only
    public: bool = False  # needs no login
    media_type: str = "application/json"
    status: int = 200


@dataclass(frozen=True)
class Route:
    """One route: HTTP method, path and handler, with the types that the handler declares."""

    method: str
    path: str
    summary: str
    handler: Callable[..., Any]
    options: RouteOptions
    query: type[RequestModel] | None
    body: type[Any] | None  # a RequestModel, or bytes
    path_types: Mapping[str, TypeAdapter[Any]]
    returns: Any  # type of the JSON response; None if the handler returns a Response
    state_fields: tuple[str, ...]  # parts of the application state that the handler takes
    takes_headers: bool


@dataclass
class Router:
    """The routes of one resource, in the order of their declaration."""

    routes: list[Route] = field(default_factory=list)

    def get(self, path: str, summary: str, **options: Any) -> Callable[[Handler], Handler]:
        """Return a decorator that registers a handler for GET."""
        return self._register("GET", path, summary, RouteOptions(**options))

    def post(self, path: str, summary: str, **options: Any) -> Callable[[Handler], Handler]:
        """Return a decorator that registers a handler for POST."""
        return self._register("POST", path, summary, RouteOptions(**options))

    def patch(self, path: str, summary: str, **options: Any) -> Callable[[Handler], Handler]:
        """Return a decorator that registers a handler for PATCH."""
        return self._register("PATCH", path, summary, RouteOptions(**options))

    def _register(self, method: str, path: str, summary: str, options: RouteOptions) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            self.routes.append(_route(method, path, summary, handler, options))
            return handler

        return register


def _route(method: str, path: str, summary: str, handler: Callable[..., Any], options: RouteOptions) -> Route:
    types = get_type_hints(handler, include_extras=True)
    returns = types.pop("return")
    is_response = isinstance(returns, type) and issubclass(returns, Response)
    in_path = {name: TypeAdapter(types[name]) for name in types if f"{{{name}}}" in path}
    return Route(
        method,
        path,
        summary,
        handler,
        options,
        types.get("query"),
        types.get("body"),
        in_path,
        None if is_response else returns,
        tuple(name for name in types if name in STATE_FIELDS),
        "headers" in types,
    )


def binary_response(blob: bytes, headers: Mapping[str, str], more: Mapping[str, str]) -> Response:
    """Return bytes with an ETag of their content; status 304 if the client has them already."""
    etag = f'"{hashlib.blake2b(blob, digest_size=12).hexdigest()}"'
    sent = {"etag": etag, **more}
    if headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=sent)
    return Response(blob, media_type=BINARY, headers=sent)
