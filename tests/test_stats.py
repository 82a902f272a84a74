"""``kernelscope stats`` and the reports behind it."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from kernelscope.compat.nsys import REPORTS, Field, Figure, nsys_report
from kernelscope.compat.nsys.reports import OLD_NAMES
from kernelscope.report.compat import nsys
from nsys_database import Database, global_pid

Cli = Callable[..., subprocess.CompletedProcess[str]]

UNIFIED = {
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,"
    " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER,"
    " srcKind INTEGER, dstKind INTEGER, virtualAddress INTEGER",
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": "start INTEGER, globalPid INTEGER, address INTEGER,"
    " CpuInstruction INTEGER",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": "start INTEGER, end INTEGER, globalPid INTEGER, deviceId INTEGER,"
    " address INTEGER, numberOfPageFaults INTEGER",
}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    database = Database(tmp_path / "small.sqlite")
    for correlation, (pid, device) in enumerate([(7, 0), (7, 0), (8, 1)], 1):
        at = 100 * correlation
        database.range("step, op_id = 1", at, at + 50, pid=pid)
        database.call(at + 1, at + 5, pid=pid, correlation=correlation)
        database.kernel(at + 10, at + 20, pid=pid, correlation=correlation, deviceId=device)
    return database.close()


def lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n")


def test_csv_on_stdout(cli: Cli, small: Path) -> None:
    done = cli("stats", small, "--report", "cuda_gpu_kern_sum")
    assert (done.returncode, done.stderr) == (0, "")
    assert lines(done.stdout) == [
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name",
        "100.0,30,3,10.0,10.0,10,10,0.0,void gemm<float>(int)",
    ]


def test_several_reports_behind_one_option(cli: Cli, small: Path) -> None:
    apart = cli("stats", small, "-r", "cuda_gpu_kern_sum:base", "-r", "cuda_api_sum")
    together = cli("stats", small, "-r", "cuda_gpu_kern_sum:base,cuda_api_sum")
    assert (together.returncode, together.stdout) == (0, apart.stdout)


@pytest.mark.slow
def test_names_of_older_versions(cli: Cli, small: Path) -> None:
    assert set(OLD_NAMES.values()) <= set(REPORTS)
    for old, new in OLD_NAMES.items():
        done, wanted = cli("stats", small, "-r", old), cli("stats", small, "-r", new)
        assert (done.returncode, done.stdout) == (wanted.returncode, wanted.stdout)


def test_values_with_tabs_between(cli: Cli, small: Path) -> None:
    tabs = cli("stats", small, "-r", "cuda_gpu_kern_sum,cuda_kern_exec_trace", "--format", "tsv").stdout
    commas = cli("stats", small, "-r", "cuda_gpu_kern_sum,cuda_kern_exec_trace").stdout
    assert list(csv.reader(io.StringIO(tabs), delimiter="\t")) == list(csv.reader(io.StringIO(commas)))
    assert "\t" in tabs


def test_by_breaks_rows_down(cli: Cli, small: Path) -> None:
    done = cli("stats", small, "-r", "cuda_gpu_kern_sum:base", "--by", "device,process")
    assert [line.split(",")[:5] for line in lines(done.stdout)[1:]] == [
        ["0", "7", "66.7", "20", "2"],
        ["1", "8", "33.3", "10", "1"],
    ]
    rank = nsys_report(ks.read(small), "cuda_api_sum", by=["rank"])
    assert rank["rank"].to_list() == [None]


def test_several_reports_in_every_form(cli: Cli, small: Path, tmp_path: Path) -> None:
    done = cli("stats", small, "-r", "cuda_api_sum", "-r", "nvtx_sum", "--format", "json")
    first, second = (json.loads(part) for part in done.stdout.split("\n\n"))
    assert first[0]["Name"] == "cudaLaunchKernel"
    assert second[0]["Range"] == "step, op_id = 1"
    columns = cli("stats", small, "-r", "cuda_gpu_kern_gb_sum", "--format", "column").stdout
    assert lines(columns)[2].endswith("   4    2    1   128    1    1  void gemm<float>(int)")
    out = tmp_path / "trace.parquet"
    assert cli("stats", small, "-r", "cuda_gpu_trace", "--format", "parquet", "--out", out).returncode == 0
    frame = pl.read_parquet(out)
    assert frame["start_ns"].to_list() == [110, 210, 310]
    assert frame.columns == [field.column for field in REPORTS["cuda_gpu_trace"].fields]


def test_a_report_into_a_file_is_whole(cli: Cli, small: Path, tmp_path: Path) -> None:
    out = tmp_path / "sum.csv"
    done = cli("stats", small, "-r", "cuda_gpu_sum", "--out", out)
    assert (done.returncode, done.stdout) == (0, "")
    assert len(lines(out.read_text())) == 2
    assert not list(tmp_path.glob(".*"))


def test_what_was_not_recorded_is_no_empty_answer(cli: Cli, small: Path) -> None:
    done = cli("stats", small, "-r", "osrt_sum", "-r", "nvtx_startend_sum")
    assert done.returncode == 1
    assert "osrt_sum: OSRT_API: " in done.stderr
    # The other report is made: ranges were recorded, and none is of this style.
    assert lines(done.stdout.lstrip("\n")) == [
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Range"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-r", "nonsense"], "there is no report 'nonsense'"),
        (["-r", "cuda_api_sum:base"], "has no argument 'base'"),
        (["-r", "cuda_api_sum", "--by", "device"], "cannot be broken down by 'device'"),
        (["-r", "gpu_gaps:gap=x"], "gap=x is not a whole number"),
        (["-r", "cuda_api_sum", "--format", "parquet"], "name it with --out"),
        (["--format", "parquet", "--out", "x"], "writes one report to one file"),
    ],
)
def test_usage(cli: Cli, small: Path, arguments: list[str], message: str) -> None:
    done = cli("stats", small, *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_columns_fit_80_characters_when_piped(cli: Cli, tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite")
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
    database.insert("StringIds", id=1000, value=name)
    database.call(0, 5, correlation=1)
    database.kernel(10, 1_000_000_010, correlation=1, demangledName=1000)
    database.connection.execute("UPDATE ANALYSIS_DETAILS SET duration = 2000000000")
    path = database.close()
    for arguments in ([], ["-r", "cuda_gpu_kern_sum", "--format", "column"], ["--list"]):
        done = cli("stats", path, *arguments)
        assert max(map(len, lines(done.stdout))) <= 80
    shown = lines(cli("stats", path, "-r", "cuda_gpu_kern_sum", "--format", "column").stdout)
    assert shown[0].split("  ")[:3] == ["Time (%)", "Total Time (ns)", "Instances"]
    assert "vectorized_element" in shown[2]
    assert "4 columns do not fit; --format csv has all" in cli("stats", path).stderr
    out = tmp_path / "whole.txt"
    assert cli("stats", path, "-r", "cuda_gpu_kern_sum", "--format", "column", "--out", out).returncode == 0
    assert name in out.read_text()


def test_without_a_report_the_summaries_are_shown(cli: Cli, tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite")
    for number in range(40):
        at = 100 * number
        name_id = 1000 + number
        database.insert("StringIds", id=name_id, value=f"kernel_{number:02}")
        database.call(at, at + 5, correlation=number + 1)
        database.kernel(at + 10, at + 11 + number, correlation=number + 1, demangledName=name_id)
    done = cli("stats", database.close())
    assert done.returncode == 0
    titles = [line for line in lines(done.stdout) if line.startswith("**")]
    assert titles[0] == "** CUDA GPU kernel summary (cuda_gpu_kern_sum)"
    assert any("(cuda_api_sum)" in title for title in titles)
    # The longest kernels, and where the others are.
    assert "kernel_39" in done.stdout
    assert "kernel_15" in done.stdout
    assert "kernel_14" not in done.stdout
    assert "the first 25 rows; --report cuda_gpu_kern_sum shows all" in done.stderr
    # What was not recorded is said, and is no failure.
    assert "osrt_sum" in done.stderr
    assert "(osrt_sum)" not in done.stdout


def test_no_database(cli: Cli) -> None:
    done = cli("stats")
    assert done.returncode == 2
    assert "pass a database" in done.stderr


def test_list_names_every_report(cli: Cli) -> None:
    done = cli("stats", "--list")
    assert [line.split()[0] for line in lines(done.stdout)] == list(REPORTS)


def test_work_without_a_call_is_counted(cli: Cli, tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite")
    database.call(0, 5, correlation=1)
    database.kernel(10, 20, correlation=1)
    database.kernel(30, 40, correlation=2)
    done = cli("stats", database.close(), "-r", "cuda_kern_exec_trace")
    assert len(lines(done.stdout)) == 2
    assert "1 of 2 GPU operations (kernel) have no call in the recording" in done.stderr


def test_one_function_is_one_row_whatever_its_version(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite")
    for number, version in enumerate(("v7000", "v11060", "v12000"), 10):
        database.insert("StringIds", id=number, value=f"cudaLaunchKernelExC_{version}")
        database.call(0, 10, correlation=number, nameId=number)
    table = nsys_report(ks.read(database.close()), "cuda_api_sum")
    assert table.select("name", "instances").rows() == [("cudaLaunchKernelExC", 3)]


def test_gpu_trace_needs_no_names_of_gpus(small: Path) -> None:
    frame = nsys_report(ks.read(small), "cuda_gpu_trace")
    assert frame["device_name"].to_list() == ["(0)", "(0)", "(1)"]
    assert frame.select("grid_x", "grid_y", "grid_z", "block_x").row(0) == (4, 2, 1, 128)


def test_gpu_trace_takes_the_names_that_are_asked_for(cli: Cli, small: Path) -> None:
    for report, name in (
        ("cuda_gpu_trace", "void gemm<float>(int)"),
        ("cuda_gpu_trace:base", "gemm"),
        ("cuda_gpu_trace:mangled", "_Z4gemm"),
        ("cuda_gpu_trace:nvtx-name:base", "step, op_id = 1/gemm"),
    ):
        rows = list(csv.DictReader(io.StringIO(cli("stats", small, "-r", report).stdout)))
        assert [row["Name"] for row in rows] == [name] * 3


def test_idle_rules_say_that_overhead_of_the_profiler_is_work(cli: Cli, tmp_path: Path) -> None:
    overhead = "start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER"
    database = Database(tmp_path / "a.sqlite", schema={"PROFILER_OVERHEAD": overhead})
    database.kernel(0, 100)
    database.kernel(5_000_000, 5_000_100)
    database.insert("PROFILER_OVERHEAD", start=100, end=4_000_000, globalTid=global_pid(7) | 7, nameId=2)
    path = database.close()
    done = cli("stats", path, "-r", "gpu_gaps:gap=0")
    assert [line.split(",")[1:3] for line in lines(done.stdout)[1:]] == [["1000000", "4000000"]]
    assert "gpu_gaps: 4.000 ms of profiler overhead count as GPU operations" in done.stderr
    assert "overhead" not in cli("stats", path, "-r", "cuda_gpu_kern_sum").stderr


def test_gaps_and_utilisation_count_time_once(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite")
    for start, end in [(0, 100), (50, 150), (200, 300)]:
        database.kernel(start, end)
    trace = ks.read(database.close())
    gaps = nsys_report(trace, "gpu_gaps:gap=0")
    assert gaps.select("number", "start_ns", "dur_ns", "pid").rows() == [(1, 150, 50, 7)]
    assert nsys_report(trace, "gpu_gaps").is_empty()
    (whole,) = nsys_report(trace, "gpu_time_util:threshold=101:chunks=3").rows(named=True)
    assert whole["busy_pct"] == pytest.approx(100 * 250 / 300)
    low = nsys_report(trace, "gpu_time_util:threshold=60:chunks=3")
    assert low.select("start_ns", "dur_ns", "busy_pct").rows() == [(100, 100, 50.0)]


def test_unified_memory(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite", schema=UNIFIED)
    copy: dict[str, Any] = {"deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 0}
    copy |= {"globalPid": global_pid(7), "srcKind": 4, "dstKind": 4}
    table = "CUPTI_ACTIVITY_KIND_MEMCPY"
    database.insert(table, start=0, end=300, bytes=4000, copyKind=11, virtualAddress=4096, **copy)
    database.insert(table, start=500, end=600, bytes=1000, copyKind=12, virtualAddress=8192, **copy)
    database.insert(table, start=700, end=800, bytes=9999, copyKind=1, virtualAddress=None, **copy)
    for _ in range(2):
        database.insert(
            "CUDA_UM_CPU_PAGE_FAULT_EVENTS", start=5, globalPid=global_pid(7), address=8192, CpuInstruction=2
        )
    database.insert(
        "CUDA_UM_GPU_PAGE_FAULT_EVENTS", start=6, end=9, globalPid=global_pid(7), deviceId=0, address=4096,
        numberOfPageFaults=5,
    )  # fmt: skip
    trace = ks.read(database.close())
    by_address = nsys_report(trace, "um_sum")
    assert by_address.drop("bytes_per_s").rows() == [(4096, 4000, 0, 0, 5), (8192, 0, 1000, 2, 0)]
    assert by_address["bytes_per_s"].to_list() == [4000e9 / 300, 1000e9 / 100]
    assert nsys_report(trace, "um_total_sum").rows() == [(4000, 1000, 2, 5, 4096, 8192)]
    assert nsys_report(trace, "um_cpu_page_faults_sum").rows() == [(2, "gemm")]


def test_reports_answer_for_other_formats(tiny: Path) -> None:
    trace = ks.read(tiny)
    assert nsys_report(trace, "cuda_gpu_kern_sum").select("name", "total_ns").rows() == [
        ("gemm[bold]", 30_500)
    ]
    assert nsys_report(trace, "nvtx_gpu_proj_trace")["name"].to_list() == ["ProfilerStep#1"]


def test_every_report_of_a_small_database_has_its_columns(small: Path) -> None:
    trace = ks.read(small)
    for name, report in REPORTS.items():
        # A pace is that of one name.
        asked = f"{name}:name=step" if "name" in report.arguments else name
        assert nsys_report(trace, asked).columns == [field.column for field in report.fields]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        # Two means that nsys itself printed so; the nearest doubles are less than the halves.
        *[(160735 / 100, "1607.4"), (540879 / 60, "9014.7")],
        # What nsys' SQLite makes of others: a half is judged as the decimal that the number stands for.
        *[(0.25, "0.3"), (2.25, "2.3"), (0.15, "0.2"), (1.35, "1.4")],
        *[(0.05, "0.1"), (9.95, "10.0"), (10.0, "10.0")],
        # A number that is meant to be less than a half stays less.
        *[(1607.3499, "1607.3"), (0.1499999999, "0.1"), (44.85 - 1e-13, "44.8")],
    ],
)
def test_halves_are_judged_on_the_decimal(value: float, shown: str) -> None:
    assert tenths([value]) == [shown]


@pytest.mark.skipif(
    not (3, 32) <= sqlite3.sqlite_version_info < (3, 43),
    reason="the SQLite of this Python does not round like that of nsys (3.42)",
)
def test_numbers_are_rounded_as_sqlite_does() -> None:
    random = Random(5)
    values = [random.randrange(10**9) / random.choice((3, 7, 20, 60, 100, 1000)) for _ in range(20_000)]
    wide = (10 ** random.randrange(1, 13) for _ in range(20_000))
    values += [random.randrange(most) + random.randrange(20) / 20 for most in wide]
    with sqlite3.connect(":memory:") as connection:
        rounded = [connection.execute("SELECT round(?, 1)", (value,)).fetchone()[0] for value in values]
    connection.close()
    assert tenths(values) == [f"{value:.1f}" for value in rounded]


def tenths(values: list[float]) -> list[str]:
    fields = [Field("x", "x", Figure.TENTHS)]
    return nsys.as_shown(pl.DataFrame({"x": values}), fields)["x"].to_list()
