"""Broken databases of nsys: what is refused, what is repaired, and what is read all the same."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random

import polars as pl
import pytest

import kernelscope as ks
from kernelscope import errors
from nsys_database import Database, findings

Make = Callable[..., Database]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a database."""
    return lambda name="t.sqlite", **options: Database(tmp_path / name, **options)


def test_a_table_without_its_times_is_lost_and_the_others_are_read(make: Make) -> None:
    columns = "end INTEGER, eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER"
    database = make(schema={"CUPTI_ACTIVITY_KIND_RUNTIME": columns})
    database.insert("CUPTI_ACTIVITY_KIND_RUNTIME", end=5, nameId=4)
    database.kernel(1, 2)
    path = database.close()
    trace = ks.read(path)
    assert findings(trace)["unreadable_table"] == (1, "CUPTI_ACTIVITY_KIND_RUNTIME.start", None)
    assert (trace.launches.height, trace.gpu_ops.height) == (0, 1)
    with pytest.raises(errors.StrictError, match=r"CUPTI_ACTIVITY_KIND_RUNTIME\.start"):
        ks.read(path, strict=True)


def test_odd_values_are_repaired_and_counted(make: Make) -> None:
    database = make()
    database.kernel(1, 2)
    database.kernel("30", 40.0)  # SQLite keeps 40.0 as 40 in a column of integers
    database.kernel(b"x", 50)
    database.kernel(90, 80)
    database.kernel(100, None)
    database.kernel(110, 120, demangledName=None, deviceId="a")
    database.kernel(130, 140, demangledName=999, correlation=-4)
    trace = ks.read(database.close())
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    assert findings(trace, severity="lost") == {"missing_time": (1, table, 3)}
    assert findings(trace, severity="repaired") == {
        "missing_duration": (1, table, 5),
        "negative_duration": (1, table, 4),
        "bad_number": (1, table, 7),
        "wrong_type": (2, table, 3),
        "unexpected_null": (1, table, 6),
        "unknown_string": (1, table, 7),
    }
    kernels = trace.gpu_ops.select("start_ns", "dur_ns", "device", pl.col("name").is_null()).rows()
    assert kernels[:4] == [(1, 1, 0, False), (30, 10, 0, False), (90, None, 0, False), (100, None, 0, False)]
    assert kernels[4:] == [(110, 10, None, True), (130, 10, 0, True)]
    assert (trace.meta.seen, trace.meta.kept, trace.meta.dropped) == (7, 6, 1)


def test_text_that_is_no_utf8(make: Make) -> None:
    database = make()
    database.connection.execute("UPDATE StringIds SET value = CAST(x'67ff' AS TEXT) WHERE id = 1")
    database.kernel(1, 2)
    database.range("x", 5, 9)
    database.connection.execute("UPDATE NVTX_EVENTS SET text = CAST(x'fe' AS TEXT)")
    trace = ks.read(database.close())
    assert trace.gpu_ops["name"].to_list() == ["g�"]
    assert trace.ranges["name"].to_list() == ["�"]
    sources = trace.diagnostics.filter(pl.col("code") == "bad_utf8")["source"].to_list()
    assert sorted(sources) == ["CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"]


def refused(path: Path) -> str:
    with pytest.raises(errors.KernelscopeError) as caught:
        ks.read(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


def test_files_that_are_no_export(make: Make, tmp_path: Path) -> None:
    empty = tmp_path / "empty.sqlite"
    empty.write_bytes(b"")
    assert "is empty" in refused(empty)
    report = tmp_path / "a.nsys-rep"
    report.write_bytes(bytes(range(200)))
    assert "nsys export --type sqlite" in refused(report)
    header = tmp_path / "header.sqlite"
    header.write_bytes(b"SQLite format 3\0" + b"\xff" * 500)
    assert "SQLite" in refused(header)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE cookies (a)")
    connection.close()
    assert "not an export of nsys" in refused(other)
    bare = tmp_path / "bare.sqlite"
    with sqlite3.connect(bare) as connection:
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    assert "without tables" in refused(bare)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(make: Make) -> None:
    path = make().close()
    path.chmod(0)
    with pytest.raises(errors.TracePermissionError):
        ks.read(path)


def large(make: Make) -> Path:
    database = make()
    for i in range(4000):
        database.kernel(10 * i, 10 * i + 5, correlation=i + 1)
        database.call(10 * i, 10 * i + 1, correlation=i + 1)
    return database.close()


def test_a_database_cut_short_at_any_place(make: Make, tmp_path: Path) -> None:
    whole = large(make).read_bytes()
    path = tmp_path / "cut.sqlite"
    answered = 0
    for tenth in range(1, 40):
        path.write_bytes(whole[: len(whole) * tenth // 40])
        try:
            trace = ks.read(path)
        except errors.TraceFormatError:
            continue
        answered += 1
        lost = findings(trace, severity="lost")
        assert lost["truncated_database"][0] == 1
        assert trace.gpu_ops.height + trace.launches.height < 8000
    assert answered > 20
    with pytest.raises(errors.StrictError, match="shorter than it says"):
        ks.read(path, strict=True)


def test_damaged_pages_cost_what_stands_in_them(make: Make, tmp_path: Path) -> None:
    whole = bytearray(large(make).read_bytes())
    page = 4096 * (len(whole) // 4096 // 2)
    whole[page : page + 4096] = b"\xa5" * 4096
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(whole)
    trace = ks.read(path)
    assert findings(trace, severity="lost")["damaged_pages"][0] == 1
    assert 4000 < trace.gpu_ops.height + trace.launches.height < 8000


def test_a_database_that_is_being_written(make: Make) -> None:
    database = make()
    database.kernel(1, 2)
    path = database.close()
    writer = sqlite3.connect(path)
    try:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
        writer.commit()
        trace = ks.read(path)
        assert findings(trace, severity="lost") == {"unfinished_writes": (1, None, None)}
        assert trace.gpu_ops.height == 1
    finally:
        writer.close()


def test_random_damage_is_answered_or_refused(make: Make, tmp_path: Path) -> None:
    database = make()
    for i in range(300):
        database.kernel(10 * i, 10 * i + 5, correlation=i + 1)
        database.call(10 * i, 10 * i + 1, correlation=i + 1)
        database.range(f"aten::mm, seq = {i}, op_id = {i}, sizes = [[{i}]]", 10 * i, 10 * i + 8)
    whole = database.close().read_bytes()
    path = tmp_path / "damaged.sqlite"
    random = Random(20)
    answered = 0
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(random.choice((1, 3, 30, 300))):
            damaged[random.randrange(16, len(damaged))] = random.randrange(256)
        path.write_bytes(damaged)
        try:
            trace = ks.read(path)
        except (errors.TraceFormatError, errors.NotATraceError):
            continue
        answered += 1
        assert trace.meta.seen == trace.meta.kept + trace.meta.dropped
    assert answered > 100
