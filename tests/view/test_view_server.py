"""Who may ask the viewer, what it refuses, and how it begins and ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from viewing import HOST, TOKEN, Served, served, wait_until_read

import kernelscope as ks
from events import Events
from kernelscope.errors import ServerError
from kernelscope.view.app import QUESTIONS
from kernelscope.view.security import Hosts
from kernelscope.view.server import listen, serve, server_of
from kernelscope.view.session import Session
from process_tree import bytes_read_in_all, wait_until_open
from waiting import LIMIT_S, wait_until

FILES = ("/", "/main.js", "/view.css", "/format.js", "/theme.css", "/icon.svg")


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    events = Events({"id": 0, "name": "NVIDIA H100", "numSms": 132})
    events.add("user_annotation", "ProfilerStep#1", 0, 100)
    events.add("cpu_op", "aten::mm", 10, 20, args={"External id": 1})
    events.add("cuda_runtime", "cudaLaunchKernel", 15, 5, args={"External id": 1, "correlation": 9})
    kernel = {"External id": 1, "correlation": 9, "device": 0, "stream": 7}
    events.add("kernel", "gemm", 40, 30, args=kernel, pid=0, tid=7)
    with served(events.write(tmp_path_factory.mktemp("view") / "trace.json")) as found:
        wait_until_read(found)
        yield found


def test_the_address_gives_a_cookie_and_loses_its_token(viewer: Served) -> None:
    reply = viewer.request(f"/?token={TOKEN}")
    assert (reply.status, reply.headers["location"]) == (303, "/")
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    away = viewer.request(f"//example.org/%0d%0a?token={TOKEN}&a=%26")
    assert (away.status, away.headers["location"]) == (303, "/example.org/%0D%0A?a=%26")
    page = viewer.request("/", cookie=viewer.cookie)
    assert page.status == 200
    assert b"<main" in page.body


@pytest.mark.parametrize("path", [*FILES, *(f"/api/{name}" for name in (*QUESTIONS, "status", "menu"))])
def test_nothing_is_answered_without_the_token(viewer: Served, path: str) -> None:
    for given in (
        {},
        {"cookie": "kernelscope-00000000=x"},
        {"cookie": viewer.cookie.partition("=")[0] + "=x"},
    ):
        reply = viewer.request(path, **given)
        assert reply.status == 403
        assert "token is missing or wrong" in reply.error
    assert viewer.request(f"{path}?token=wrong").status == 403
    assert viewer.request(f"{path}?token=").status == 403


@pytest.mark.parametrize(
    "host", ["example.org", "127.0.0.1.example.org", "localhost.example.org:80", "", "10.0.0.1", "[::2]"]
)
def test_other_hosts_are_refused(viewer: Served, host: str) -> None:
    reply = viewer.request("/api/status", host=host, cookie=viewer.cookie)
    assert reply.status == 403
    assert "not valid here" in reply.error


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9999", "LOCALHOST", "[::1]:80"])
def test_this_machine_may_be_asked_through_a_tunnel(viewer: Served, host: str) -> None:
    assert viewer.request("/api/status", host=host, cookie=viewer.cookie).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://example.org"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec_fetch_site": "cross-site"},
        # Another port of this machine, to which a browser sends the cookie.
        {"sec_fetch_site": "same-site"},
    ],
)
def test_other_sites_are_refused(viewer: Served, headers: dict[str, str]) -> None:
    reply = viewer.request("/api/status", cookie=viewer.cookie, **headers)
    assert reply.status == 403
    assert "only its own page" in reply.error


def test_the_page_itself_may_ask(viewer: Served) -> None:
    headers = {"origin": f"http://{viewer.host}", "sec_fetch_site": "same-origin"}
    assert viewer.request("/api/status", cookie=viewer.cookie, **headers).status == 200


def test_links_of_other_pages_lead_to_the_page_only(viewer: Served) -> None:
    """As in a mail, or in a terminal that is a page itself."""
    followed = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert viewer.request(f"/?token={TOKEN}", **followed).status == 303
    assert viewer.request("/", cookie=viewer.cookie, **followed).status == 200
    assert viewer.request("/", **followed).status == 403
    assert viewer.request("/api/status", cookie=viewer.cookie, **followed).status == 403
    embedded = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"}
    assert viewer.request("/", cookie=viewer.cookie, **embedded).status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT"])
@pytest.mark.parametrize("path", ["/", "/api/status", "/main.js"])
def test_writing_is_refused(viewer: Served, method: str, path: str) -> None:
    reply = viewer.request(path, method=method, cookie=viewer.cookie)
    assert reply.status == 405
    assert "is read-only" in reply.error


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml", "/%2e%2e/app.py", "/..%2fapp.py", "/assets/../../app.py", "//etc/passwd",
        "/app.py", "/main.js/../../app.py", "/main.js%00.css", "/....//app.py", "/api/../../app.py", "/.",
        "/api/", "/api/no", "/C:/windows", "/main.js/",
    ],
)  # fmt: skip
def test_no_path_leads_to_a_file(viewer: Served, path: str) -> None:
    reply = viewer.request(path, cookie=viewer.cookie)
    # Nothing but what is in memory has an address; a slash too many is sent on to where nothing is, either.
    assert reply.status in (404, 307)
    if reply.status == 404:
        assert reply.error == "the viewer has nothing at this address"
    else:
        assert reply.headers["location"].startswith(f"http://{viewer.host}/")


def test_every_answer_keeps_the_page_to_itself(viewer: Served) -> None:
    for path in (*FILES, "/api/status", "/api/timeline", "/nothing"):
        headers = viewer.request(path, cookie=viewer.cookie).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers
    # Refusals, too.
    assert "content-security-policy" in viewer.request("/", host="example.org").headers


@pytest.mark.parametrize(
    ("question", "parameters", "words"),
    [
        ("window", {}, "lacks start="),
        ("window", {"start": "1e9", "end": 5, "pixels": 5}, "must be a whole number, not '1e9'"),
        ("window", {"start": "٣", "end": 5, "pixels": 5}, "whole number"),
        ("window", {"start": "9" * 4000, "end": 5, "pixels": 5}, "whole number"),
        ("window", {"start": 0, "end": 9, "pixels": 5, "tracks": "-1"}, "numbers from 0"),
        ("window", {"start": 0, "end": 9, "pixels": 5, "tracks": ",".join(["1"] * 2001)}, "at most 2,000"),
        ("search", {"text": "x" * 5000}, "at most 4,096 characters"),
        ("hit", {"text": "gemm", "n": 7}, "there is no number 8"),
        ("details", {"row": 10**6}, "no event 1000000"),
        ("details", {"row": -1}, "no event -1"),
        ("view", {"id": "kernel"}, "did you mean kernels?"),
        ("table", {"view": "kernels", "table": "no"}, "has no table 'no'"),
        ("table", {"view": "kernels", "table": "kernels", "sort": "nothing"}, "no column 'nothing'"),
        (
            "table",
            {"view": "kernels", "table": "kernels", "filters": "total_ns > x"},
            "not a number of this column",
        ),
        ("evidence", {"id": "nothing"}, "no finding"),
        ("sql", {"statement": "drop table ops"}, "must begin with SELECT"),
        ("sql", {"statement": "select * from read_csv('/etc/passwd')"}, "reads files"),
    ],
)
def test_what_makes_no_sense_is_answered_with_a_sentence(
    viewer: Served, question: str, parameters: dict[str, Any], words: str
) -> None:
    error = viewer.ask(question, **parameters)["error"]
    assert words in error
    assert "\n" not in error
    assert "Traceback" not in error


def test_large_numbers_are_the_nearest_that_make_sense(viewer: Served) -> None:
    window = viewer.ask("window", start=-(10**25), end=10**25, pixels=10**9, tracks="0,1,2")
    assert window["pixels"] <= 32_768
    assert sorted(window["marks"]["track"]) == [0, 1, 1, 1]


def test_the_page_is_there_while_the_trace_is_read(tiny: Path) -> None:
    go_on = threading.Event()

    def read(watch: Callable[[int, int], object]) -> ks.Trace:
        watch(30, 100)
        assert go_on.wait(LIMIT_S)
        return ks.read(tiny)

    with served(tiny, Session("slow.json", read)) as viewer:
        assert viewer.request("/", cookie=viewer.cookie).status == 200
        wait_until(lambda: viewer.ask("status")["done"] == 30)
        assert viewer.ask("status") == {
            "state": "reading", "name": "slow.json", "done": 30, "total": 100, "error": None,
            "changed": False,
        }  # fmt: skip
        assert "still being read" in viewer.ask("timeline")["error"]
        go_on.set()
        assert wait_until_read(viewer)["state"] == "ready"
        assert len(viewer.ask("timeline")["tracks"]) == 2


def test_a_trace_that_cannot_be_read_is_told_to_the_page_and_ends_the_server(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("no trace")
    with served(bad) as viewer:
        status = wait_until_read(viewer)
        assert status["state"] == "failed"
        assert "bad.json" in status["error"]
        wait_until(lambda: not _answers(viewer))


def _answers(viewer: Served) -> bool:
    try:
        viewer.request("/")
    except ConnectionError:
        return False
    return True


def test_a_file_that_changes_is_noticed(tiny: Path) -> None:
    with served(tiny) as viewer:
        assert wait_until_read(viewer)["changed"] is False
        tiny.write_text("another trace")
        assert viewer.ask("status")["changed"] is True
        tiny.unlink()
        assert viewer.ask("status")["changed"] is True
        # What was read is there.
        assert len(viewer.ask("timeline")["tracks"]) == 2


def test_zero_events_have_an_empty_timeline(tmp_path: Path) -> None:
    with served(Events().write(tmp_path / "empty.json")) as viewer:
        wait_until_read(viewer)
        found = viewer.ask("timeline")
        assert (found["tracks"], found["steps"]) == ([], [])
        assert viewer.ask("window", start=0, end=10, pixels=10)["marks"]["row"] == []
        assert viewer.ask("search", text="x")["count"] == 0
        assert "no complete step" in viewer.ask("overview")["verdict"]
        assert viewer.ask("selection", start=0, end=10)["tables"] == []


def test_nobody_waits_for_what_nobody_asks_for_any_more(
    viewer: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelscope.view import answers

    begun: list[str] = []
    release = threading.Event()
    original = answers._respond

    def slow(work: Callable[[], object]) -> Any:
        begun.append("")
        assert release.wait(LIMIT_S)
        return original(work)

    monkeypatch.setattr(answers, "_respond", slow)
    head = f"host: {viewer.host}\r\ncookie: {viewer.cookie}\r\n\r\n"
    waiting = [socket.create_connection((HOST, viewer.port)) for _ in range(6)]
    for connection in waiting:
        connection.sendall(f"GET /api/timeline HTTP/1.1\r\n{head}".encode())
    wait_until(lambda: len(begun) >= 2)
    for connection in waiting:
        connection.close()
    # What is answered later has seen the others leave.
    for _ in range(5):
        assert viewer.request("/api/status", cookie=viewer.cookie).status == 200
    release.set()
    assert viewer.ask("timeline")["tracks"]
    # Of six questions two were being answered; the others left with who asked, or they would be in front.
    assert len(begun) == 3


def test_slow_clients_keep_nobody_waiting(viewer: Served) -> None:
    slow = [socket.create_connection((HOST, viewer.port)) for _ in range(30)]
    for connection in slow:
        connection.sendall(b"GET /api/status HTTP/1.1\r\nhost: 127")
    assert viewer.ask("status")["state"] == "ready"
    for connection in slow:
        connection.close()


def test_no_answer_waits_until_its_head_is_acknowledged() -> None:
    with listen(HOST, 0) as listening:
        connection = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        accepted.close()
        connection.close()


def test_a_port_in_use_is_a_sentence() -> None:
    with listen(HOST, 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ServerError, match=rf"port {port} of 127.0.0.1 is in use by another"):
            listen(HOST, port)
    with pytest.raises(ServerError, match=r"cannot listen on 203\.0\.113\.7"):
        listen("203.0.113.7", 0)
    with pytest.raises(ServerError, match=r"cannot listen on no\.such"):
        listen("no.such.host.invalid", 0)


def test_a_server_for_all_may_be_asked_by_address_and_not_by_any_name() -> None:
    everywhere = Hosts("0.0.0.0")
    assert "192.168.1.7:8000" in everywhere
    assert f"{socket.gethostname()}:8000" in everywhere
    assert "example.org" not in everywhere
    own = Hosts("192.168.1.7")
    assert "192.168.1.7:80" in own
    assert "192.168.1.8" not in own
    assert "192.168.1.7" not in Hosts(HOST)


class Command:
    """``kernelscope view`` in a process of its own."""

    def __init__(self, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kernelscope", "view", "--no-browser", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
        )

    def address(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> tuple[int, str]:
        _, errors = self.process.communicate()
        return self.process.returncode, errors


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_the_first_line_is_the_address_and_an_interrupt_ends_it_cleanly(tiny: Path) -> None:
    command = Command(tiny)
    url = command.address()
    assert url.startswith("http://127.0.0.1:")
    assert len(url.partition("?token=")[2]) >= 32
    viewer = Served(url, Session("", lambda _: ks.read(tiny)))
    assert viewer.request(url.partition(viewer.host)[2]).status == 303
    command.process.send_signal(signal.SIGINT)
    assert command.end() == (130, "kernelscope: interrupted\n")


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_reading_too(large: Path) -> None:
    command = Command(large, "--threads", "1")
    assert command.address()
    wait_until_open(command.process, large.name)
    command.process.send_signal(signal.SIGINT)
    assert bytes_read_in_all(command.process) < large.stat().st_size
    assert command.end() == (130, "kernelscope: interrupted\n")


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_the_server_begins(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Session("", lambda _: ks.read(tiny))
    server = server_of(shown, host=HOST, token=TOKEN)

    def begin(**_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        assert server.should_exit

    monkeypatch.setattr(server, "run", begin)
    with pytest.raises(KeyboardInterrupt):
        serve(shown, server, listen(HOST, 0))


@pytest.mark.slow
def test_what_is_wrong_is_one_sentence_and_an_exit_code(tmp_path: Path, tiny: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("no trace")
    with listen(HOST, 0) as taken:
        port = taken.getsockname()[1]
        asked = (
            ((tmp_path / "missing.json",), 1, "missing.json"),
            ((bad,), 1, "bad.json"),
            ((tiny, tmp_path / "missing.json"), 1, "missing.json"),
            ((tiny, bad), 1, "bad.json"),
            (("-", "-"), 2, "standard input contains one trace"),
            ((tiny, "--port", port), 1, f"port {port} of 127.0.0.1 is in use"),
            ((tiny, "--port", "70000"), 2, "is not a port"),
            ((tiny, "--port", "x"), 2, "is not a port"),
        )
        commands = [Command(*map(str, arguments)) for arguments, *_ in asked]
        for command, (_, code, words) in zip(commands, asked, strict=True):
            ended, errors = command.end()
            assert ended == code, errors
            assert words in errors
            assert errors.count("\n") == 1, errors
            assert errors.startswith("kernelscope: ")


def test_a_host_that_others_reach_is_said(
    cli: Callable[..., Any], tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelscope.view import server

    monkeypatch.setattr(server, "serve", lambda _session, _server, listening: listening.close())
    done = cli("view", tiny, "--host", "0.0.0.0", "--no-browser")
    assert done.returncode == 0
    assert "other machines can connect" in done.stderr
    assert "not encrypted" in done.stderr
    assert f"http://{socket.gethostname()}:" in done.stdout
    assert cli("view", tiny, "--no-browser").stderr == ""


def test_answers_are_json_that_any_browser_takes(viewer: Served) -> None:
    for name in ("timeline", "overview", "menu", "status"):
        reply = viewer.request(f"/api/{name}", cookie=viewer.cookie)
        assert reply.headers["content-type"] == "application/json"
        json.loads(reply.body, parse_constant=lambda _: pytest.fail("not JSON"))
