"""Access control: allowed host names, the token, login cookies, and protection against requests from other sites.

Browsers send the cookies of one server to every server on this machine, whatever its port. So a cookie is only valid together
with a secret path, which the page puts before all its requests and which only the page knows. Other servers do not get the
cookie, because it belongs to that path; and without the path it is useless.

A page of another site, or of another port of this machine, can send requests here with the user's cookie. So a request that
writes needs the exact origin, a header that other sites cannot send, and a content type that HTML forms cannot send.
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
MAX_LOGINS = 64
PAGE_PATH = "/s-"  # beginning of the secret path
SAFE_METHODS = ("GET", "HEAD")
# Content types that a form or a script of another site cannot send without a preflight request.
CONTENT_TYPES = frozenset(("application/json", "application/x-ndjson", "text/csv"))
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
    """The parts of a request that decide whether it is allowed. Header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    hosts: list[str]  # values of all Host headers in the request
    cookies: dict[str, str]
    by_page: bool = False  # True: the correct secret path stood before `path`


@dataclass
class Credentials:
    """Secrets of one server process. They are only kept in memory, so that old cookies are useless after a restart."""

    port: int
    allowed: frozenset[str] = LOOPBACK
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    page_path: str = field(default_factory=lambda: PAGE_PATH + secrets.token_urlsafe(32))
    _one_time: dict[str, float] = field(default_factory=dict)
    _logins: list[str] = field(default_factory=list)  # SHA-256 of the cookie of each login

    @property
    def cookie(self) -> str:
        return f"samekind_{self.port}"

    def one_time_token(self) -> str:
        """Return a token that is valid once, for the link with which the browser is opened.

        Other users of the machine can read this link in the list of processes.
        """
        token = secrets.token_urlsafe(32)
        self._one_time[_hash(token)] = time.monotonic() + ONE_TIME_SECONDS
        return token

    def log_in(self, token: str) -> str:
        """Return the cookie of a new login; raise RequestError if the token is wrong."""
        hashed = _hash(token)
        one_time = self._one_time.pop(hashed, 0.0) > time.monotonic()
        if not (_same(token, self.token) or one_time):
            raise RequestError(401, "This token does not belong to this server. Open the link that the terminal printed.")
        login = secrets.token_urlsafe(32)
        self._logins = [*self._logins[-MAX_LOGINS + 1 :], _hash(login)]
        return login

    def is_login(self, cookie: str) -> bool:
        return any(hmac.compare_digest(_hash(cookie), known) for known in self._logins)

    def is_page_path(self, path: str) -> bool:
        return _same(path, self.page_path)

    # ---------------------------------------------------------------- checks of a request

    def require_host(self, info: RequestInfo) -> None:
        """Refuse a request to a host name that is not allowed. This protects against DNS rebinding."""
        name, _, port = info.hosts[0].rpartition(":") if len(info.hosts) == 1 else ("", "", "")
        if not port.isdecimal() or not name:
            name = info.hosts[0] if len(info.hosts) == 1 else ""
        if name.lower() not in self.allowed:
            raise RequestError(400, "This server does not answer to that host name. Use the link that the terminal printed.")

    def require_same_site(self, info: RequestInfo) -> None:
        """Refuse a request that a page of another site made."""
        site = info.headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none"):
            raise RequestError(403, "This request comes from another site. Open the link that the terminal printed.")

    def require_login(self, info: RequestInfo) -> None:
        """Refuse a request without a login.

        A login is the cookie under the secret path, or the token as `Authorization: Bearer`.
        """
        by_page = info.by_page and self.is_login(info.cookies.get(self.cookie, ""))
        if not (by_page or self.is_program(info)):
            raise RequestError(401, "A login is needed. Open the link that the terminal printed.")

    def is_program(self, info: RequestInfo) -> bool:
        scheme, _, token = info.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and _same(token.strip(), self.token)

    def require_own_origin(self, info: RequestInfo) -> None:
        """Refuse a request that writes, unless it comes from the page itself, or from a program with the token."""
        origin = info.headers.get("origin")
        program = self.is_program(info)
        if not (origin is None and program) and origin not in _origins(info.hosts[0]):
            raise RequestError(403, "The Origin of this request is not this server.")
        if not program and info.headers.get("x-samekind") != "1":
            raise RequestError(403, "The header X-Samekind: 1 is missing.")
        kind = info.headers.get("content-type", "").partition(";")[0].strip().lower()
        has_body = info.headers.get("content-length", "0") != "0" or "transfer-encoding" in info.headers
        if has_body and kind not in CONTENT_TYPES:
            raise RequestError(403, f"The content type {kind[:60]!r} is not accepted; expected application/json.")


def parse_cookies(header: str) -> dict[str, str]:
    """Return the cookies as {name: value}. Malformed cookies, which other servers on this machine may set, do no harm."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return {name: value for name, _, value in pairs}


def allowed_hosts(more: Iterable[str]) -> frozenset[str]:
    """Return the host names that requests may use: those of this machine, and those that the user allowed."""
    return LOOPBACK | {name.lower() for name in more}


def _origins(host: str) -> tuple[str, str]:
    return f"http://{host.lower()}", f"https://{host.lower()}"


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
