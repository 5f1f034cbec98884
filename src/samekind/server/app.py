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
from samekind.server import endpoints, exchange, learning, openapi, rest
from samekind.server.auth import HEADERS, SAFE, Asked, Keys, cookies_in
from samekind.server.desk import Desk
from samekind.server.routes import Call, Route, as_response

STATIC = Path(__file__).parent / "static"
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml", ".png": "image/png"}
TABLE: list[Route] = [*endpoints.ROUTES, *learning.ROUTES, *exchange.ROUTES, *rest.ROUTES]
TABLE += openapi.routes_for(lambda: TABLE)
log = logging.getLogger("samekind.server")


def app_for(desk: Desk) -> ASGIApp:
    """The whole server as an ASGI application."""
    paths = [Path_(route.path, _endpoint(desk, route), methods=[route.method]) for route in TABLE]
    paths += [Path_("/", _shell, methods=["GET"]), Path_("/static/{name}", _static, methods=["GET"])]
    plain = Starlette(routes=paths, exception_handlers={HTTPException: _http_error})
    return Guard(plain, desk.keys)


class Guard:
    """Stands before everything: decides who is answered, and puts the protecting headers on every answer."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self.app, self.keys = app, keys
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
            self.check(_asked(scope))
        except RequestError as error:
            await problem(error)(scope, receive, protected)
            return
        await self.app(scope, receive, protected)

    def check(self, asked: Asked) -> None:
        """Raises unless the request may be answered. Looks at the path of the request line, never at one made of headers."""
        self.keys.require_host(asked)
        if not asked.path.startswith(("/api/", "/img/")):
            return
        self.keys.require_same_site(asked)
        if (asked.method, asked.path) not in self._open:
            self.keys.require_person(asked)
        if asked.method not in SAFE:
            self.keys.require_own_page(asked)


def _asked(scope: Scope) -> Asked:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    cookies: dict[str, str] = {}
    for name, value in headers:
        if name == "cookie":
            cookies |= cookies_in(value)
    hosts = [value for name, value in headers if name == "host"]
    return Asked(scope["method"], scope["path"], dict(headers), hosts, cookies)


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


def _endpoint(desk: Desk, route: Route) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            if route.writes and desk.page.read_only:
                raise RequestError(403, "This run is open for reading only.")
            call = await _call(route, request)
            return as_response(await run_in_threadpool(route.does, desk, call))
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


async def _call(route: Route, request: Request) -> Call:
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
    return Call(parts, query, body, request.headers)


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
