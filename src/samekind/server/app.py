"""The server itself: a guard in front, one table of routes behind it, and answers to errors that give nothing away."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as Path_
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from samekind.errors import RequestError, SamekindError, StoreError
from samekind.server import openapi
from samekind.server.app_state import AppState
from samekind.server.routes import export_import, items, models, rest
from samekind.server.routing import ParsedRequest, Route, as_response
from samekind.server.security import HEADERS, SAFE, Credentials, RequestInfo, cookies_in

STATIC = Path(__file__).parent / "static"
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml", ".png": "image/png"}
TABLE: list[Route] = [*items.ROUTES, *models.ROUTES, *export_import.ROUTES, *rest.ROUTES]
TABLE += openapi.routes_for(lambda: TABLE)
log = logging.getLogger("samekind.server")


def create_app(state: AppState) -> ASGIApp:
    """The whole server as an ASGI application."""
    paths = [Path_(route.path, _endpoint(state, route), methods=[route.method]) for route in TABLE]
    paths += [Path_("/", _shell, methods=["GET"]), Path_("/static/{name}", _static, methods=["GET"])]
    plain = Starlette(routes=paths, exception_handlers={HTTPException: _http_error})
    return SecurityMiddleware(plain, state.credentials)


class SecurityMiddleware:
    """Stands before everything: decides who is answered, and puts the protecting headers on every answer."""

    def __init__(self, app: ASGIApp, credentials: Credentials) -> None:
        self.app, self.credentials = app, credentials
        self._open = {(route.method, route.path) for route in TABLE if route.open}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                have = {name for name, _ in message["headers"]}
                more = {**HEADERS, "cache-control": "no-store"}
                added = [(name.encode(), value.encode()) for name, value in more.items() if name.encode() not in have]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        try:
            self.check(_info(scope))
        except RequestError as error:
            await problem(error)(scope, receive, protected)
            return
        await self.app(scope, receive, protected)

    def check(self, info: RequestInfo) -> None:
        """Raises unless the request may be answered. Looks at the path of the request line, never at one made of headers."""
        self.credentials.require_host(info)
        if not info.path.startswith(("/api/", "/img/")):
            return
        self.credentials.require_same_site(info)
        if (info.method, info.path) not in self._open:
            self.credentials.require_person(info)
        if info.method not in SAFE:
            self.credentials.require_own_page(info)


def _info(scope: Scope) -> RequestInfo:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    cookies: dict[str, str] = {}
    for name, value in headers:
        if name == "cookie":
            cookies |= cookies_in(value)
    hosts = [value for name, value in headers if name == "host"]
    return RequestInfo(scope["method"], scope["path"], dict(headers), hosts, cookies)


def problem(error: RequestError) -> Response:
    """An error as application/problem+json."""
    title = HTTPStatus(error.status).phrase
    words = {"title": title, "status": error.status, "detail": error.detail, **error.more}
    return JSONResponse(words, error.status, media_type="application/problem+json")


def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    words = {404: "There is nothing at this address.", 405: "This address does not take that method."}
    answer = problem(RequestError(status, words.get(status, "This cannot be answered.")))
    if isinstance(error, HTTPException):
        answer.headers.update(error.headers or {})
    return answer


# ---------------------------------------------------------------- from a route to an answer


def _endpoint(state: AppState, route: Route) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            if route.writes and state.session.read_only:
                raise RequestError(403, "This run is open for reading only.")
            parsed = await _call(route, request)
            return as_response(await run_in_threadpool(route.does, state, parsed))
        except RequestError as error:
            return problem(error)
        except StoreError as error:
            log.error("%s", error)
            return problem(RequestError(503, "The label store could not be written. Nothing was changed; try again."))
        except ClientDisconnect:
            return Response(status_code=400)
        except SamekindError as error:
            log.error("%s", error)
            return problem(RequestError(422, "This could not be done; the terminal says why."))
        except Exception:
            log.exception("%s %s failed", route.method, route.path)
            return problem(RequestError(500, "Something went wrong here. The terminal says what."))

    return answer


async def _call(route: Route, request: Request) -> ParsedRequest:
    try:
        parts = {name: route.parts[name].read(value, name) for name, value in request.path_params.items()}
    except RequestError as error:
        raise RequestError(404, "There is nothing at this address.") from error
    pairs = request.query_params.multi_items()
    if len({name for name, _ in pairs}) != len(pairs):
        raise RequestError(422, "Something in the query is there twice.")
    query = route.query.read(dict(pairs), "the query")
    blob = await _body(request, route.limit) if route.method not in SAFE else b""
    body: Any = blob
    if not route.sends_bytes:
        body = route.body.read(_json(blob), "the body") if route.body is not None else None
    return ParsedRequest(parts, query, body, request.headers)


async def _body(request: Request, limit: int) -> bytes:
    told = request.headers.get("content-length", "0")
    too_much = RequestError(413, f"More than {limit} bytes were sent.")
    if told.isdecimal() and int(told) > limit:
        raise too_much
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise too_much
        parts.append(part)
    return b"".join(parts)


def _json(blob: bytes) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no number of JSON")

    try:
        return json.loads(blob or b"{}", parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise RequestError(422, "The body is not JSON.") from error


# ---------------------------------------------------------------- the shell, which holds no data


def _shell(request: Request) -> Response:
    return _file("index.html", request)


def _static(request: Request) -> Response:
    return _file(request.path_params["name"], request)


def _file(name: str, request: Request) -> Response:
    known = {path.name: path for path in STATIC.iterdir() if path.suffix in TYPES and path.is_file()}
    if name not in known:
        raise HTTPException(404)
    about = known[name].stat()
    tag = f'"{about.st_mtime_ns:x}-{about.st_size:x}"'
    headers = {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    kind = TYPES[known[name].suffix]
    return Response(known[name].read_bytes(), media_type=kind, headers=headers)
