"""Access control of the viewer: only the browser with its address, under this machine's name, and read-only.

A page of any other site can make a browser send requests to this machine. So each request must name this
machine as its host (other names whose DNS entry points here are refused), must come from a page of the viewer
itself, and must contain the token of the printed address.
"""

import hashlib
import ipaddress
import json
import secrets
import socket
from collections.abc import Iterable, Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}


def _policy(rules: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {value}" for name, value in rules.items())


_HEADERS = {
    "content-security-policy": _policy(_POLICY),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
# Who frames the viewer knows its token, which each address has.
_FRAMED = {
    "content-security-policy": _policy({**_POLICY, "frame-ancestors": "*"}),
    "cross-origin-resource-policy": "cross-origin",
}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVERY_ADDRESS = ("0.0.0.0", "::")
"""Hosts on which a server is reachable through every address of the machine."""

_TOKEN = "token"


def new_token() -> str:
    """Returns an unguessable token."""
    return secrets.token_urlsafe(24)


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach a server that listens on ``host``."""
    return host in _LOOPBACK


class Hosts:
    """Host names under which a server that listens on ``host`` accepts requests.

    Any port is accepted, because tunnels change it.

    A server that listens on all addresses accepts any address, but no name except the machine's own.
    """

    def __init__(self, host: str) -> None:
        own = () if is_loopback(host) else (host, socket.gethostname(), socket.getfqdn())
        self._names = {name.lower() for name in (*_LOOPBACK, *own)}
        self._any_address = host in EVERY_ADDRESS

    def __contains__(self, given: object) -> bool:
        name = _without_port(str(given).lower())
        return name in self._names or (self._any_address and _is_address(name))


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """Passes permitted requests to ``app``, and adds headers to responses that isolate the page.

    A visit with the token in its address gets a cookie and is redirected to the address without it. So the
    token is neither in the history of the browser nor in a picture of its window. ``in_frames`` of other
    pages, where a browser keeps no cookie, each address begins with the token instead.
    """

    def __init__(self, app: ASGIApp, *, token: str, hosts: Hosts, in_frames: bool) -> None:
        self._app = app
        self._token = token
        self._hosts = hosts
        self._in_frames = in_frames
        self._headers = {**_HEADERS, **(_FRAMED if in_frames else {})}
        # Of its own, because a browser sends cookies to every port of a machine.
        self._cookie = f"kernelscope-{hashlib.sha256(token.encode()).hexdigest()[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or refuses it with a sentence."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _answer(guarded, refusal[0], {"content-type": "application/json"}, refusal[1])
        elif self._in_frames:
            await self._app({**scope, "path": "/" + _split(scope)[1]}, receive, guarded)
        elif self._is_token(query := _query(scope)):
            query.pop(_TOKEN)
            cookie = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Lax"
            place = "/" + quote(scope["path"].lstrip("/")) + (f"?{urlencode(query)}" if query else "")
            await _answer(guarded, 303, {"location": place, "set-cookie": cookie}, "")
        else:
            await self._app(scope, receive, guarded)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """The status and the sentence with which a request is refused; None if it is not."""
        host = headers.get("host", "")
        if host not in self._hosts:
            return 403, "this host name is not valid here: open the address that kernelscope view printed"
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "this viewer is read-only and accepts only GET requests"
        origin = headers.get("origin")
        has_token = self._agrees(_split(scope)[0]) if self._in_frames else self._is_token(_query(scope))
        # A link of another page may lead to this one, as those in a mail or in a terminal that is a page do.
        site = headers.get("sec-fetch-site", "none")
        is_link = scope["path"] == "/" and headers.get("sec-fetch-mode") == "navigate"
        from_elsewhere = site not in ("same-origin", "none") and not has_token and not is_link
        if from_elsewhere or (origin is not None and origin.partition("://")[2] != host):
            return 403, "this viewer answers only its own page, not other sites"
        has_cookie = not self._in_frames and self._is_cookie(headers.getlist("cookie"))
        if not (has_token or has_cookie):
            return (
                403,
                "the token is missing or wrong: open the complete address that kernelscope view printed",
            )
        return None

    def _is_token(self, query: dict[str, str]) -> bool:
        return self._agrees(query.get(_TOKEN))

    def _is_cookie(self, cookies: Iterable[str]) -> bool:
        for text in cookies:
            try:
                found = SimpleCookie(text).get(self._cookie)
            except CookieError:
                continue
            if found is not None and self._agrees(found.value):
                return True
        return False

    def _agrees(self, given: str | None) -> bool:
        return given is not None and secrets.compare_digest(given.encode(), self._token.encode())


def _split(scope: Scope) -> tuple[str, str]:
    """The first part of a path, where the token is, and the rest."""
    first, _, rest = str(scope["path"]).removeprefix("/").partition("/")
    return first, rest


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope["query_string"].decode("latin-1")))


async def _answer(send: Send, status: int, headers: dict[str, str], error: str) -> None:
    body = json.dumps({"error": error}).encode() if error else b""
    pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    pairs.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
