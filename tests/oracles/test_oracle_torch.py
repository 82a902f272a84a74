"""Against torch's own ``key_averages()``, PyProf's two programs, and the format of Perfetto."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from traces import ORACLES, SHARED, VALID, files, load_json, need, read

import kernelscope as ks
from kernelscope import compat
from kernelscope.cli import main
from kernelscope.compat import pyprof
from kernelscope.compat.pyprof.records import gathered, record_lines
from kernelscope.compat.pyprof.rows import compat_parts
from kernelscope.report.conversion import convert
from kernelscope.report.perfetto.added_events import CATEGORY
from round_trips import differences

TIMES = {"cpu_time_total": "cpu_total_ns", "self_cpu_time_total": "cpu_self_ns"}
MEMORY = {"cpu_memory_usage": "cpu_memory_bytes", "self_cpu_memory_usage": "cpu_self_memory_bytes"}
ORACLE_FILES = files(ORACLES / "torch-cpu", "*.oracle.json.gz")


def expected_rows(rows: list[dict[str, Any]], *, by_shape: bool, memory: bool) -> Counter[tuple[Any, ...]]:
    """Torch's rows, times in whole ns."""
    return Counter(
        (
            row["key"],
            (row["input_shapes"] or "[]") if by_shape else None,
            row["count"],
            *(round(row[theirs] * 1000) for theirs in TIMES),
            *(row[theirs] if memory else None for theirs in MEMORY),
            row["flops"],
        )
        for row in rows
    )


def without_own_time(rows: Counter[tuple[Any, ...]], names: set[str]) -> Counter[tuple[Any, ...]]:
    """The same without the own time of the rows of these names."""
    return Counter((*row[:4], None if row[0] in names else row[4], *row[5:]) for row in rows.elements())


def actual_rows(trace: Any, *, by_shape: bool) -> Counter[tuple[Any, ...]]:
    table = compat.torch_profiler.key_averages(trace, group_by_input_shape=by_shape)
    return Counter(
        (
            row["name"],
            (row["input_shapes"] or "[]") if by_shape else None,
            row["count"],
            *(row[ours] for ours in TIMES.values()),
            *(row[ours] for ours in MEMORY.values()),
            row["flops"] or 0,
        )
        for row in table.to_dicts()
    )


@pytest.mark.parametrize("by_shape", [False, True], ids=["name", "name-and-shape"])
@pytest.mark.parametrize("path", ORACLE_FILES)
def test_key_averages(path: Path, by_shape: bool) -> None:
    trace = read(path.with_name(path.name.replace(".oracle", "")))
    rows = load_json(path)["by_shape" if by_shape else "key_averages"]
    memory = trace.memory.height > 0
    # What was not recorded is 0 to torch.
    assert memory or all(row[theirs] == 0 for row in rows for theirs in MEMORY)
    expected = expected_rows(rows, by_shape=by_shape, memory=memory)
    actual = actual_rows(trace, by_shape=by_shape)
    # Torch takes off twice what a ``with record_function`` and a frame that it overlaps in part both take.
    negative = {row[0] for row in expected if row[4] < 0}
    assert all(0 <= row[4] <= row[3] for row in actual if row[0] in negative)
    expected, actual = without_own_time(expected, negative), without_own_time(actual, negative)
    assert sorted((expected - actual).items()) == []
    assert sorted((actual - expected).items()) == []


@pytest.mark.parametrize("path", ORACLE_FILES)
def test_key_averages_by_stack(path: Path) -> None:
    """The profiles were not verbose, so torch has no stack in any row, and rows as without stacks."""
    trace = read(path.with_name(path.name.replace(".oracle", "")))
    expected = Counter(
        (row["key"], tuple(row["stack"]), row["count"], round(row["cpu_time_total"] * 1000))
        for row in load_json(path)["by_stack_5"]
    )
    table = compat.torch_profiler.key_averages(trace, group_by_stack_n=5)
    actual = Counter(
        (row["name"], tuple(row["stack"]), row["count"], row["cpu_total_ns"]) for row in table.to_dicts()
    )
    assert actual == expected


@pytest.mark.parametrize("path", ORACLE_FILES)
def test_order_of_rows(path: Path) -> None:
    trace = read(path.with_name(path.name.replace(".oracle", "")))
    rows = load_json(path)["key_averages"]
    assert compat.torch_profiler.key_averages(trace)["name"].to_list() == [row["key"] for row in rows]


PYPROF = ORACLES / "pyprof"
H100 = SHARED / "traces" / "nsys" / "h100-2gpu-emit-nvtx-2026.2.sqlite"
GRAPHS = SHARED / "traces" / "nsys" / "cuda-graphs-2025.5.2.sqlite"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "golden"),
    [(["--csv", "-c", "all"], "golden.csv"), (["-w", "150"], "golden_w150.txt"), ([], "golden_space.txt")],
)
def test_the_report(capsys: pytest.CaptureFixture[str], options: list[str], golden: str) -> None:
    records = need(PYPROF / "golden.dict")
    assert printed(capsys, "prof", "--compat", *options, records) == (PYPROF / golden).read_text()


@pytest.mark.parametrize("name", ["e2e_nsys.sqlite", "e2e_nvprof.sql"])
def test_the_records_of_a_database(capsys: pytest.CaptureFixture[str], name: str) -> None:
    database = need(PYPROF / name)
    before = database.read_bytes()
    golden = (PYPROF / name).with_suffix(".dict").read_text()
    assert printed(capsys, "parse", "--compat", database) == golden
    assert database.read_bytes() == before


def test_the_database_itself_and_its_records_give_one_report(capsys: pytest.CaptureFixture[str]) -> None:
    database = need(PYPROF / "e2e_nsys.sqlite")
    of_database = printed(capsys, "prof", "--compat", "--csv", "-c", "all", database)
    assert of_database == printed(capsys, "prof", "--compat", "--csv", "-c", "all", PYPROF / "e2e_nsys.dict")
    first = of_database.splitlines()[1]
    assert first.endswith('"M=32,N=8,K=64,fp16,","150","1","0","7","2,1,1","128,1,1","32768","3328"')


# FLOPs and bytes that PyProf's README shows; None where it shows 0 for a convolution it does not know.
README = [
    (51380224, 205520896),
    (1644167168, 51388416),
    (12845056, 51380224),
    (6576668672, 128483328),
    (411041792, 411041792),
    *[(0, 0)] * 5,
]


def test_the_rows_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(
        capsys, "prof", "--compat", "-c", "flops,bytes", "--csv", need(PYPROF / "readme_rows.dict")
    )
    rows = [(int(float(a)), int(float(b))) for a, b in list(csv.reader(io.StringIO(text)))[1:]]
    assert rows == README


def test_records_are_read_and_written_without_loss() -> None:
    for name in ("golden.dict", "e2e_nsys.dict", "readme_rows.dict"):
        lines = need(PYPROF / name).read_text().splitlines()
        assert list(record_lines(gathered(pyprof.read_records(lines)))) == lines


def test_a_repaired_report_differs_where_pyprof_errs() -> None:
    """What is repaired, on its own records: every difference is one that the documentation names."""
    lines = need(PYPROF / "golden.dict").read_text().splitlines()
    records = list(pyprof.read_records(lines))
    ours = pyprof.pyprof_table(records).to_dicts()
    theirs = pl.concat(compat_parts(gathered(records), list(pyprof.COLUMNS))).to_dicts()
    tags = (PYPROF / "golden.tags").read_text().splitlines()
    same = {"idx", "seq", "altseq", "tid", "layer", "trace", "dir", "sub", "mod", "op", "kernel", "sil"}
    for our, their in zip(ours, theirs, strict=True):
        assert {name: our[name] for name in same} == {name: their[name] for name in same}
    by_tag: dict[str, Any] = dict(zip(tags, ours, strict=True))
    # (8, 64) by (32, 64) with a bias: all three matrices and the bias count with 2 bytes an element.
    assert by_tag["linear fprop"]["bytes"] == 2 * (8 * 64 + 32 * 64 + 8 * 32 + 32)
    assert by_tag["linear fprop splitK"]["flops"] == 0
    assert by_tag["matmul batched"]["bytes"] == 2 * (3 * 8 * 64 + 64 * 32 + 3 * 8 * 32)
    assert by_tag["conv2d xmma sm80"]["flops"] == 2 * 32 * 54 * 54 * 128 * 64 * 9
    # A head of 2, 4 queries and keys of size 8: two products.
    assert by_tag["sdpa"]["flops"] == 2 * 2 * 2 * 4 * 4 * 8
    assert by_tag["no marker"]["flops"] is None
    # A product of ordinary multiply-adds, whatever else its name says.
    assert by_tag["linear ffma xmma"]["tc"] == 0


def test_todays_emit_nvtx_traces_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    """PyProf fails on the text after the sequence numbers, or drops half of the kernels."""
    trace = ks.read(need(H100))
    table = pyprof.pyprof_table(trace)
    kernels = trace.gpu_ops.filter(pl.col("kind") == "kernel")
    assert table.height == kernels.height == 3442
    named = table.filter(pl.col("op") != "")
    assert named.height == 1632
    assert set(named["op"].unique()) >= {"aten::linear", "aten::mul", "aten::reshape"}
    assert table["kernel"].str.len_chars().min() > 0
    assert printed(capsys, "parse", "--compat", H100).count("\n") == 1632


def test_a_database_without_ranges_is_read() -> None:
    table = pyprof.pyprof_table(ks.read(need(GRAPHS)))
    assert table.select("op", "params", "flops").unique().rows() == [(None, None, None)]


@pytest.mark.parametrize("path", [*VALID, *files(ORACLES / "torch-cpu" / "invalid", "*.json*")])
def test_round_trip(path: Path, tmp_path: Path) -> None:
    trace = read(path)
    out = tmp_path / "perfetto.json"
    convert(trace, "perfetto", out)
    events = json.loads(out.read_bytes())["traceEvents"]
    assert sum(event.get("cat") != CATEGORY for event in events) == trace.meta.kept
    assert differences(trace, ks.read(out)) == []
