"""A viewer that runs beside the tests, what it answers, and its page in a browser."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

import draws
import kernelscope as ks
from browsing import Visit
from kernelscope.view.choice import Shown
from kernelscope.view.parameters import Parameters
from kernelscope.view.server import address, listen, serve, server_of
from kernelscope.view.session import Pair, Session
from waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOST = "127.0.0.1"
TOKEN = "a-token-that-only-the-tests-know"

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
_LOOKS = (("light", {}), ("dark", {}), ("dark", PHONE), ("light", PHONE))
each_look = pytest.mark.parametrize(
    ("theme", "options"),
    draws.some(_LOOKS, 2),
    ids=lambda value: value if isinstance(value, str) else "phone" if value else "screen",
)
"""Themes on screens of both sizes, each at least once."""
HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>&amp;<b>bold</b>",
    "\"><svg onload='alert(3)'>",
    "javascript:alert(4)",
    "two\nlines\tand\r\n\x00more",
    "\u202eright to left\u202c and \u05d0\u05d1\u05d2",
    "--accent",
    "__proto__",
    "constructor",
    "=HYPERLINK(1)",
    "long" * 25_000,
)

_SETTLED = "main[aria-busy=false]:not(:has(:is(.timeline, .flame, .occurrences)[aria-busy=true]))"


class Reply(NamedTuple):
    """What a server answers."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        """The sentence of a refusal."""
        return json.loads(self.body)["error"]


class Served:
    """A viewer that listens."""

    def __init__(self, url: str, session: Shown) -> None:
        self.url = url
        self.session = session
        parts = urlsplit(url)
        assert parts.port is not None
        self.port = parts.port
        self.host = f"{HOST}:{self.port}"

    def request(self, path: str, *, method: str = "GET", **headers: str) -> Reply:
        """Sends a request as it is; ``host`` and others are headers."""
        connection = http.client.HTTPConnection(HOST, self.port)
        given = {"host": self.host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in given.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    @property
    def cookie(self) -> str:
        """The cookie that a visit with the token gives."""
        return self.request(f"/?token={TOKEN}").headers["set-cookie"].partition(";")[0]

    def ask(self, name: str, **parameters: object) -> Any:
        """What the page is told."""
        return json.loads(self.request(f"/api/{name}?{urlencode(parameters)}", cookie=self.cookie).body)

    def ask_below(self, number: int, name: str, **parameters: object) -> Any:
        """What the page of one of several traces is told."""
        path = f"/{number}/api/{name}?{urlencode(parameters)}"
        return json.loads(self.request(path, cookie=self.cookie).body)


def session_of(path: Path) -> Session:
    """The session of a trace."""
    return Session(path.name, lambda watch: ks.read(path, progress=watch), path=str(path))


def pair_of(before: Path, after: Path) -> Pair:
    """The session of two traces."""
    return Pair(session_of(before), session_of(after))


@contextmanager
def served(path: Path, session: Shown | None = None) -> Iterator[Served]:
    """A viewer of the trace at ``path``, or of what else is to be shown."""
    session = session or session_of(path)
    server = server_of(session, host=HOST, token=TOKEN)
    listening = listen(HOST, 0)
    found = Served(address(listening, HOST, TOKEN), session)
    failure: list[BaseException] = []

    def run() -> None:
        try:
            serve(session, server, listening)
        except ks.KernelscopeError as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        server.should_exit = True
        thread.join()


def asked(**parameters: object) -> Parameters:
    """Parameters as a request has them."""
    return Parameters({name: str(value) for name, value in parameters.items()})


def wait_until_read(viewer: Served) -> dict[str, Any]:
    """What the viewer says of its trace, once that is read or cannot be."""
    return wait_until(lambda: once_read(viewer.ask("status")))


def once_read(status: dict[str, Any]) -> dict[str, Any] | None:
    """A status, but for one that says that the trace is being read."""
    return None if status["state"] == "reading" else status


class Viewer(Visit):
    """The page of a viewer in a browser."""

    settled = _SETTLED

    def __init__(self, browser: Browser, viewer: Served, **options: Any) -> None:
        self.served = viewer
        own = (f"http://{viewer.host}/", "blob:", "data:")
        size = {"width": 1440, "height": 900}
        super().__init__(browser, viewer.url, own, **{"viewport": size, **options})

    def open(self, place: str = "", *, below: str = "") -> None:
        """Opens the viewer anew at ``place``, such as ``#timeline``, of the page ``below`` its address."""
        self.url = self.served.url.replace("/?", f"/{below}?")
        super().open(place)

    @property
    def values(self) -> dict[str, str]:
        """What the address says of the view."""
        # The driver hears of another address only after the page has it.
        return dict(parse_qsl(self.page.evaluate("location.hash").partition("?")[2]))

    @property
    def shown(self) -> tuple[int, int]:
        """The range of time that the address names, once it has followed the zoom."""
        self.page.wait_for_selector(".timeline-view:not([data-moved])")
        self.settle()
        values = self.values
        found = self.served.ask("timeline")
        return int(values.get("from", found["start"])), int(values.get("to", found["end"]))

    def until(self, holds: Callable[[], bool]) -> None:
        """Waits until something holds; the page's policy lets no test wait inside it."""
        while not holds():
            self.page.wait_for_timeout(20)

    def said(self, place: str) -> str:
        """The text of an element; nothing if there is none."""
        found = self.page.locator(place)
        return found.first.text_content() or "" if found.count() else ""

    def refused(self, most: int) -> None:
        """Takes away what a browser says of up to ``most`` requests that were refused, as they should be."""
        said = [text for text in self.complaints if "the server responded with a status of 40" in text]
        assert 0 < len(said) <= most
        self.complaints = [text for text in self.complaints if text not in said]

    def panel(self) -> str:
        """The text of the details, once they are there."""
        self.page.wait_for_selector(".details[aria-busy=false] .panel")
        return self.page.inner_text(".panel")


@contextmanager
def visited(browser: Browser, viewer: Served, **options: Any) -> Iterator[Viewer]:
    """The page of a viewer in a browser, which has nothing to complain of."""
    found = Viewer(browser, viewer, **options)
    yield found
    assert found.complaints == []
    found.close()
