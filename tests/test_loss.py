"""Databases of which something is lost: every command says so, and fails unless that is allowed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

import kernelscope as ks
from events import Events
from kernelscope import errors
from kernelscope.report.findings import findings as report_findings
from nsys_database import Database, findings

Cli = Callable[..., subprocess.CompletedProcess[str]]

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COMMANDS = {
    "stats": ["stats", "{}", "-r", "cuda_gpu_kern_sum"],
    "prof": ["prof", "{}"],
    "parse": ["parse", "{}"],
    "diff": ["diff", "{}", "{}"],
    "convert": ["convert", "{}", "--to", "arrow"],
    "roofline": ["roofline", "{}", "--gpu", "h100-sxm5"],
    "info": ["info", "{}"],
}


def fill(database: Database, count: int = 4000) -> Database:
    for i in range(count):
        database.kernel(1000 * i + 20, 1000 * i + 900, correlation=i + 1)
        database.call(1000 * i, 1000 * i + 10, correlation=i + 1)
    return database


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = Database(tmp_path_factory.mktemp("whole") / "whole.sqlite")
    database.meta("CAPTURE", CAPTURE_EVENT_TYPE="Cuda")
    return fill(database).close()


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "report.sqlite"))


def execute(path: Path, *statements: str) -> Path:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


def pages_of(path: Path, table: str) -> list[int]:
    """The pages of a table, of which the first is its root."""
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = ? ORDER BY path", (table,)
        ).fetchall()
    except sqlite3.OperationalError:
        pytest.skip("the SQLite of this Python cannot tell the pages of a table")
    finally:
        connection.close()
    return [page for (page,) in rows]


def overwrite(path: Path, page: int, byte: bytes = b"\xa5") -> Path:
    content = bytearray(path.read_bytes())
    content[4096 * (page - 1) : 4096 * page] = byte * 4096
    path.write_bytes(content)
    return path


def run(cli: Cli, command: str, path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return cli(*(str(path) if part == "{}" else part for part in COMMANDS[command]), *more)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_whole_database_is_silent(cli: Cli, whole: Path, command: str) -> None:
    done = run(cli, command, whole)
    assert done.returncode == 0
    assert "lost" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_damaged_page_is_told_once_and_fails(cli: Cli, copy: Path, command: str) -> None:
    pages = pages_of(copy, KERNELS)
    overwrite(copy, pages[len(pages) // 2])
    left = ks.read(copy).gpu_ops.height
    assert 0 < left < 4000
    done = run(cli, command, copy)
    assert done.returncode == 1
    (line,) = (line for line in done.stderr.splitlines() if "lost: " in line)
    assert f"1 damaged pages ({KERNELS} rowid {left})" in line
    assert f"{4000 - left:,} missing rows ({KERNELS})" in line
    # What is left is shown.
    assert done.stdout != ""
    assert run(cli, command, copy, "--allow-loss").returncode == 0
    strict = run(cli, command, copy, "--strict")
    assert (strict.returncode, strict.stdout) == (1, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_database_cut_to_a_quarter_fails(cli: Cli, copy: Path, command: str) -> None:
    content = copy.read_bytes()
    copy.write_bytes(content[: len(content) // 4])
    done = run(cli, command, copy)
    assert done.returncode == 1
    assert "truncated database" in done.stderr
    assert f"damaged pages ({KERNELS} rowid" in done.stderr
    assert run(cli, command, copy, "--allow-loss").returncode == 0


def test_a_database_cut_within_its_last_page_fails(cli: Cli, copy: Path) -> None:
    copy.write_bytes(copy.read_bytes()[:-1])
    assert "truncated_database" in ks.read(copy).diagnostics["code"].cast(pl.String).to_list()
    done = run(cli, "info", copy)
    assert done.returncode == 1
    assert "truncated database" in done.stderr


def test_what_stands_in_front_of_a_cut_is_read(copy: Path) -> None:
    content = copy.read_bytes()
    copy.write_bytes(content[: len(content) // 2])
    # The last rowid cannot be found: the rows are read up to where they end.
    trace = ks.read(copy)
    assert trace.gpu_ops.height > 1000
    assert trace.gpu_ops["start_ns"].is_sorted()
    assert "captured_empty" not in _codes_of(trace, KERNELS)


def test_an_overwritten_first_or_last_page_is_no_empty_table(copy: Path, tmp_path: Path) -> None:
    pages = pages_of(copy, KERNELS)
    for name, page in (("root", pages[0]), ("first", pages[1]), ("last", pages[-1])):
        for byte in (b"\xa5", b"\0"):
            path = overwrite(Path(shutil.copy(copy, tmp_path / f"{name}.sqlite")), page, byte)
            trace = ks.read(path)
            assert trace.gpu_ops.height < 4000
            codes = _codes_of(trace, KERNELS)
            assert "damaged_pages" in codes
            assert "captured_empty" not in codes


def _codes_of(trace: ks.Trace, source: str) -> list[str]:
    rows = trace.diagnostics.filter(pl.col("source").cast(pl.String) == source)
    return rows["code"].cast(pl.String).to_list()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_renamed_column_is_told(cli: Cli, copy: Path, command: str) -> None:
    execute(copy, f"ALTER TABLE {KERNELS} RENAME COLUMN start TO begin")
    done = run(cli, command, copy)
    assert done.returncode == 1
    assert f"1 unreadable table ({KERNELS}.start)" in done.stderr


def test_a_column_of_names_that_is_not_there_is_told_and_no_row_is_lost(cli: Cli, copy: Path) -> None:
    execute(copy, f"ALTER TABLE {KERNELS} RENAME COLUMN demangledName TO fullName")
    done = run(cli, "stats", copy)
    assert done.returncode == 0
    assert f"not known: 1 missing column ({KERNELS}.demangledName)" in done.stderr


def test_several_reports_tell_a_loss_once(cli: Cli, copy: Path) -> None:
    pages = pages_of(copy, KERNELS)
    overwrite(copy, pages[len(pages) // 2])
    done = cli("stats", copy, "-r", "cuda_gpu_kern_sum", "-r", "cuda_gpu_trace", "-r", "cuda_api_sum")
    assert done.returncode == 1
    assert done.stderr.count("damaged pages") == 1


def test_strict_refuses_rows_of_which_something_is_not_known(cli: Cli, whole: Path, tmp_path: Path) -> None:
    for number, change in enumerate(("end = start - 5", "end = NULL", "deviceId = NULL")):
        path = Path(shutil.copy(whole, tmp_path / f"{number}.sqlite"))
        execute(path, f"UPDATE {KERNELS} SET {change} WHERE rowid = 40")
        with pytest.raises(errors.StrictError, match=rf"{KERNELS}, rowid 40"):
            ks.read(path, strict=True)
        done = run(cli, "parse", path)
        assert done.returncode == 0
        assert f"({KERNELS} rowid 40)" in done.stderr
    ks.read(whole, strict=True)


def test_rows_without_a_start_are_told(cli: Cli, copy: Path) -> None:
    """They are in a table of their own, and in no sum."""
    execute(copy, f"UPDATE {KERNELS} SET start = NULL WHERE rowid IN (3, 4)")
    done = run(cli, "stats", copy)
    assert done.returncode == 0
    assert f"not known: 2 untimed work ({KERNELS} rowid 3)" in done.stderr
    assert ks.read(copy).untimed_gpu_ops.height == 2


# --- logs and journals beside the database


@pytest.fixture
def logged(copy: Path) -> Iterator[Path]:
    """A database of 4,000 kernels, and a log of 510 more beside it."""
    writer = sqlite3.connect(copy)
    writer.execute("PRAGMA journal_mode = WAL")
    columns = "start, end, deviceId, correlationId, globalPid, demangledName"
    rows = ((10**7 + i, 10**7 + i + 1, 0, 5000 + i, 1 << 48 | 7 << 24, 1) for i in range(510))
    writer.executemany(f"INSERT INTO {KERNELS} ({columns}) VALUES (?, ?, ?, ?, ?, ?)", rows)
    writer.commit()
    assert copy.with_name("report.sqlite-wal").stat().st_size > 0
    yield copy
    writer.close()


def test_a_log_beside_the_database_is_read(cli: Cli, logged: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in logged.parent.glob("report.sqlite*")}
    trace = ks.read(logged)
    assert trace.gpu_ops.height == 4510
    assert findings(trace, severity="lost") == {}
    assert findings(trace)["write_ahead_log"][0] == 1
    done = run(cli, "stats", logged)
    assert (done.returncode, "lost" in done.stderr) == (0, False)
    assert ",4510," in done.stdout
    assert {path.name: path.read_bytes() for path in logged.parent.glob("report.sqlite*")} == before


def test_a_read_only_database_with_a_log_is_read_and_its_copy_removed(
    logged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    logged.chmod(0o400)
    assert ks.read(logged, threads=2).gpu_ops.height == 4510
    assert os.listdir(temporary) == []


def test_a_log_that_cannot_be_copied_is_refused(
    cli: Cli, logged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "not there"))
    done = run(cli, "stats", logged)
    assert (done.returncode, done.stdout) == (1, "")
    assert "its changes are in" in done.stderr


def test_a_journal_beside_the_database_is_a_loss(cli: Cli, copy: Path) -> None:
    copy.with_name("report.sqlite-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + b"\0" * 504)
    done = run(cli, "stats", copy)
    assert done.returncode == 1
    assert "lost: 1 unfinished writes" in done.stderr


# --- tables under other names and of other kinds


def test_a_renamed_table_is_lost_and_not_empty(cli: Cli, copy: Path) -> None:
    execute(copy, f"ALTER TABLE {KERNELS} RENAME TO {KERNELS}_OLD")
    trace = ks.read(copy)
    assert _codes_of(trace, KERNELS) == ["renamed_table"]
    done = run(cli, "stats", copy)
    assert done.returncode == 1
    assert f"1 renamed table ({KERNELS}_OLD with 4,000 rows)" in done.stderr
    assert "no such event occurred" not in done.stderr
    places = {finding.code: finding.place for finding in report_findings(trace)}
    assert places["unread_table"] == f"{KERNELS}_OLD with 4,000 rows"


@pytest.mark.parametrize("table", [KERNELS, "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME", "StringIds"])
def test_a_table_with_a_version_behind_its_name_is_read(copy: Path, table: str) -> None:
    execute(
        copy,
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, domainId, globalTid)"
        " SELECT min(start), max(end), 59, 'all', 0, globalTid"
        " FROM CUPTI_ACTIVITY_KIND_RUNTIME GROUP BY globalTid",
    )
    expected = ks.read(copy)
    assert expected.ranges.height
    execute(
        copy,
        f"ALTER TABLE {table} RENAME TO {table}_V3",
        f"CREATE TABLE {table}_V2 AS SELECT * FROM {table}_V3 LIMIT 1",
        f"CREATE TABLE {table} AS SELECT * FROM {table}_V3 LIMIT 0",
    )
    trace = ks.read(copy)
    assert trace.diagnostics.filter(code="versioned_table")["count"].to_list() == [1]
    for name in ("gpu_ops", "launches", "ranges", "ops", "steps"):
        names = ["name", "start_ns", "dur_ns", "step"]
        found, wanted = (
            t.tables[name].select(pl.col(names[: 4 if name != "steps" else 2]).cast(pl.String))
            for t in (trace, expected)
        )
        assert found.sort(pl.all()).equals(wanted.sort(pl.all())), name
    works = trace.gpu_ops.join(trace.launches, left_on="launch_row", right_on="row")
    assert works.height == expected.gpu_ops["launch_row"].count()


def test_a_table_that_is_not_there_tells_what_the_capture_says(copy: Path) -> None:
    execute(copy, f"DROP TABLE {KERNELS}")
    assert _codes_of(ks.read(copy), KERNELS) == ["captured_empty"]
    execute(copy, "DELETE FROM META_DATA_CAPTURE")
    assert _codes_of(ks.read(copy), KERNELS) == ["table_absent"]


def test_an_empty_table_tells_no_more_than_the_capture(copy: Path) -> None:
    execute(copy, f"DELETE FROM {KERNELS}", "UPDATE META_DATA_CAPTURE SET value = 'OSRuntime'")
    assert _codes_of(ks.read(copy), KERNELS) == ["not_captured"]


KEPT = ("name", "start_ns", "dur_ns", "correlation", "pid", "device", "link")


@pytest.mark.parametrize(
    "table",
    [
        f"CREATE VIEW {KERNELS} AS SELECT * FROM activity",
        f"CREATE TABLE {KERNELS} ({{columns}}, PRIMARY KEY (start, correlationId)) WITHOUT ROWID",
    ],
    ids=["view", "without rowid"],
)
def test_views_and_tables_without_rowids_are_read(cli: Cli, whole: Path, copy: Path, table: str) -> None:
    connection = sqlite3.connect(copy)
    columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA table_info({KERNELS})"))
    connection.execute(f"ALTER TABLE {KERNELS} RENAME TO activity")
    connection.execute(table.format(columns=columns))
    if "VIEW" not in table:
        connection.execute(f"INSERT INTO {KERNELS} SELECT * FROM activity")
        connection.execute("DROP TABLE activity")
    connection.commit()
    connection.close()
    as_rows, as_other = (ks.read(path).gpu_ops.select(KEPT).rows() for path in (whole, copy))
    assert as_other == as_rows
    assert run(cli, "stats", copy).stdout == run(cli, "stats", whole).stdout
    assert "lost" not in run(cli, "stats", copy).stderr


@pytest.mark.parametrize(
    "select",
    [
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end FROM n",
        "SELECT * FROM absent",
    ],
)
def test_a_view_that_cannot_be_read_is_a_loss(copy: Path, select: str) -> None:
    execute(copy, f"DROP TABLE {KERNELS}", f"CREATE VIEW {KERNELS} AS {select}")
    trace = ks.read(copy)
    assert trace.gpu_ops.is_empty()
    assert any(source.startswith(KERNELS) for source in _lost(trace))


def test_a_view_of_more_rows_than_the_file_can_hold_is_refused(copy: Path) -> None:
    view = f"CREATE VIEW {KERNELS} AS SELECT a.start, b.end FROM activity a, activity b"
    execute(copy, f"ALTER TABLE {KERNELS} RENAME TO activity", view)
    with pytest.raises(errors.TraceFormatError, match="more rows than the file has bytes"):
        ks.read(copy, threads=1)


def _lost(trace: ks.Trace) -> list[str]:
    return trace.diagnostics.filter(severity="lost")["source"].cast(pl.String).drop_nulls().to_list()


# --- JSON: one bad event never costs the file


def test_lost_events_of_json_are_told_and_are_no_failure(cli: Cli, tmp_path: Path) -> None:
    events = Events()
    events.op("aten::mm", 0, 10)
    path = events.write(tmp_path / "trace.json", traceName="t")
    path.write_text(
        path.read_text().replace('"traceEvents": [', '"traceEvents": [{"ph": "X", "name": "no time"}, ')
    )
    done = cli("info", path)
    assert done.returncode == 0
    assert "lost: 1 missing time (byte" in done.stderr
    assert "exit code" not in done.stderr
    assert cli("info", path, "--strict").returncode == 1
