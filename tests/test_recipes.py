"""Recipes of nsys on databases whose answers stand beside them, and beside loops over SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest
from polars.testing import assert_frame_equal

import kernelscope as ks
from kernelscope.compat.nsys import REPORTS, nsys_report, nsys_reports, parse, read_for
from kernelscope.report import page_views, render
from metrics_database import MetricsDatabase
from nsys_database import Database, global_tid
from twin import drawn_databases

RECIPES = (
    "nccl_sum",
    "nvtx_pace:name=step",
    "nvtx_gpu_proj_pace:name=step",
    "cuda_gpu_kern_pace:name=void gemm<float>(int)",
    "cuda_gpu_kern_hist:bins=4",
    "cuda_gpu_time_util_map:bins=4",
    "nccl_gpu_time_util_map:bins=4",
)
NCCL_KERNEL = "ncclDevKernel_AllReduce_Sum_f32(int)"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Three steps on GPU 0: 40 ns of a product each, in the last two beside 60 ns of a collective."""
    database = Database(tmp_path / "steps.sqlite")
    database.insert("StringIds", id=50, value=NCCL_KERNEL)
    domain = {"domainId": 1, "globalTid": global_tid(7, 7)}
    database.insert("NVTX_EVENTS", start=0, eventType=75, text="NCCL", **domain)
    for at in range(3):
        start = 100 * at
        database.range("step", start, start + 30)
        database.call(start + 1, start + 5, correlation=2 * at + 1)
        database.kernel(start + 40, start + 80, correlation=2 * at + 1)
        if at:
            database.range("ncclAllReduce", start + 10, start + 10 + 4 * at, domainId=1)
            database.call(start + 11, start + 12, correlation=2 * at + 2)
            database.kernel(start + 60, start + 120, correlation=2 * at + 2, demangledName=50, streamId=9)
    # A step of another thread has a pace of its own.
    database.range("step", 500, 510, globalTid=global_tid(7, 8))
    return database.close()


def test_pace_of_ranges(recorded: Path) -> None:
    found = nsys_report(ks.read(recorded), "nvtx_pace:name=step")
    names = "tid iteration start_ns end_ns dur_ns delta_ns dur_sum_ns delta_sum_ns".split()
    assert found.select(names).rows() == [
        (7, 0, 0, 30, 30, None, 30, None),
        (7, 1, 100, 130, 30, 70, 60, 70),
        (7, 2, 200, 230, 30, 70, 90, 140),
        (8, 0, 500, 510, 10, None, 10, None),
    ]


def test_pace_of_projections(recorded: Path) -> None:
    found = nsys_report(ks.read(recorded), "nvtx_gpu_proj_pace:name=step")
    assert found.select("iteration", "start_ns", "dur_ns", "delta_ns", "delta_sum_ns").rows() == [
        (0, 40, 40, None, None),
        (1, 140, 80, 60, 60),
        (2, 240, 80, 20, 80),
    ]


def test_pace_of_kernels(recorded: Path) -> None:
    found = nsys_report(ks.read(recorded), f"cuda_gpu_kern_pace:name={NCCL_KERNEL}")
    assert found.select("device", "iteration", "start_ns", "dur_ns", "delta_ns", "dur_sum_ns").rows() == [
        (0, 0, 160, 60, None, 60),
        (0, 1, 260, 60, 40, 120),
    ]
    assert nsys_report(ks.read(recorded), "cuda_gpu_kern_pace:base:name=gemm").height == 5


def test_nccl_sum(recorded: Path) -> None:
    found = nsys_report(ks.read(recorded), "nccl_sum").drop("std_ns")
    assert found.rows(named=True) == [
        {
            "name": "ncclAllReduce", "instances": 2, "total_ns": 12, "mean_ns": 6.0, "min_ns": 4,
            "q1_ns": 5.0, "median_ns": 6.0, "q3_ns": 7.0, "max_ns": 8,
        }
    ]  # fmt: skip


def test_quartiles_are_exact(tmp_path: Path) -> None:
    database = Database(tmp_path / "nccl.sqlite")
    database.insert("NVTX_EVENTS", start=0, eventType=75, text="NCCL", domainId=1, globalTid=global_tid(7, 7))
    lengths = [3, 1, 4, 15, 9, 2, 6]
    for at, length in enumerate(lengths):
        database.range("ncclSend", 100 * at, 100 * at + length, domainId=1)
    database.range("ncclSend", 0, 99)
    found = nsys_report(ks.read(database.close()), "nccl_sum")
    assert list(found.select("q1_ns", "median_ns", "q3_ns").row(0)) == quantiles(lengths, method="inclusive")


def test_maps_of_utilisation(recorded: Path) -> None:
    # From 40 to 320: 70 ns each.
    trace = ks.read(recorded)
    found = nsys_report(trace, "cuda_gpu_time_util_map:bins=4")
    assert found.select("start_ns", "end_ns").rows() == [(40, 110), (110, 180), (180, 250), (250, 320)]
    assert [round(share * 0.7) for share in found["busy_pct"]] == [40, 40, 40 + 10, 70]
    every = nsys_report(trace, "cuda_gpu_time_util_map:bins=4:cumulative")
    assert [round(share * 0.7) for share in every["busy_pct"]] == [40, 40 + 20, 40 + 10, 30 + 60]
    parts = nsys_report(trace, "nccl_gpu_time_util_map:bins=4")
    shares = {name: [round(share * 0.7) for share in parts[f"{name}_pct"]]
              for name in ("busy", "nccl", "compute", "overlap")}  # fmt: skip
    assert shares == {
        "busy": [40, 40, 50, 70],
        "nccl": [0, 20, 40, 60],
        "compute": [40, 40, 10, 30],
        "overlap": [0, 20, 0, 20],
    }


def test_histograms(recorded: Path, tmp_path: Path) -> None:
    # Three kernels of 40 ns and two of 60: bins of 5 ns.
    trace = ks.read(recorded)
    found = nsys_report(trace, "cuda_gpu_kern_hist:bins=4")
    assert found.rows() == [
        (7, 0, 0, 40, 45, 3, 60.0),
        (7, 0, 1, 45, 50, 0, 0.0),
        (7, 0, 2, 50, 55, 0, 0.0),
        (7, 0, 3, 55, 60, 2, 40.0),
    ]
    # All of one length are one bin.
    assert nsys_report(trace, f"cuda_gpu_kern_hist:name={NCCL_KERNEL}").rows() == [
        (7, 0, 0, 60, 60, 2, 100.0)
    ]
    assert nsys_report(trace, "cuda_gpu_kern_hist:base:bins=2:name=gemm")["instances"].to_list() == [3, 2]
    assert nsys_report(trace, "cuda_gpu_kern_hist:name=none").is_empty()


@pytest.mark.slow
def test_histograms_keep_gpus_apart(tmp_path: Path) -> None:
    for seed in range(40):
        path = drawn_databases.write(tmp_path / f"{seed}.sqlite", seed)
        connection = sqlite3.connect(path)
        query = """SELECT globalPid >> 24 & 0xffffff, deviceId, end - start
            FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE end >= start"""
        kernels = connection.execute(query).fetchall()
        connection.close()
        found = nsys_report(ks.read(path), "cuda_gpu_kern_hist:bins=5")
        for pid, device, at, low, high, count, share in found.iter_rows():
            own = [length for *place, length in kernels if place == [pid, device]]
            inside = [n for n in own if low <= n < high or (at == found["bin"].max() and n == high)]
            assert (count, share) == (len(inside), 100.0 * len(inside) / len(own)), seed
        assert found["instances"].sum() == len(kernels)


@pytest.mark.slow
def test_maps_beside_loops(tmp_path: Path) -> None:
    for seed in range(60):
        path = drawn_databases.write(tmp_path / f"{seed}.sqlite", seed)
        works = drawn_databases.Gpus(path).works
        trace = ks.read(path)
        found = nsys_report(trace, "cuda_gpu_time_util_map:bins=7")
        assert found.height == 7 * len(works)
        for row in found.iter_rows(named=True):
            own = works[row["device"], row["pid"]]
            covered = drawn_databases.moments(own, row["start_ns"], row["end_ns"])
            busy, length = sum(ns for ns, running in covered if running), row["end_ns"] - row["start_ns"]
            assert row["busy_pct"] == (100 * busy / length if length else None), (seed, row)


@pytest.mark.slow
def test_shares_of_communication_beside_loops(tmp_path: Path) -> None:
    for seed in range(40):
        path = drawn_databases.write(tmp_path / f"{seed}.sqlite", seed)
        gpus = drawn_databases.Gpus(path).works
        found = nsys_report(ks.read(path), "nccl_gpu_time_util_map:bins=5")
        read = read_for(path, *parse("nccl_gpu_time_util_map"))
        assert_frame_equal(nsys_report(read, "nccl_gpu_time_util_map:bins=5"), found)
        for row in found.iter_rows(named=True):
            own = [work for work in gpus[row["device"], row["pid"]] if work[2] in ("kernel", "communication")]
            moments = list(drawn_databases.moments(own, row["start_ns"], row["end_ns"]))
            length = row["end_ns"] - row["start_ns"]
            for name, kinds in (("nccl", {"communication"}), ("compute", {"kernel"}),
                                ("overlap", {"communication", "kernel"})):  # fmt: skip
                time = sum(ns for ns, running in moments if kinds <= running)
                assert row[f"{name}_pct"] == (100 * time / length if length else None), (seed, row)


@pytest.mark.slow
def test_paces_beside_sql(tmp_path: Path) -> None:
    for seed in range(60):
        path = drawn_databases.write(tmp_path / f"{seed}.sqlite", seed)
        query = """
            SELECT globalTid >> 24 & 0xffffff, globalTid & 0xffffff, start, end, start - lag(end) OVER spot
            FROM NVTX_EVENTS WHERE text = 'train_step' WINDOW spot AS (PARTITION BY globalTid ORDER BY start)
            ORDER BY 1, 2, 3
        """
        found = nsys_report(ks.read(path), "nvtx_pace:name=train_step")
        connection = sqlite3.connect(path)
        expected = connection.execute(query).fetchall()
        connection.close()
        assert found.select("pid", "tid", "start_ns", "end_ns", "delta_ns").rows() == expected


@pytest.mark.parametrize("recipe", RECIPES)
def test_of_what_it_reads(recorded: Path, recipe: str) -> None:
    """A recipe that reads what it needs gives the answer of the whole trace, and of several each."""
    whole = ks.read(recorded)
    answer = nsys_report(whole, recipe)
    assert answer.height > 0
    assert_frame_equal(nsys_report(read_for(recorded, *parse(recipe)), recipe), answer)
    both = nsys_reports({"a": whole, "b": whole}, recipe)
    assert_frame_equal(both.filter(file="b").drop("file"), answer)
    assert both["file"].unique(maintain_order=True).to_list() == ["a", "b"]


def test_commands(recorded: Path, cli: Callable[..., Any]) -> None:
    done = cli("stats", recorded, "-r", "nccl_sum,nvtx_pace:name=no, such", "--format", "csv")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1] == "ncclAllReduce,2,12,6.0,2.8,4,5.0,6.0,7.0,8"
    assert done.stdout.splitlines()[-1].startswith("PID,TID,Iteration")
    for recipe in ("nvtx_pace", "cuda_gpu_time_util_map:bins=0", "cuda_gpu_time_util_map:bins=x"):
        assert cli("stats", recorded, "-r", recipe).returncode == 2


def test_nothing_to_say(tmp_path: Path) -> None:
    empty = ks.read(Database(tmp_path / "empty.sqlite").close())
    for recipe in (*RECIPES, "gpu_metric_util_map"):
        table = nsys_report(empty, recipe)
        assert table.columns == [field.column for field in REPORTS[recipe.partition(":")[0]].fields]
        assert table.is_empty()
    with pytest.raises(ks.errors.InvalidArgumentError, match="at least one"):
        nsys_reports({}, "nccl_sum")


@pytest.fixture
def sampled(tmp_path: Path) -> Path:
    """Ten samples of two GPUs, of which the second was not asked for its tensor cores."""
    names = {
        1: "SMs Active [Throughput %]",
        2: "SM Issue [Throughput %]",
        3: "Tensor Active [Throughput %]",
        4: "Tensor Active [Avg]",
    }
    database = MetricsDatabase(tmp_path / "sampled.sqlite", names=names)
    for gpu in range(2):
        for at in range(10):
            for metric in names if gpu == 0 else (1, 2):
                database.sample(100 * at, 10 * at // metric, gpu=gpu, metric=metric)
    return database.close()


def test_map_of_metrics(sampled: Path) -> None:
    found = nsys_report(ks.read(sampled), "gpu_metric_util_map:bins=2")
    assert found.rows() == [
        (0, 0, 0, 500, 20.0, 10.0, (0 + 3 + 6 + 10 + 13) / 5),
        (0, 1, 500, 1000, 70.0, 35.0, (16 + 20 + 23 + 26 + 30) / 5),
        (1, 0, 0, 500, 20.0, 10.0, None),
        (1, 1, 500, 1000, 70.0, 35.0, None),
    ]
    recipe = "gpu_metric_util_map"
    whole = nsys_report(ks.read(sampled), recipe)
    assert whole.height == 60
    assert_frame_equal(nsys_report(read_for(sampled, *parse(recipe)), recipe), whole)


def test_map_of_metrics_of_older_names(tmp_path: Path) -> None:
    database = MetricsDatabase(
        tmp_path / "older.sqlite", names={7: "SM Active", 8: "GPC Clock Frequency"}, gpus=[0]
    )
    for at in range(4):
        database.sample(at, 40, metric=7)
        database.sample(at, 1410, metric=8)
    found = nsys_report(ks.read(database.close()), "gpu_metric_util_map:bins=1")
    assert found.rows() == [(0, 0, 0, 4, 40.0, None, None)]


def test_map_of_metrics_as_a_command(sampled: Path, cli: Callable[..., Any]) -> None:
    done = cli("stats", sampled, "-r", "gpu_metric_util_map:bins=1", "--format", "csv")
    assert done.stdout.splitlines() == [
        "Device ID,Bin,Start (ns),End (ns),SM Active (%),SM Issue (%),Tensor Active (%)",
        "0,0,0,1000,45.0,22.5,14.7",
        "1,0,0,1000,45.0,22.5,",
    ]


def columns_of(table: dict[str, Any]) -> dict[str, list[Any]]:
    """The columns of a table of the page by their names."""
    found: dict[str, list[Any]] = {}
    for column, cells in zip(table["columns"], table["data"], strict=True):
        is_text = isinstance(cells, dict)
        found[column["key"]] = [cells["texts"][at] for at in cells["of"]] if is_text else cells
    return found


def test_the_page(recorded: Path) -> None:
    """The view shows what the recipes give, times since the first event."""
    trace = ks.read(recorded)
    parts = {part["id"]: part for part in page_views(trace)["recipes"].payload()["parts"]}
    assert list(parts) == [
        "use-over-time", "use-by-bin", "communication-by-bin", "kernel-histogram", "kernel-durations",
        "nccl-ranges",
    ]  # fmt: skip

    def column(table: str, key: str) -> list[Any]:
        return columns_of(parts[table])[key]

    use = nsys_report(trace, "cuda_gpu_time_util_map")
    assert column("use-by-bin", "busy_pct") == pytest.approx(use["busy_pct"].to_list(), abs=1e-4)
    # The first call began at 1.
    assert column("use-by-bin", "start_ns")[0] == 39
    assert column("use-by-bin", "process") == ["7"] * 30
    (curve,) = parts["use-over-time"]["traces"]
    assert (curve["name"], curve["y"][0], len(curve["x"])) == ("GPU 0 of 7", 100.0, 30)
    assert column("kernel-durations", "instances") == [3, 2]
    assert column("kernel-durations", "share_pct") == [60.0, 40.0]
    assert column("nccl-ranges", "q3_ns") == [7.0]


def test_the_page_has_gpus_and_waits_apart(tmp_path: Path) -> None:
    database = Database(tmp_path / "two.sqlite")
    database.insert("StringIds", id=60, value="cudaStreamSynchronize_v3020")
    for pid in (7, 8):
        database.call(0, 5, pid=pid)
        database.kernel(10, 20 + pid, pid=pid)
        database.call(30, 30 + pid, pid=pid, correlation=2, nameId=60)
    parts = {p["id"]: p for p in page_views(ks.read(database.close()))["recipes"].payload()["parts"]}
    assert [curve["name"] for curve in parts["use-over-time"]["traces"]] == ["GPU 0 of 7", "GPU 0 of 8"]
    assert [sum(bars["y"]) for bars in parts["kernel-histogram"]["traces"]] == [1, 1]
    waits = columns_of(parts["waiting-calls"])
    assert waits == {
        "api": ["cudaStreamSynchronize_v3020"] * 2, "start_ns": [30, 30], "dur_ns": [8, 7],
        "process": ["8", "7"], "thread": ["8", "7"],
    }  # fmt: skip
    assert "nccl-ranges" not in parts


def test_a_trace_without_gpu_work_says_so(tmp_path: Path) -> None:
    trace = ks.read(Database(tmp_path / "empty.sqlite").close())
    (note,) = page_views(trace)["recipes"].payload()["parts"]
    assert note["kind"] == "note"


def test_recipes_in_the_text(recorded: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.txt"
    render(ks.read(recorded), format="text", out=out, width=120)
    text = out.read_text()
    work = ((40, 80), (140, 220), (240, 320))
    strip = ""
    for at in range(30):
        first, last = (40 + 280 * edge // 30 for edge in (at, at + 1))
        busy = sum(start <= time < end for time in range(first, last) for start, end in work)
        tenths = max(10 * busy // (last - first), 1)
        strip += "." if not busy else "#" if busy == last - first else str(tenths)
    use = text.split("\nUse of each GPU over time\n")[1].splitlines()
    assert use[2].split() == ["GPU", "0", "of", "7", "71.4", "%", strip]
    nccl = text.split("\nNCCL on the host\n")[1].splitlines()
    assert nccl[2].split() == "ncclAllReduce 12 ns 2 6 ns 8 ns".split()
