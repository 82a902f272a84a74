"""Communication against the TensorBoard plugin's cases of two workers and TraceLens's table of a B200.

The plugin keeps transfer and waiting apart as kernelscope does: of what an operation takes on each worker,
the shortest is the transfer, and the rest is waiting.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from traces import NO_SHARED, ORACLES, TRACES, load_json, need, read, rows_of

from kernelscope import analysis
from kernelscope.analysis.intervals import Intervals, merged

UNIT = ORACLES / "tb-plugin" / "unit"
LENS = ORACLES / "tracelens" / "eager-b200-rank0of8"
FLOAT = 4
US = 1000


def workers(case: str) -> list[Any]:
    return [read(need(UNIT / f"test_distributed_{case}.{worker}.trace.json")) for worker in (0, 1)]


def recorded(trace_path: Path) -> list[dict[str, Any]]:
    return json.loads(trace_path.read_text())["traceEvents"]


@pytest.mark.parametrize("case", ["gloo_cpu", "gloo_gpu", "nccl"])
def test_sizes_transfer_and_waiting(case: str) -> None:
    """The i-th operation of both workers is one; on GPUs its kernels count, on the host itself."""
    traces = workers(case)
    events = [recorded(UNIT / f"test_distributed_{case}.{worker}.trace.json") for worker in (0, 1)]
    prefix = case.partition("_")[0]
    wanted: list[dict[str, tuple[int, list[int]]]] = [{}, {}]
    for worker, found in enumerate(events):
        ops = sorted((e for e in found if e["name"].startswith(f"{prefix}:")), key=lambda e: e["ts"])
        for place, op in enumerate(ops):
            size = FLOAT * prod(op["args"]["Input Dims"][0])
            ids = [e for e in found if e["args"].get("external id") == op["args"]["External id"]]
            wanted[worker][f"{place} {op['name']}"] = (size, [(ids or [op])[0]["dur"] * US])
    # The order of operations of one kind is what both tools match by.
    instances = analysis.collective_instances(traces)
    actual = sorted(instances.select("message_bytes", "transfer_ns", "total_ns", "ranks_seen").rows())
    assert wanted[0].keys() == wanted[1].keys()
    expected: list[tuple[int, int, int, int]] = []
    for name, (size, first) in wanted[0].items():
        times = [*first, *wanted[1][name][1]]
        assert wanted[1][name][0] == size
        expected.append((size, min(times), sum(times), 2))
    assert actual == sorted(expected)
    waits = instances.filter(pl.col("kind") == "all_reduce").select("wait_ns", "total_ns", "transfer_ns")
    assert all(wait == total - 2 * transfer for wait, total, transfer in waits.rows())
    # A broadcast's root need not wait for the others.
    assert instances.filter(pl.col("kind") == "broadcast")["wait_ns"].null_count() == (
        3 if case.startswith("gloo") else 1
    )


def union(rows: pl.DataFrame) -> pl.DataFrame:
    return merged(rows.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns")), by=[])


def length(parts: pl.DataFrame) -> int:
    return int((parts["end_ns"] - parts["start_ns"]).sum())


@pytest.mark.parametrize("worker", [0, 1])
@pytest.mark.parametrize("case", ["gloo_cpu", "gloo_gpu", "nccl"])
def test_overlap(case: str, worker: int) -> None:
    """Communication and computing inside the step, of which the plugin's differ in two ways.

    It adds the host's operation to the kernel of a collective. Where no kernel is recorded, any operator is
    computing, as it is for us.
    """
    trace = workers(case)[worker]
    answer = load_json(UNIT / f"test_distributed_{case}.{worker}.expected.json")
    (expected,) = answer["comm_overlap"]
    names = trace.ops["name"].cast(pl.String)
    is_call = names.str.contains(r"^(gloo|nccl):")
    calls = trace.ops.filter(is_call).select("start_ns", "dur_ns")
    kernels = trace.gpu_ops.select("start_ns", "dur_ns", "is_communication")
    ours = analysis.rank_calls([trace])
    if case == "nccl":
        # Its operation as a whole; kernelscope counts the kernel alone.
        assert ours["dur_ns"].sum() == kernels.filter("is_communication")["dur_ns"].sum()
        calls = pl.concat([calls, kernels.filter("is_communication").select("start_ns", "dur_ns")])
    compute = kernels.filter(~pl.col("is_communication")).select("start_ns", "dur_ns")
    if case == "gloo_cpu":
        assert compute.is_empty()
        assert ours["exposed_ns"].sum() == (expected["communication"] - expected["overlap"]) * US
        compute = trace.ops.filter(~is_call).select("start_ns", "dur_ns")
    (total,) = (step["Total"] for step in answer["steps"])
    start = trace.ops["start_ns"].min()
    parts = [
        union(rows)
        .with_columns(pl.col("end_ns").clip(upper_bound=start + total * US))
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        for rows in (calls, compute)
    ]
    overlap = int(Intervals(parts[1], by=[]).hidden_ns(parts[0]).sum())
    assert length(parts[0]) == expected["communication"] * US
    assert length(parts[1]) == expected["computation"] * US
    assert overlap == expected["overlap"] * US
    if case == "gloo_gpu":
        hidden = union(ours.select("start_ns", "dur_ns"))
        assert length(hidden) == expected["communication"] * US
        # Nothing differs here: what the kernels do not hide is exposed.
        exposed = length(hidden) - int(
            Intervals(shifted(parts[1], trace, ours), by=[]).hidden_ns(hidden).sum()
        )
        assert exposed == (expected["communication"] - expected["overlap"]) * US


def shifted(parts: pl.DataFrame, trace: Any, calls: pl.DataFrame) -> pl.DataFrame:
    """``parts`` on the clock of ``calls``."""
    first = trace.ops.filter(pl.col("row") == calls["row"][0])["start_ns"].item()
    return parts.with_columns(pl.col("start_ns", "end_ns") - first + calls["start_ns"][0])


def test_an_annotation_is_no_communication() -> None:
    """All that is known is a name; the plugin's step is then minus 2^64 long."""
    name = "test_distributed_nccl_user_annotation_has_communication.0"
    answer = load_json(need(UNIT / f"{name}.expected.json"))
    assert answer["comm_overlap"][0]["other"] < 0
    assert analysis.rank_calls([read(UNIT / f"{name}.trace.json")]).is_empty()


def table(name: str) -> list[dict[str, str]]:
    return rows_of(need(LENS / name).read_text())


def test_tracelens_collectives() -> None:
    (expected,) = table("coll_analysis.csv")
    calls = analysis.rank_calls([read(TRACES / "eager-b200-rank0of8.json.gz")])
    (row,) = calls.filter(pl.col("name") == expected["Collective name"]).to_dicts()
    assert row["rank"] == int(expected["rank"])
    assert row["dtype"] == expected["dtype"]
    assert row["stream"] == int(expected["stream"])
    assert row["group_size"] == int(expected["Group size"])
    ranks = expected["Process Group Ranks"].replace(" ", "")
    assert row["group"] == f"{expected['Process Group Name']} {ranks}"
    assert row["message_bytes"] == float(expected["Out msg size (MB)_first"]) * 2**20
    assert row["dur_ns"] == pytest.approx(float(expected["dur_sum"]) * US, abs=1)
    assert int(expected["operation_count"]) == 1
    # With one rank seen nothing is known of waiting, and the group has seven more.
    (instance,) = (
        analysis.collective_instances([read(TRACES / "eager-b200-rank0of8.json.gz")])
        .filter(pl.col("name") == expected["Collective name"])
        .to_dicts()
    )
    assert (instance["wait_ns"], instance["skew_ns"], instance["ranks_seen"]) == (None, None, 1)
    rate = row["message_bytes"] * 1e9 / row["dur_ns"]
    assert instance["bus_bytes_per_s"] == pytest.approx(rate * 7 / 8)


def test_tracelens_overlap() -> None:
    """It takes all-reduces in symmetric memory for computing: their kernels have no NCCL in their names."""
    if not TRACES.is_dir():
        pytest.skip(NO_SHARED)
    trace = read(TRACES / "eager-b200-rank0of8.json.gz")
    expected = {row["type"]: float(row["time ms"]) * 1_000_000 for row in table("gpu_timeline.csv")}
    calls = analysis.comm_comp_overlap(trace, by=("name",)).with_columns(
        nccl=pl.col("name").str.contains("nccl")
    )
    (nccl,) = calls.filter("nccl").to_dicts()
    assert nccl["communication_ns"] == pytest.approx(expected["total_comm_time"], abs=1)
    assert nccl["exposed_ns"] == pytest.approx(expected["exposed_comm_time"], abs=1)
    others = calls.filter(~pl.col("nccl"))
    assert others.height > 0
    assert all("multimem_all_reduce" in name for name in others["name"])
    kind = pl.col("kind").cast(pl.String)
    work = trace.gpu_ops.filter(kind == "kernel")
    # Its starts are float64 microseconds, which tell times of this size apart by a quarter of one.
    theirs = work.filter(~pl.col("name").cast(pl.String).str.contains("nccl"))
    assert length(union(theirs)) == pytest.approx(expected["computation_time"], abs=300)
    (ours,) = analysis.temporal_breakdown(trace).to_dicts()
    parts = ours["compute_ns"] + ours["communication_ns"] + ours["memory_ns"]
    assert parts == pytest.approx(expected["busy_time"], abs=300)
    assert ours["idle_ns"] == pytest.approx(expected["idle_time"], abs=300)
    assert ours["compute_ns"] < expected["computation_time"]
