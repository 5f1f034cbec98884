"""Routes of the server. The signature of a route's handler declares what the request contains and what the handler returns.

Parameters of a handler are bound by name: `session`, `credentials`, `refits` and `instant` are fields of AppState; `body` and
`query` are subclasses of RequestModel (a `body` of type bytes is not parsed); `headers` are the headers; and there is one
parameter for each `{part}` of the path. A handler returns a TypedDict, which is sent as JSON, or a Response. Requests are
validated by these annotations, and the OpenAPI description is generated from them.
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
    """Properties of a route that the signature of its handler does not show."""

    max_bytes: int = MAX_JSON_BYTES
    writes: bool = False  # True: refused if the server is read-only
    public: bool = False  # True: needs no login
    media_type: str = "application/json"
    status: int = 200


@dataclass(frozen=True)
class Route:
    """One route: its HTTP method, its path, its handler, and the types that the handler declares."""

    method: str
    path: str
    summary: str
    handler: Callable[..., Any]
    options: RouteOptions
    query: type[RequestModel] | None
    body: type[Any] | None  # a RequestModel, or bytes; None: no body
    path_types: Mapping[str, TypeAdapter[Any]]
    returns: Any  # type of the JSON response; None: the handler returns a Response
    state_fields: tuple[str, ...]  # fields of AppState that the handler takes
    takes_headers: bool


@dataclass
class Router:
    """Routes of one resource, in the order in which they are declared."""

    routes: list[Route] = field(default_factory=list)

    def get(self, path: str, summary: str, **options: Any) -> Callable[[Handler], Handler]:
        """Return a decorator that registers a handler for GET requests."""
        return self._register("GET", path, summary, RouteOptions(**options))

    def post(self, path: str, summary: str, **options: Any) -> Callable[[Handler], Handler]:
        """Return a decorator that registers a handler for POST requests."""
        return self._register("POST", path, summary, RouteOptions(**options))

    def patch(self, path: str, summary: str, **options: Any) -> Callable[[Handler], Handler]:
        """Return a decorator that registers a handler for PATCH requests."""
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
    """Return bytes with a hash of their content as ETag; with status 304 and no body if the client has the same bytes
    already.
    """
    etag = f'"{hashlib.blake2b(blob, digest_size=12).hexdigest()}"'
    sent = {"etag": etag, **more}
    if headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=sent)
    return Response(blob, media_type=BINARY, headers=sent)
