"""SQL over the tables of a trace: right answers, no file, and an end to everything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from events import Events
from kernelscope import queries
from kernelscope.errors import InternalError, InvalidArgumentError, MemoryLimitError, TaskTimeoutError

SECRET = "what,stands\nin,a file\n"
LONG = "select count(*) from ops a, ops b, ops c, ops d, ops e where a.row + b.row + c.row + d.row > e.row"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> ks.Trace:
    events = Events({"id": 0, "name": "NVIDIA H100", "numSms": 132})
    for place in range(2_000):
        given = {"External id": place + 1, "correlation": place + 1}
        name = f"aten::op{place % 3}"
        events.add("cpu_op", name, 100 * place, 50, args={"External id": place + 1})
        events.add("cuda_runtime", "cudaLaunchKernel", 100 * place + 10, 5, args=given)
        kernel = {**given, "device": 0, "stream": 7, "grid": [place + 1, 1, 1]}
        events.add("kernel", f"gemm{place % 3}", 100 * place + 30, 20 + place % 3, args=kernel, pid=0, tid=7)
    return ks.read(events.write(tmp_path_factory.mktemp("queries") / "trace.json"))


def test_an_answer_is_what_the_frames_say(trace: ks.Trace) -> None:
    found = ks.sql(
        trace,
        """-- the kernels of an operator
        SELECT g.name, o.name AS op, count(*) AS calls, sum(g.dur_ns) AS total_ns
        FROM gpu_ops g JOIN ops o ON g.op_row = o.row
        WHERE g.name LIKE 'gemm%' AND o.name != 'aten::op2' GROUP BY g.name, o.name ORDER BY total_ns""",
    )
    joined = trace.gpu_ops.join(trace.ops.select("row", op="name"), left_on="op_row", right_on="row")
    expected = (
        joined.with_columns(pl.col("name", "op").cast(pl.String))
        .filter(pl.col("op") != "aten::op2")
        .group_by("name", "op")
        .agg(calls=pl.len(), total_ns=pl.col("dur_ns").sum())
        .sort("total_ns")
    )
    assert found.to_dicts() == expected.to_dicts()
    assert found.height == 2


def test_rows_cut_an_answer_and_lists_stay_lists(trace: ks.Trace) -> None:
    found = ks.sql(trace, "select row, grid from gpu_ops order by row;", rows=2)
    assert found["row"].to_list() == trace.gpu_ops["row"].sort().to_list()[:2]
    assert found["grid"][0].to_list() == [1, 1, 1]
    assert ks.sql(trace, "select row from ranges").height == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("", "must begin with SELECT"),
        ("drop table ops", "must begin with SELECT or WITH, not with 'drop table ops'"),
        ("create table x as select * from ops", "must begin with SELECT"),
        ("show tables", "must begin with SELECT"),
        ("/* select */ delete from ops", "must begin with SELECT"),
        ("select * from opps", "there is no table 'opps'; did you mean ops?"),
        ("select * from zzz", "there is no table 'zzz'; the tables are ops, launches"),
        ("select nam from ops", 'unable to find column "nam"; valid columns: ["row", "name"'),
        ("select 1; select 2", "one (and only one) statement"),
        ("select , from ops", "cannot answer"),
        ("select name + row * 'x' from ops group by", "cannot answer"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(trace: ks.Trace, statement: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        ks.sql(trace, statement)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "statement",
    [
        "select * from read_csv('{path}')",
        "SELECT * FROM READ_CSV ('{path}')",
        "select * from \"read_csv\"('{path}')",
        "select * from `read_csv`('{path}')",
        "select * from read_csv/* a *//* b */('{path}')",
        "select * from read_csv /* /* a */ */ ('{path}')",
        "select * from read_csv -- a\n('{path}')",
        "with a as (select * from read_parquet('{path}')) select * from a",
        "select * from ops join read_json('{path}') on 1 = 1",
        "select * from ops where name in (select column_1 from read_ipc('{path}'))",
        "select * from scan_csv('{path}')",
    ],
)
def test_a_statement_that_asks_for_a_file_is_refused(trace: ks.Trace, tmp_path: Path, statement: str) -> None:
    path = tmp_path / "secret.csv"
    path.write_text(SECRET)
    with pytest.raises(InvalidArgumentError, match="reads files, but a statement may only query the tables"):
        ks.sql(trace, statement.format(path=path))


@pytest.mark.slow
@pytest.mark.parametrize("function", ["read_csv", "read_parquet", "read_json", "read_ipc"])
def test_nothing_opens_a_file_even_if_a_statement_asks_for_it(
    trace: ks.Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no limit of open files")
    path = tmp_path / "secret"
    frame = pl.DataFrame({"what": ["stands"]})
    writers: dict[str, Callable[[Any], object]] = {
        "read_csv": frame.write_csv,
        "read_parquet": frame.write_parquet,
        "read_json": frame.write_ndjson,
        "read_ipc": frame.write_ipc,
    }
    writers[function](path)
    statement = f"select * from {function}('{path}')"
    # Without the limit the file would be there to be read.
    assert pl.SQLContext().execute(statement, eager=True).rows() == [("stands",)]
    monkeypatch.setattr(queries, "_OF_FILES", re.compile("(?!)"))
    with pytest.raises(InvalidArgumentError, match="Too many open files"):
        ks.sql(trace, statement)


def test_texts_may_name_what_reads_files(trace: ks.Trace) -> None:
    assert ks.sql(trace, "select row from python where name like '%read_csv%'").height == 0


@pytest.mark.parametrize("statement", ["copy ops to '{path}'", "select * into outfile '{path}' from ops"])
def test_nothing_is_written(trace: ks.Trace, tmp_path: Path, statement: str) -> None:
    path = tmp_path / "written"
    with pytest.raises(InvalidArgumentError):
        ks.sql(trace, statement.format(path=path))
    assert not path.exists()


@pytest.mark.slow
def test_time_ends_a_statement(trace: ks.Trace) -> None:
    with pytest.raises(TaskTimeoutError, match="took longer than 2 seconds and was stopped"):
        ks.sql(trace, LONG, seconds=2, memory_bytes=1 << 36)


def test_memory_ends_a_statement(trace: ks.Trace) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux limits what a process takes")
    with pytest.raises(MemoryLimitError, match=r"needs more than 512\.0 MiB of memory"):
        ks.sql(trace, "select a.* from ops a, ops b, ops c", memory_bytes=1 << 29)


def test_a_process_that_fails_is_not_taken_for_one_without_memory(
    trace: ks.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(InternalError, match="failed with exit code 1"):
        ks.sql(trace, "select 1 as one")


# In a process of its own: one that waits for itself can only be ended from outside.
_ASKING = """
import sys, threading
import kernelscope as ks

def ask():
    answers.append(ks.sql(trace, "SELECT count(*) AS n FROM ops").item())


trace, answers = ks.read(sys.argv[1]), []
question = threading.Thread(target=ask)
question.start()
while question.is_alive():
    assert trace.ops.height == 20_000
assert answers == [20_000]
"""


def test_others_may_use_the_tables_meanwhile(tmp_path: Path) -> None:
    events = Events()
    for at in range(20_000):
        events.op("aten::mm", 10 * at, 5)
    subprocess.run([sys.executable, "-c", _ASKING, events.write(tmp_path / "trace.json")], check=True)


@pytest.mark.slow
def test_no_process_is_left(trace: ks.Trace) -> None:
    if not os.path.isdir("/proc"):
        pytest.skip("processes are counted in /proc")
    ks.sql(trace, "select 1 as one")
    with pytest.raises(TaskTimeoutError):
        ks.sql(trace, LONG, seconds=1, memory_bytes=1 << 36)
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    commands = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    assert not [command for command in commands if b"query_process" in command]


@pytest.mark.slow
def test_the_command_prints_tables_csv_and_json(cli: Callable[..., Any], tiny: Path, tmp_path: Path) -> None:
    statement = "select row, name, grid, dur_ns, occupancy_pct from gpu_ops"
    done = cli("sql", tiny, statement)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].split() == ["row", "name", "grid", "dur_ns", "occupancy_pct"]
    assert done.stdout.splitlines()[2].split()[1:6] == ["gemm[bold]", "1,", "1,", "1", "30500"]
    lines = cli("sql", tiny, statement, "--format", "csv").stdout.splitlines()
    assert lines[1].partition(",")[2] == 'gemm[bold],"1, 1, 1",30500,'
    [row] = json.loads(cli("sql", tiny, statement, "--format", "json").stdout)
    assert row["grid"] == [1, 1, 1]
    out = tmp_path / "answer.csv"
    assert cli("sql", tiny, statement, "--format", "csv", "--out", out).stdout == ""
    assert out.read_text().splitlines() == lines
    cut = cli("sql", tiny, "select row from ops", "--rows", "1")
    assert len(cut.stdout.splitlines()) == 3
    assert cut.stderr == "kernelscope: the first 1 rows; pass --rows N for more\n"
    assert "columns do not fit; --format csv has all" in cli("sql", tiny, "select * from ops").stderr


def test_the_command_refuses_before_it_reads(cli: Callable[..., Any], tmp_path: Path) -> None:
    done = cli("sql", tmp_path / "missing.json", "drop table ops")
    assert done.returncode == 2
    assert "must begin with SELECT" in done.stderr


@pytest.mark.slow
def test_formulas_and_escapes_of_a_trace_reach_no_program(cli: Callable[..., Any], tmp_path: Path) -> None:
    events = Events()
    events.add("cpu_op", "=HYPERLINK(1)\x1b[31m", 0, 10, args={"External id": 1})
    path = events.write(tmp_path / "hostile.json")
    assert "'=HYPERLINK(1)" in cli("sql", path, "select name from ops", "--format", "csv").stdout
    for form in ("text", "csv", "json"):
        assert "\x1b" not in cli("sql", path, "select name from ops", "--format", form).stdout
