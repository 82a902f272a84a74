"""Files that mean harm: an answer or an error in one sentence, and memory that no number in a file scales."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import draws
import kernelscope as ks
from events import Events
from kernelscope import analysis
from kernelscope.batch import reports
from kernelscope.compat import hta, torch_profiler
from kernelscope.escaping import for_csv, for_html, for_markdown, for_terminal
from kernelscope.report import json_document
from nvprof_database import Database as NvprofDatabase

Run = Callable[..., subprocess.CompletedProcess[str]]

HERE = Path(__file__).parent
DRAWN = draws.count(2, 400)
"""How many files are drawn."""
_PARTS = 2
RED = "\x1b[31mred"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(_PARTS))
def test_every_question_and_command_answers_or_says_why(part: int) -> None:
    size = DRAWN // _PARTS
    command = [
        sys.executable,
        str(HERE / "hostile.py"),
        str(draws.seed + part * size),
        str(draws.seed + (part + 1) * size),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def of_device() -> Events:
    """A step, in which an operator launches a kernel."""
    events = Events()
    events.annotation("ProfilerStep#1", 0, 100)
    events.op("aten::mm", 5, 20, Input_Dims=[[2, 3], [3, 4]])
    events.call(6, 3, 1)
    events.kernel("gemm", 30, 20, 1)
    return events


@pytest.mark.parametrize(
    ("written", "rank"),
    [
        ("--1", None),
        ("-", None),
        (" 3 ", 3),
        ("+4", 4),
        (2**63, None),
        (10**30, None),
        (1.5, None),
        (True, None),
    ],
)
def test_a_rank_is_a_whole_number_or_unknown(tmp_path: Path, written: Any, rank: int | None) -> None:
    trace = of_device().read(tmp_path, distributedInfo={"rank": written, "world_size": written})
    assert (trace.meta.rank, trace.meta.world_size) == (rank, rank)
    assert hta.temporal_breakdown(trace)["rank"].to_list() == [rank or 0]
    assert analysis.overview(trace)["rank"].to_list() == [rank]


def test_a_number_of_many_digits_costs_nothing_but_itself(tmp_path: Path, cli: Run) -> None:
    path = of_device().write(tmp_path / "trace.json", seed=4242)
    path.write_text(path.read_text().replace("4242", "9" * 5_000))
    assert ks.read(path).meta.properties["seed"] == "9" * 5_000
    assert json.loads(cli("info", path, "--format", "json").stdout)["trace"]["rank"] is None


def test_a_job_is_as_large_as_a_file_says() -> None:
    entries = [
        reports.Entry(f"{rank}", "done", "default", rank, 1, 1, "", "", meta={"world_size": 2**62})
        for rank in (0, 2)
    ]
    found = reports.consistency_warnings(entries, run="default")
    assert found[0].startswith(
        "4,611,686,018,427,387,904 ranks expected, missing: 1, 3, 4, 5, 6, 7, 8, 9 and"
    )


@pytest.mark.parametrize(
    "dims",
    [
        [[[1, 2, 3], 10**10], [3, 4]],
        [["ab", 10**10], [3, 4]],
        [{"a": 1}, [2, 3]],
        [[2.5, 3], [3, 4]],
        [[True, 3], [3, 4]],
        [["x"], [3, 4]],
        [[2**64, 3], [3, 2**64]],
    ],
)
@pytest.mark.parametrize("name", ["aten::mm", "aten::mul", "aten::bmm", "aten::conv2d"])
def test_flops_of_odd_shapes_are_none(tmp_path: Path, name: str, dims: Any) -> None:
    events = Events()
    events.op(name, 5, 20, Input_Dims=dims, Concrete_Inputs=["", "", "", "[[]]", "[9]", "{}", "1"])
    table = torch_profiler.key_averages(events.read(tmp_path, with_flops=1))
    assert table["flops"].to_list() == [0]


def test_a_counter_may_be_called_like_a_column(tmp_path: Path, cli: Run) -> None:
    events = of_device()
    counters = {"correlation": 3, "row": 4, "value": 5, "dram__bytes.sum": 6, "counter 0": 7}
    events.add("cuda_profiler_range", "gemm", 30, 5, args=counters)
    path = events.write(tmp_path / "trace.json")
    table = analysis.counters_with_operators(ks.read(path))
    measured = table.select("correlation (counter)", "row (counter)", "value", "dram__bytes.sum", "counter 0")
    assert measured.row(0) == (3, 4, 5, 6, 7)
    assert table["correlation"].to_list() == [1]
    assert table["measured_bytes"].to_list() == [6]
    assert cli("roofline", path).returncode == 0


def test_times_that_no_recorder_has_are_not_known(tmp_path: Path, cli: Run) -> None:
    database = NvprofDatabase(tmp_path / "old.sql")
    database.kernel(-(2**62), 10)
    database.kernel(5, 2**63 - 1)
    database.kernel(20, 30)
    path = database.close()
    trace = ks.read(path)
    assert trace.gpu_ops.select("start_ns", "dur_ns").rows() == [(5, None), (20, 10)]
    assert (
        dict(trace.diagnostics.select("code", "count").iter_rows()).items()
        >= {"untimed_work": 1, "bad_number": 1}.items()
    )
    assert analysis.efficiency(trace)["total_ns"].to_list() == [25]
    done = cli("roofline", path)
    assert done.returncode == 0
    assert "not known: 1 untimed work" in done.stderr


def test_streams_far_apart_are_streams(tmp_path: Path) -> None:
    events = Events()
    for at, (device, stream) in enumerate([(0, 2**30), (1, -(2**30)), (2**30, 5), (2**31 - 1, 2**31 - 2)]):
        events.call(10 * at, 2, at + 1)
        events.kernel("k", 10 * at + 4, 3, at + 1, device=device, stream=stream)
    trace = events.read(tmp_path)
    assert analysis.queue_length(trace).height == 2 * trace.gpu_ops["stream"].n_unique()


def test_a_copy_of_more_bytes_than_there_are_has_no_rate(tmp_path: Path) -> None:
    events = Events()
    events.copy(0, 0.001, 1)
    events.events[-1]["args"]["bytes"] = 2**62
    assert analysis.memory_bandwidth(events.read(tmp_path))["bytes_per_s"].null_count() >= 0


def test_a_trace_for_perfetto_is_json_with_ids_of_its_own(tmp_path: Path, cli: Run) -> None:
    events = of_device()
    last = {"cat": "ac2g", "name": "ac2g", "pid": 7, "tid": 7, "ts": 5, "id": 2**63 - 1}
    events.events += [{"ph": "s", **last}, {"ph": "f", **last}]
    for value in ("--1", "007", "\u00b2", "-5"):
        place = {"ph": "M", "name": "thread_sort_index", "pid": 7, "tid": 7}
        events.events.append({**place, "args": {"sort_index": value}})
    done = cli("convert", events.write(tmp_path / "a.json"), "--to", "perfetto", "--out", tmp_path / "b.json")
    assert (done.returncode, done.stderr) == (0, "")
    written = json.loads((tmp_path / "b.json").read_text())["traceEvents"]
    recorded, added = (
        {event["id"] for event in written if event.get("ph") in "sf" and event["cat"] == category}
        for category in ("ac2g", "kernelscope")
    )
    assert recorded == {2**63 - 1}
    assert len(added) == 1
    assert added.isdisjoint(recorded)


def test_long_lists_of_json_end_in_a_row_for_the_rest(
    tmp_path: Path, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_document, "MOST_ROWS", 3)
    events = Events()
    for at in range(10):
        events.call(100 * at, 2, at + 1)
        events.kernel(f"kernel{at}", 100 * at + 5, 10 + at, at + 1)
    path = events.write(tmp_path / "trace.json")
    document = json.loads(cli("analyze", path, "--format", "json").stdout)
    *largest, rest = document["kernels"]
    assert [row["name"] for row in largest] == ["kernel9", "kernel8", "kernel7"]
    assert (rest["name"], rest["calls"], rest["mean_ns"]) == ("7 others", 7, None)
    assert rest["total_ns"] == sum(range(10, 17)) * 1_000
    assert document["left_out"]["kernels"] == 7
    whole = analysis.kernel_table(ks.read(path))["total_ns"].sum()
    assert sum(row["total_ns"] for row in document["kernels"]) == whole


def test_a_terminal_gets_no_escape_sequence(tmp_path: Path, cli: Run) -> None:
    events = of_device()
    events.kernel(f"{RED}\u202e\x9b\n", 60, 10, 2)
    path = events.write(tmp_path / f"{RED}.json")
    for command in (["info"], ["analyze"], ["roofline"], ["stats"], ["stats", "-r", "cuda_gpu_kern_sum"]):
        done = cli(command[0], path, *command[1:])
        assert not set(done.stdout + done.stderr) & set("\x1b\x9b\u202e"), command
    for command in ("info", "analyze", "stats", "prof", "parse"):
        done = cli(command, tmp_path / f"{RED}\n.json")
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "\x1b" not in done.stderr


def test_a_spreadsheet_gets_no_formula(tmp_path: Path, cli: Run) -> None:
    events = of_device()
    for at, name in enumerate(["=1+1", "@SUM(A1)", "+2", "-3", '=HYPERLINK("http://x")', "\t=4"]):
        events.call(100 * at + 100, 2, at + 2)
        events.kernel(name, 100 * at + 105, 10, at + 2)
    path = events.write(tmp_path / "trace.json")
    cli("analyze", path, "--format", "csv", "--out", tmp_path / "report")
    texts = [
        (tmp_path / "report/kernels.csv").read_text(),
        cli("stats", path, "-r", "cuda_gpu_kern_sum").stdout,
    ]
    texts.append(cli("roofline", path, "--by", "kernel", "--format", "csv").stdout)
    database = NvprofDatabase(tmp_path / "old.sql")
    database.call(1, 4)
    database.kernel(5, 10, "=1+1")
    texts.append(cli("prof", database.close(), "--compat", "--csv").stdout)
    texts.append(cli("prof", tmp_path / "old.sql", "--csv").stdout)
    assert all("'=1+1" in text for text in texts[-2:])
    for text in texts:
        cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
        assert not [cell for cell in cells if cell[:1] in "=+@\t\r" and cell]
        assert [
            cell for cell in cells if cell.startswith("-") and not cell[1:].replace(".", "").isdigit()
        ] == []


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1", "'=1"),
        ("+a", "'+a"),
        ("-a", "'-a"),
        ("-1+2", "'-1+2"),
        ("@a", "'@a"),
        ("\t=1", "' =1"),
        ("\r@a", "' @a"),
        ("\uff1d1", "'\uff1d1"),
        ("--=1", "'--=1"),
        ('--HYPERLINK("x")', '\'--HYPERLINK("x")'),
        ("--2+cmd|'/c calc'!A1", "'--2+cmd|'/c calc'!A1"),
        ("--DOM1:inner", "--DOM1:inner"),
        ("-", "-"),
        ("aten::mm", "aten::mm"),
        ("[CUDA memcpy]", "[CUDA memcpy]"),
        ("a\x1b[31m\nb\u202ec", "a [31m b c"),
        (None, None),
    ],
)
def test_cells_of_csv(text: str | None, cell: str | None) -> None:
    frame = pl.DataFrame({"text": [text, "plain"], "number": [-1, 2]})
    assert for_csv(frame)["text"].to_list() == [cell, "plain"]
    assert for_csv(frame.cast({"text": pl.Categorical}))["text"].to_list() == [cell, "plain"]
    assert for_csv(frame)["number"].to_list() == [-1, 2]
    assert for_csv(frame.head(1)).to_dict(as_series=False) == {"text": [cell], "number": [-1]}


@given(st.text())
def test_text_of_every_destination_is_one_line_without_marks(text: str) -> None:
    for safe in (for_terminal(text), for_markdown(text), for_html(text)):
        safe.encode()
        assert not set(safe) & set("\0\t\n\r\x1b\x7f\x85\x9b\u061c\u200b\u2028\u202e\u2066\ufeff\U000e0041")
    assert not set(for_html(text)) & set("<>\"'")
    assert "<" not in for_markdown(text)
