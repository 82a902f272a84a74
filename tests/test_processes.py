"""Traces of several processes, each of which counts its ids for itself."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from events import Events
from kernelscope import analysis
from oracles.traces import TRACES, need


def process(pid: int, device: int, late: int, random: Random) -> list[dict[str, Any]]:
    """Two steps of a rank: what it does has the ids that every rank has, a little later on some."""
    events = Events()
    for number in range(60):
        at = 100 * number + late + random.randint(0, 30)
        if number % 30 == 0:
            events.annotation(f"ProfilerStep#{number // 30}", at - 5, 2980)
        events.op(f"aten::op_{number}", at, 40)
        events.call(at + 5, 10, number + 1)
        events.kernel(f"kernel_{number}", at + 20 + random.randint(0, 40), 30, number + 1, device=device)
    for event in events.events:
        if event["cat"] != "kernel":
            event["pid"] = event["tid"] = pid
    return events.events


@pytest.mark.parametrize("seed", range(20))
def test_colliding_ids_are_those_of_the_own_process(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    ranks = {pid: random.choice((0, 3, 200)) for pid in (70, 80, 90)}
    both = Events()
    for device, (pid, late) in enumerate(ranks.items()):
        both.events += process(pid, device, late, random)
    trace = both.read(tmp_path)
    work = trace.gpu_ops.join(trace.launches.select(launch_row="row", launched_by="pid"), on="launch_row")
    assert work.filter(pl.col("launched_by") != 70 + 10 * pl.col("device")).is_empty()
    ops = trace.ops.select("name", op_row="row", of="pid")
    linked = trace.gpu_ops.join(ops, on="op_row", suffix="_of")
    names = linked.select(
        pl.col("name").cast(pl.String).str.extract(r"(\d+)"),
        pl.col("name_of").cast(pl.String).str.extract(r"(\d+)").alias("of"),
    )
    assert linked.height == 180
    assert (names["name"] == names["of"]).all()
    assert trace.steps["step"].to_list() == [0, 1]
    assert analysis.mean_steps(trace).select("device", "steps", "kernel_ns").rows() == [
        (0, 2, 900_000), (1, 2, 900_000), (2, 2, 900_000),
    ]  # fmt: skip


def test_a_process_with_two_gpus(tmp_path: Path) -> None:
    """Ids of both processes, of which one has a second GPU."""
    events = Events()
    for pid in (70, 80):
        for number in range(1, 9):
            events.add(
                "cuda_runtime",
                "cudaLaunchKernel",
                10 * number + pid,
                2,
                pid=pid,
                args={"correlation": number},
            )
    for number in range(1, 9):
        events.kernel("a", 10 * number + 73, 2, number, device=number % 2)
        events.kernel("b", 10 * number + 83, 2, number, device=2)
    trace = events.read(tmp_path)
    works = trace.gpu_ops.join(trace.launches.select("pid", launch_row="row"), on="launch_row", suffix="_of")
    assert set(works.select("device", "pid_of").rows()) == {(0, 70), (1, 70), (2, 80)}


@pytest.mark.slow
def test_two_ranks_in_one_file(tmp_path: Path) -> None:
    """Every rank of a file that holds two has the operators and steps that it has alone."""
    alone: list[ks.Trace] = []
    merged: dict[str, Any] = {}
    for rank in range(2):
        path = need(TRACES / f"sampled-rank{rank}of128.json.gz")
        document = json.loads(gzip.decompress(path.read_bytes()))
        alone.append(ks.read(path))
        devices = {event["args"]["device"] for event in document["traceEvents"]
                   if event.get("cat") == "kernel"}  # fmt: skip
        for event in document["traceEvents"]:
            args: dict[str, Any] = event.get("args") or {}
            if "device" in args and args["device"] in devices:
                args["device"] = event["pid"] = rank
            elif isinstance(event.get("pid"), int):
                event["pid"] += 1000 * (rank + 1)
        merged.setdefault("traceEvents", []).extend(document["traceEvents"])
    path = tmp_path / "merged.json"
    path.write_text(json.dumps(merged))
    trace = ks.read(path)
    for rank, own in enumerate(alone):
        of_rank = trace.gpu_ops.filter(pl.col("device") == rank).sort("start_ns", "stream", "name")
        expected = own.gpu_ops.sort("start_ns", "stream", "name")
        for table, key in ((trace, of_rank), (own, expected)):
            assert key.height, table.meta.path
        assert operators(trace, of_rank) == operators(own, expected)


def operators(trace: ks.Trace, works: pl.DataFrame) -> list[str | None]:
    """The name of the operator of each work."""
    ops = trace.ops.select(op_row="row", op=pl.col("name").cast(pl.String))
    return works.join(ops, on="op_row", how="left", maintain_order="left")["op"].to_list()
