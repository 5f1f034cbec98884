"""What a route is: its path, what it takes, what it does. One table of them makes server, checks and description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response

from samekind.server.shapes import Fields, Shape, Whole

if TYPE_CHECKING:
    from samekind.server.app_state import AppState

JSON_LIMIT = 1 << 20


@dataclass(frozen=True)
class ParsedRequest:
    """One request, checked: who it is about (`path`), what is asked (`query`) and what was sent (`body`)."""

    path: Mapping[str, Any]
    query: Mapping[str, Any]
    body: Any
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Route:
    """`does` gets the desk and the call, and gives JSON or a whole response."""

    method: str
    path: str
    does: Callable[[AppState, ParsedRequest], Any]
    says: str
    query: Fields = field(default_factory=Fields)
    body: Shape | None = None  # of JSON; None where nothing or bytes are sent
    sends_bytes: bool = False
    limit: int = JSON_LIMIT
    writes: bool = False  # refused with --read-only
    open: bool = False  # needs no session
    gives: str = "application/json"
    statuses: tuple[int, ...] = (200,)
    parts: Mapping[str, Shape] = field(default_factory=lambda: {"id": Whole(0, 2**31 - 1)})  # of the path


def as_response(answer: Any) -> Response:
    """JSON, unless it is a response already."""
    return answer if isinstance(answer, Response) else JSONResponse(answer)
