"""A folder of traces in the viewer: what is listed of each, what is opened, kept and refused."""

from __future__ import annotations

import gzip
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from viewing import HOSTILE, Served, once_read, served, wait_until_read

import kernelscope as ks
from events import Events
from kernelscope.errors import InvalidArgumentError, NotATraceError, NotRecordedError
from kernelscope.view import choice as choosing
from kernelscope.view.catalogue import Folder
from kernelscope.view.choice import Choice
from kernelscope.view.headers import Header, header_of
from kernelscope.view.session import Progress
from waiting import wait_until

JOB = {"backend": "nccl", "rank": 5, "world_size": 8}


def write(path: Path, **properties: Any) -> Path:
    """A trace of one kernel."""
    path.parent.mkdir(parents=True, exist_ok=True)
    events = Events({"id": 0, "name": "NVIDIA H100", "numSms": 132})
    events.add("user_annotation", "ProfilerStep#1", 0, 100)
    events.call(15, 5, 9)
    events.kernel("gemm", 40, 30, 9)
    return events.write(path, **properties)


def choice_of(folder: Path, **options: Any) -> Choice:
    return Choice(Folder(str(folder), lambda path, watch: ks.read(path, progress=watch)), **options)


def rows_of(folder: Path) -> pl.DataFrame:
    """What is listed of a folder."""
    catalogue = Folder(str(folder), lambda *_: pytest.fail("nothing is opened"))
    catalogue.look(lambda *_: None)
    catalogue.look_inside(lambda *_: None)
    try:
        return catalogue.rows()
    finally:
        catalogue.close()


def wait_until_complete(viewer: Served) -> dict[str, Any]:
    wait_until_read(viewer)
    wait_until(lambda: viewer.ask("listing")["complete"])
    return viewer.ask("listing")


def until_open(viewer: Served, number: int) -> dict[str, Any]:
    return wait_until(lambda: once_read(viewer.ask_below(number, "status")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, a rank that its folder tells, cycles, and what cannot be read."""
    top = tmp_path_factory.mktemp("runs")
    write(top / "a" / "host_1.1700000000000000001.pt.trace.json", distributedInfo=JOB)
    write(top / "a" / "host_1.1700000000000000900.pt.trace.json", distributedInfo=JOB)
    write(top / "a" / "host_2.1700000000000000003.pt.trace.json")
    write(top / "b" / "rank3" / "trace.json")
    (top / "b" / "empty.json").write_bytes(b"")
    (top / "b" / "text.json").write_text("no trace")
    (top / "b" / "cut.json.gz").write_bytes(gzip.compress(b"{}")[:5] + b"\0" * 40)
    (top / "b" / "notes.txt").write_text("no trace")
    return top


@pytest.fixture(scope="module")
def viewer(folder: Path) -> Iterator[Served]:
    with served(folder, choice_of(folder)) as found:
        wait_until_complete(found)
        yield found


def test_names_and_headers_tell_run_rank_cycle_and_gpu(folder: Path) -> None:
    rows = rows_of(folder).filter(pl.col("error").is_null()).drop("bytes", "error", "recorded_ns")
    assert rows.rows() == [
        ("host_1.1700000000000000001.pt.trace.json", "a", 5, 1, "NVIDIA H100"),
        ("host_1.1700000000000000900.pt.trace.json", "a", 5, 2, "NVIDIA H100"),
        ("host_2.1700000000000000003.pt.trace.json", "a", None, 1, "NVIDIA H100"),
        ("rank3/trace.json", "b", 3, None, "NVIDIA H100"),
    ]


def test_what_cannot_be_read_is_listed_with_its_error(folder: Path) -> None:
    errors = rows_of(folder).filter(pl.col("error").is_not_null()).select("file", "error")
    assert errors["file"].to_list() == ["cut.json.gz", "empty.json", "text.json"]
    assert ["damaged" in errors["error"][0], "is empty" in errors["error"][1]] == [True, True]
    assert "does not begin like a trace" in errors["error"][2]


def test_headers_agree_with_what_reading_finds(shared: Path) -> None:
    """What a header tells is what the whole trace tells, of every recorder and year."""
    for path in sorted((shared / "traces" / "kineto").glob("*.json.gz")):
        header, trace = header_of(str(path)), ks.read(path)
        assert header.rank in (None, trace.meta.rank), path
        names = trace.devices["name"].cast(pl.String).drop_nulls().unique(maintain_order=True)
        assert header.gpu_names in (None, ", ".join(name for name in names if name)), path


def test_the_end_of_a_file_tells_what_its_start_does_not(tmp_path: Path) -> None:
    span = (
        '{"ph": "X", "cat": "Trace", "ts": 1, "dur": 1500.25, "pid": "Spans", "tid": "PyTorch Profiler",'
        ' "name": "PyTorch Profiler (0)", "args": {"Op count": 0}}'
    )
    filler = '{"ph": "X", "name": "distributedInfo\\": {\\"rank\\": 9}", "ts": 1, "dur": 1},' * 5_000
    path = tmp_path / "late.json"
    path.write_text(f'{{"traceEvents": [{filler}{span}], "distributedInfo": {{"rank": 2}}}}')
    assert header_of(str(path)) == Header(2, None, 1_500_250)
    packed = tmp_path / "late.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    # All of it would have to be unpacked.
    assert header_of(str(packed)) == Header()


@pytest.mark.parametrize(
    "content",
    [
        b'{"distributedInfo": ' + b"[" * 100_000,
        b'{"distributedInfo": {"rank": -1}, "traceEvents": []}',
        b'{"distributedInfo": {"rank": true}, "deviceProperties": [1, {"name": 3}], "traceEvents": []}',
        b'{"distributedInfo": {"rank": 99999999999}, "deviceProperties": {}, "traceEvents": []}',
        b'{"deviceProperties": [{"name": "cut',
        b"[]",
        b"\xef\xbb\xbf {",
        b"{\xff\xfe",
    ],
)
def test_headers_that_make_no_sense_tell_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    assert header_of(str(path)) == Header()


def test_databases_tell_what_they_have(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT)")
        names = [(0, "A100"), (1, "A100"), (2, None)]
        database.executemany("INSERT INTO TARGET_INFO_GPU VALUES (?, ?)", names)
        database.execute("CREATE TABLE ANALYSIS_DETAILS (duration INTEGER)")
        database.execute("INSERT INTO ANALYSIS_DETAILS VALUES (12345)")
    database.close()
    assert header_of(str(path)) == Header(None, "A100", 12_345)
    path.write_bytes(path.read_bytes()[:300])
    assert header_of(str(path)) == Header()
    path.write_bytes(b"x")
    with pytest.raises(NotATraceError):
        header_of(str(path))


def test_a_trace_is_read_when_it_is_opened(viewer: Served) -> None:
    known = viewer.ask("listing")
    assert [column["key"] for column in known["table"]["columns"]][:4] == ["file", "run", "rank", "cycle"]
    rows = viewer.ask("table", view="traces", table="traces", filters="rank 5", sort="file")
    assert (rows["matches"], rows["all"]) == (2, 7)
    number = rows["leads"][0]["open"]
    status = until_open(viewer, number)
    assert (status["state"], status["above"]) == ("ready", "runs0")
    assert viewer.ask_below(number, "timeline")["tracks"]
    assert viewer.request(f"/{number}/", cookie=viewer.cookie).body.startswith(b"<!DOCTYPE html>")


def test_one_that_cannot_be_read_says_so_and_is_read_again(viewer: Served, folder: Path) -> None:
    rows = viewer.ask("table", view="traces", table="traces", search="text.json")
    number = rows["leads"][0]["open"]
    status = until_open(viewer, number)
    assert status["state"] == "failed"
    assert "text.json" in status["error"]
    write(folder / "b" / "text.json")
    try:
        wait_until(lambda: until_open(viewer, number)["state"] == "ready")
    finally:
        (folder / "b" / "text.json").write_text("no trace")


@pytest.mark.parametrize(
    "number", ["99", "-1", "1e3", "0x1", "a", "..", "%2e%2e", "rank7.json", "%2Fetc", "٣", "9" * 5_000, "1.0"]
)
def test_what_is_no_number_of_a_trace_is_refused(viewer: Served, number: str) -> None:
    for rest in ("api/status", "api/window", ""):
        path = f"/{number}/{rest}" if number.isascii() else f"/%D9%A3/{rest}"
        reply = viewer.request(path, cookie=viewer.cookie)
        # The page is always the same, and says that there is no such trace.
        assert reply.status == 404 or (reply.status == 200 and not rest), path
        assert viewer.request(path).status == 403
        assert viewer.request(path, cookie=viewer.cookie, host="example.org").status == 403
        assert viewer.request(path, cookie=viewer.cookie, origin="https://example.org").status == 403
        assert viewer.request(path, method="POST", cookie=viewer.cookie).status == 405


def test_no_address_leads_to_a_file(viewer: Served) -> None:
    for path in ("/a/host_1.1700000000000000001.pt.trace.json", "/0/../../etc/passwd", "/0/%2e%2e/view.css"):
        assert viewer.request(path, cookie=viewer.cookie).status == 404
    assert viewer.request("/api/table?view=traces&table=other", cookie=viewer.cookie).status == 404
    assert viewer.request("/api/table?view=traces&table=traces&sort=x", cookie=viewer.cookie).status == 404


def test_hostile_names_are_listed(tmp_path: Path) -> None:
    for number, text in enumerate(HOSTILE):
        name = text.replace("/", "_").replace("\0", "_")[:150]
        write(tmp_path / f"{name}{number}.json", distributedInfo={"rank": text})
    os.write(os.open(os.fsencode(tmp_path) + b"/\xff.json", os.O_CREAT | os.O_WRONLY), b"{}")
    rows = rows_of(tmp_path)
    assert rows.height == len(HOSTILE) + 1
    assert rows["rank"].drop_nulls().is_between(0, 2**31).all()
    with served(tmp_path, choice_of(tmp_path)) as viewer:
        wait_until_complete(viewer)
        for number in range(rows.height):
            assert until_open(viewer, number)["state"] == "ready"


def test_members_of_archives_are_opened(tmp_path: Path) -> None:
    write(tmp_path / "in" / "rank0.json")
    shutil.make_archive(str(tmp_path / "out" / "job"), "tar", tmp_path / "in")
    shutil.make_archive(str(tmp_path / "out" / "packed"), "gztar", tmp_path / "in")
    rows = rows_of(tmp_path / "out")
    assert rows["rank"].to_list() == [0, 0]
    assert rows["gpu_names"].to_list() == ["NVIDIA H100"] * 2
    before = sorted(os.listdir(tmp_path / "out"))
    with served(tmp_path, choice_of(tmp_path / "out")) as viewer:
        wait_until_complete(viewer)
        assert [until_open(viewer, number)["state"] for number in (0, 1)] == ["ready", "ready"]
    # The folder is only looked at.
    assert sorted(os.listdir(tmp_path / "out")) == before


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    choice = choice_of(tmp_path)
    choice.start(on_failure=lambda: None)
    choice.stop()
    with pytest.raises(InvalidArgumentError, match="found no trace"):
        choice.raise_failure()


class _Reads:
    """A catalogue of three traces, and how often each was read."""

    name, what = "three", "Three."

    def __init__(self, trace: ks.Trace) -> None:
        self.read: list[int] = []
        self.go = threading.Event()
        self.go.set()
        self._trace = trace

    def look(self, advance: Progress) -> None:
        """They are there."""

    look_inside = look

    def rows(self) -> pl.DataFrame:
        """Not asked for."""
        return pl.DataFrame()

    def opening(self, number: int) -> Any:
        """Reads when it may."""
        from kernelscope.view.catalogue import Opening

        def read(watch: Progress) -> ks.Trace:
            self.read.append(number)
            while not self.go.wait(0.01):
                watch(1, 2)
            return self._trace

        if number > 2:
            raise NotRecordedError("three")
        return Opening(str(number), read, None)

    def close(self) -> None:
        """Nothing was made."""


def _ready(choice: Choice, number: int) -> bool:
    return choice.session(number).status()["state"] == "ready"


@pytest.fixture
def reads(tiny: Path) -> _Reads:
    return _Reads(ks.read(tiny))


def test_the_last_few_are_kept_within_a_bound_of_memory(reads: _Reads, tiny: Path) -> None:
    size = sum(frame.estimated_size() for frame in ks.read(tiny).tables.values())
    choice = Choice(reads, most_bytes=size * 2)
    choice.start(on_failure=lambda: None)
    wait_until(lambda: choice.status()["state"] == "ready")
    for number in (0, 1, 0, 2):
        wait_until(lambda number=number: _ready(choice, number))
    wait_until(lambda: choice.kept == [0, 2])
    assert reads.read == [0, 1, 2]
    wait_until(lambda: _ready(choice, 1))
    assert reads.read == [0, 1, 2, 1]
    choice.stop()


def test_one_that_is_larger_than_the_bound_is_kept_alone(reads: _Reads) -> None:
    choice = Choice(reads, most_bytes=1)
    choice.start(on_failure=lambda: None)
    wait_until(lambda: choice.status()["state"] == "ready")
    for number in (0, 1, 2):
        wait_until(lambda number=number: _ready(choice, number))
    wait_until(lambda: choice.kept == [2])
    choice.stop()


def test_what_nobody_waits_for_makes_room_for_what_is_asked(
    reads: _Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "_IDLE_S", 0.3)
    reads.go.clear()
    choice = Choice(reads)
    choice.start(on_failure=lambda: None)
    wait_until(lambda: choice.status()["state"] == "ready")
    choice.session(0)
    wait_until(lambda: reads.read == [0])
    # Asked for all the time, the other one gets its turn.
    wait_until(lambda: choice.session(1) is not None and reads.read == [0, 1])
    assert choice.kept == [1]
    reads.go.set()
    wait_until(lambda: _ready(choice, 1))
    choice.stop()


def test_the_viewer_ends_while_traces_wait(reads: _Reads) -> None:
    reads.go.clear()
    choice = Choice(reads)
    choice.start(on_failure=lambda: None)
    wait_until(lambda: choice.status()["state"] == "ready")
    for number in (0, 1, 2):
        choice.session(number)
    choice.stop()
    with pytest.raises(NotRecordedError, match="the viewer is closing"):
        choice.session(0) if not choice.kept else choice._begin(0, reads.opening(0))
