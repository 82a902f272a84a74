"""``ks.view``: a trace in the cell of a notebook, in a script, and without a server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from viewing import HOST, Served

import kernelscope as ks
from kernelscope.errors import InvalidArgumentError, ServerError
from kernelscope.view import showing
from kernelscope.view.server import listen
from kernelscope.view.session import Session
from kernelscope.view.showing import Shown

if TYPE_CHECKING:
    from playwright.sync_api import Browser


class Notebook(SimpleHTTPRequestHandler):
    """A page of another origin than the viewer's, as notebooks have it."""

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has IPython say that values are shown in cells."""
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))  # pyright: ignore[reportArgumentType]
    for name in showing._HUBS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def shown(notebook: None, tiny: Path) -> Iterator[Shown]:
    found = ks.view(ks.read(tiny))
    yield found
    found.close()


def served(shown: Shown) -> tuple[Served, str]:
    """The server of what is shown, and the path of its page."""
    assert shown.url is not None
    viewer = Served(shown.url, Session("", lambda _: pytest.fail("it is read already")))
    return viewer, shown.url.partition(viewer.host)[2]


def test_each_address_has_the_token_and_nothing_else_is_answered(shown: Shown) -> None:
    viewer, place = served(shown)
    assert len(place) > 32
    page = viewer.request(place, sec_fetch_site="cross-site")
    assert page.status == 200
    assert b"<main" in page.body
    assert "frame-ancestors *" in page.headers["content-security-policy"]
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "set-cookie" not in page.headers
    assert viewer.request(f"{place}api/status").status == 200
    token = place.strip("/")
    for refused in (
        "/",
        "/main.js",
        "/api/status",
        f"/?token={token}",
        f"/x/{token}/",
        "/" + token[:-1] + ("y/" if token.endswith("x") else "x/"),
    ):
        reply = viewer.request(refused, cookie=f"kernelscope-00000000={token}")
        assert (reply.status, "token is missing" in reply.error) == (403, True), refused
    assert viewer.request(place, host="example.org").status == 403
    assert viewer.request(f"{place}api/status", method="POST").status == 405
    assert viewer.request(f"{place}api/status", origin="https://example.org").status == 403
    assert viewer.request(f"{place}../../etc/passwd").status == 404


def test_a_server_ends_when_it_is_closed(shown: Shown) -> None:
    viewer, place = served(shown)
    shown.close()
    with pytest.raises(ConnectionError):
        viewer.request(place)
    assert shown.url is None
    shown.close()


@pytest.mark.parametrize("server", [True, False])
def test_a_cell_shows_the_trace(
    browser: Browser, notebook: None, tiny: Path, tmp_path: Path, server: bool
) -> None:
    shown = ks.view(ks.read(tiny), server=server)
    (tmp_path / "cell.html").write_text(f"<!doctype html><title>A notebook</title>{shown._repr_html_()}")
    other = ThreadingHTTPServer((HOST, 0), partial(Notebook, directory=str(tmp_path)))
    Thread(target=other.serve_forever, args=(0.01,), daemon=True).start()
    page = browser.new_context().new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    # Of another site than the viewer's, which gets no cookie of it.
    page.goto(f"http://localhost:{other.server_address[1]}/cell.html")
    cell = page.frame_locator("iframe")
    cell.locator("html[data-ready=yes]").wait_for(state="attached")
    if server:
        cell.locator("#menu a[data-view=timeline]").click()
        cell.locator(".timeline[aria-busy=false]").wait_for()
        assert cell.locator(".label.track").count() == 2
    else:
        cell.locator("#menu a[data-view=kernels]").click()
        cell.locator("main[aria-busy=false] :text('gemm[bold]')").first.wait_for()
        # It reaches nothing of the notebook.
        assert page.frames[1].evaluate("origin") == "null"
    assert complaints == []
    page.context.close()
    other.shutdown()
    other.server_close()
    shown.close()


def test_a_hub_gets_a_page_without_a_server(
    notebook: None, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/me/")
    shown = ks.view(ks.read(tiny))
    assert shown.url is None
    assert "srcdoc=" in shown._repr_html_()
    assert "without a server" in repr(shown)


def test_a_port_that_is_taken_is_said_and_one_that_nobody_may_have_costs_only_the_server(
    notebook: None, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = ks.read(tiny)
    with listen(HOST, 0) as taken, pytest.raises(ServerError, match="is in use"):
        ks.view(trace, port=taken.getsockname()[1])

    def refuse(_host: str, _port: int) -> None:
        raise ServerError("cannot listen on")

    monkeypatch.setattr(showing, "listen", refuse)
    assert ks.view(trace).url is None
    with pytest.raises(ServerError):
        ks.view(trace, server=True)


def test_without_a_notebook_a_server_is_needed(tiny: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="only a notebook can show a trace; kernelscope analyze"):
        ks.view(ks.read(tiny), server=False)


def test_two_traces_are_compared_through_a_server(notebook: None, tiny: Path) -> None:
    before, after = ks.read(tiny), ks.read(tiny)
    shown = ks.view(before, after)
    viewer, base = served(shown)
    found = json.loads(viewer.request(f"{base}api/comparison").body)
    assert "nothing changed" in found["verdict"]
    for number in (0, 1):
        assert viewer.request(f"{base}{number}/api/timeline").status == 200
    shown.close()
    with pytest.raises(InvalidArgumentError, match="through a server"):
        ks.view(before, after, server=False)


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_a_script_serves_until_it_is_interrupted(tiny: Path) -> None:
    program = f"import kernelscope as ks; ks.view(ks.read({str(tiny)!r}))"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as script:
        assert script.stdout is not None
        url = script.stdout.readline().strip()
        viewer = Served(url, Session("", lambda _: pytest.fail("it is read already")))
        assert viewer.request(url.partition(viewer.host)[2]).status == 200
        script.send_signal(signal.SIGINT)
        _, errors = script.communicate()
    assert errors.strip().endswith("KeyboardInterrupt")
