"""Who may ask: the host names this server answers to, the token, sessions, and requests that come from another page.

A page of any other site, also one on another port of this machine, can send requests here with the person's cookie. So a
write needs the exact origin, a header that no foreign page can send, and a type that no form can send.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from samekind.errors import RequestError

LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
ONE_TIME_SECONDS = 60.0
MOST_SESSIONS = 64
SAFE = ("GET", "HEAD")
# types that a form or a plain script of another site cannot send
TYPES = frozenset(("application/json", "application/x-ndjson", "text/csv"))
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class RequestInfo:
    """The parts of a request that decide whether it is answered. Headers by their names in small letters."""

    method: str
    path: str
    headers: dict[str, str]
    hosts: list[str]  # as many as were sent
    cookies: dict[str, str]


@dataclass
class Credentials:
    """The secrets of one process: gone with it, so that no old cookie works after a restart."""

    port: int
    allowed: frozenset[str] = LOOPBACK
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _one_time: dict[str, float] = field(default_factory=dict)
    _sessions: list[str] = field(default_factory=list)  # hashed

    @property
    def cookie(self) -> str:
        return f"samekind_{self.port}"

    def one_time_token(self) -> str:
        """For a browser that is started with it, because other users of the machine see how programs were started."""
        token = secrets.token_urlsafe(32)
        self._one_time[_hash(token)] = time.monotonic() + ONE_TIME_SECONDS
        return token

    def session_for(self, token: str) -> str:
        """A new session for whoever has the token."""
        hashed = _hash(token)
        one_time = self._one_time.pop(hashed, 0.0) > time.monotonic()
        if not (_same(token, self.token) or one_time):
            raise RequestError(401, "This token is not the one of this server. Open the link that the terminal printed.")
        session = secrets.token_urlsafe(32)
        self._sessions = [*self._sessions[-MOST_SESSIONS + 1 :], _hash(session)]
        return session

    def knows(self, session: str) -> bool:
        return any(hmac.compare_digest(_hash(session), known) for known in self._sessions)

    # ---------------------------------------------------------------- the rules

    def require_host(self, info: RequestInfo) -> None:
        """A name that a foreign site points at this machine (DNS rebinding) is refused before anything else is read."""
        name, _, port = info.hosts[0].rpartition(":") if len(info.hosts) == 1 else ("", "", "")
        if not port.isdecimal() or not name:
            name = info.hosts[0] if len(info.hosts) == 1 else ""
        if name.lower() not in self.allowed:
            raise RequestError(400, "This server does not answer to that name. Use the link that the terminal printed.")

    def require_same_site(self, info: RequestInfo) -> None:
        """Nothing of the run is shown inside another page."""
        site = info.headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none"):
            raise RequestError(403, "This was asked from another page. Open the link that the terminal printed.")

    def require_person(self, info: RequestInfo) -> None:
        """A session, or the token itself as `Authorization: Bearer` from a program."""
        if not (self.is_program(info) or self.knows(info.cookies.get(self.cookie, ""))):
            raise RequestError(401, "A session is needed. Open the link that the terminal printed.")

    def is_program(self, info: RequestInfo) -> bool:
        scheme, _, token = info.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and _same(token.strip(), self.token)

    def require_own_page(self, info: RequestInfo) -> None:
        """A write must come from the page itself, or from a program with the token."""
        origin = info.headers.get("origin")
        program = self.is_program(info)
        if not (origin is None and program) and origin not in _origins(info.hosts[0]):
            raise RequestError(403, "The Origin of this request is not this server.")
        if not program and info.headers.get("x-samekind") != "1":
            raise RequestError(403, "The header X-Samekind: 1 is missing.")
        kind = info.headers.get("content-type", "").partition(";")[0].strip().lower()
        sends = info.headers.get("content-length", "0") != "0" or "transfer-encoding" in info.headers
        if sends and kind not in TYPES:
            raise RequestError(403, f"The content type {kind[:60]!r} is not taken; expected application/json.")


def cookies_in(header: str) -> dict[str, str]:
    """Cookies by their names. Other servers of this machine set cookies as well, and odd ones must not hide ours."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return {name: value for name, _, value in pairs}


def allowed_hosts(more: Iterable[str]) -> frozenset[str]:
    """The names a server answers to: loopback, and those that were allowed."""
    return LOOPBACK | {name.lower() for name in more}


def _origins(host: str) -> tuple[str, str]:
    return f"http://{host.lower()}", f"https://{host.lower()}"


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
