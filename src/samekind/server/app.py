"""The ASGI application of the server.

Security checks come first, then routing; error responses say nothing about the machine.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from samekind.errors import RequestError, SamekindError, StoreError
from samekind.server.app_state import AppState
from samekind.server.routes import find_routes
from samekind.server.routing import Route, Router
from samekind.server.schemas import RequestModel, validate_body, validate_path, validate_query
from samekind.server.security import HEADERS, PAGE_PATH, SAFE_METHODS, Credentials, RequestInfo, parse_cookies

STATIC = Path(__file__).parent / "static"
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml", ".png": "image/png"}
BODY_SECONDS = 15.0  # seconds in which the body of a request must arrive, plus the time that BODY_RATE allows for large bodies
BODY_RATE = 64 << 10  # a route that allows a larger body gets a further second for each BODY_RATE bytes
log = logging.getLogger("samekind.server")
description = Router()


@description.get("/api/openapi.json", "OpenAPI description of this API")
def openapi_json() -> dict[str, Any]:
    from samekind.server.openapi import describe_api

    return describe_api(ROUTES)


@description.get("/api/docs", "Description of this API as a page", media_type="text/html")
def openapi_html() -> Response:
    from samekind.server.openapi import render_html

    return Response(render_html(ROUTES), media_type="text/html")


ROUTES: list[Route] = find_routes() + description.routes


def create_app(state: AppState) -> ASGIApp:
    """Return the whole server as an ASGI application."""
    paths = [StarletteRoute(route.path, _endpoint(state, route), methods=[route.method]) for route in ROUTES]
    paths += [StarletteRoute("/", _index, methods=["GET"]), StarletteRoute("/static/{name}", _static, methods=["GET"])]
    app = Starlette(routes=paths, exception_handlers={HTTPException: _http_error})
    return SecurityMiddleware(app, state.credentials)


class SecurityMiddleware:
    """ASGI middleware that checks every request before the application gets it, and adds security headers to all responses."""

    def __init__(self, app: ASGIApp, credentials: Credentials) -> None:
        self.app, self.credentials = app, credentials
        self._public = {(route.method, route.path) for route in ROUTES if route.options.public}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                more = {**HEADERS, "cache-control": "no-store"}
                added = [(name.encode(), value.encode()) for name, value in more.items() if name.encode() not in present]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        scope, by_page = self._split_page_path(scope)
        try:
            self.check(_request_info(scope, by_page=by_page))
        except RequestError as error:
            await problem_response(error)(scope, receive, send_protected)
            return
        await self.app(scope, receive, send_protected)

    def _split_page_path(self, scope: Scope) -> tuple[Scope, bool]:
        """Return the request with the secret first part of its path removed, and whether that part was correct."""
        if not scope["path"].startswith(PAGE_PATH):
            return scope, False
        first, _, rest = scope["path"][1:].partition("/")
        path = {"path": f"/{rest}", "raw_path": f"/{rest}".encode()}
        return {**scope, **path}, self.credentials.is_page_path(f"/{first}")

    def check(self, info: RequestInfo) -> None:
        """Raise RequestError unless the request is allowed.

        `info.path` is the path in the request line, which no header can change.
        """
        self.credentials.require_host(info)
        if not info.path.startswith(("/api/", "/img/")):
            return
        self.credentials.require_same_site(info)
        if (info.method, info.path) not in self._public:
            self.credentials.require_login(info)
        if info.method not in SAFE_METHODS:
            self.credentials.require_own_origin(info)


def _request_info(scope: Scope, *, by_page: bool) -> RequestInfo:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    cookies: dict[str, str] = {}
    for name, value in headers:
        if name == "cookie":
            cookies |= parse_cookies(value)
    hosts = [value for name, value in headers if name == "host"]
    return RequestInfo(scope["method"], scope["path"], dict(headers), hosts, cookies, by_page)


def problem_response(error: RequestError) -> Response:
    """Return an error as a response of type application/problem+json."""
    title = HTTPStatus(error.status).phrase
    content = {"title": title, "status": error.status, "detail": error.detail, **error.more}
    return JSONResponse(content, error.status, media_type="application/problem+json")


def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    details = {404: "There is nothing at this address.", 405: "This address does not take that method."}
    response = problem_response(RequestError(status, details.get(status, "The request cannot be handled.")))
    if isinstance(error, HTTPException):
        response.headers.update(error.headers or {})
    return response


# ---------------------------------------------------------------- handling of requests


def _endpoint(state: AppState, route: Route) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        try:
            if route.options.writes and state.session.read_only:
                raise RequestError(403, "This run is open for reading only.")
            arguments = await _arguments(route, request)
            shared = {name: getattr(state, name) for name in route.state_fields}
            # abandon_on_cancel: when the server stops, it does not wait for a handler that takes long, for example to load
            # torch
            result = await anyio.to_thread.run_sync(partial(route.handler, **shared, **arguments), abandon_on_cancel=True)
            return result if isinstance(result, Response) else JSONResponse(result, route.options.status)
        except RequestError as error:
            return problem_response(error)
        except StoreError as error:
            log.error("%s", error)
            return problem_response(RequestError(503, "The label store could not be written. Nothing was changed; try again."))
        except ClientDisconnect:
            return Response(status_code=400)
        except asyncio.CancelledError:  # a request is only cancelled when the server ends
            return problem_response(RequestError(503, "The server was stopped before the request was finished."))
        except SamekindError as error:
            log.error("%s", error)
            return problem_response(RequestError(422, "The request failed; the terminal shows why."))
        except Exception:
            log.exception("%s %s failed", route.method, route.path)
            return problem_response(RequestError(500, "The server failed on this request; the terminal shows why."))

    return respond


async def _arguments(route: Route, request: Request) -> dict[str, Any]:
    """Return the keyword arguments that a route's handler gets from the request, after validating them."""
    arguments = {name: validate_path(route.path_types[name], text) for name, text in request.path_params.items()}
    pairs = request.query_params.multi_items()
    if len({name for name, _ in pairs}) != len(pairs):
        raise RequestError(422, "The query string has a parameter twice. Send each parameter once.")
    query = validate_query(route.query or RequestModel, dict(pairs))
    if route.query is not None:
        arguments["query"] = query
    blob = await _read_body(request, route.options.max_bytes) if route.method not in SAFE_METHODS else b""
    if route.body is bytes:
        arguments["body"] = blob
    elif route.body is not None:
        arguments["body"] = validate_body(route.body, _parse_json(blob))
    if route.takes_headers:
        arguments["headers"] = request.headers
    return arguments


async def _read_body(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "0")
    too_large = RequestError(413, f"More than {limit} bytes were sent.")
    if declared.isdecimal() and int(declared) > limit:
        raise too_large
    parts, size = [], 0
    try:
        with anyio.fail_after(BODY_SECONDS + limit / BODY_RATE):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise too_large
                parts.append(part)
    except TimeoutError as error:
        raise RequestError(408, "The body of the request did not arrive in time. Send it again.") from error
    return b"".join(parts)


def _parse_json(blob: bytes) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not a valid JSON number")

    try:
        return json.loads(blob or b"{}", parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise RequestError(422, "The body is not JSON.") from error


# ---------------------------------------------------------------- static files, which contain no data of the run


def _index(request: Request) -> Response:
    return _file("index.html", request)


def _static(request: Request) -> Response:
    return _file(request.path_params["name"], request)


def _file(name: str, request: Request) -> Response:
    known = {path.name: path for path in STATIC.iterdir() if path.suffix in TYPES and path.is_file()}
    if name not in known:
        raise HTTPException(404)
    stat = known[name].stat()
    etag = f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"'
    headers = {"etag": etag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(known[name].read_bytes(), media_type=TYPES[known[name].suffix], headers=headers)
