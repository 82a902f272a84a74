"""Against HolisticTraceAnalysis 0.6.1 (acceptance A4), under its own row selection.

Its durations are whole microseconds unless the folder ends in ``-noround``; then they are float64
microseconds, which hold a timestamp to a quarter of a microsecond where the trace counts from 1970.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from traces import NO_SHARED, ORACLES, TRACES

from kernelscope.analysis.intervals import covered_ns

Read = Callable[[Path], Any]

HTA = ORACLES / "hta"


def cases() -> list[object]:
    """A folder of answers and the trace of each rank in it."""
    found: list[object] = []
    folders = sorted(HTA.glob("*/")) if HTA.is_dir() else []
    names = {folder.name for folder in folders}
    for folder in folders:
        if folder.name == "special" or f"{folder.name}-noround" in names:
            continue
        name = folder.name.removesuffix("-noround")
        ranks = {0: name}
        if name == "sampled-rank0and1of128":
            ranks = {0: "sampled-rank0of128", 1: "sampled-rank1of128"}
        found += [pytest.param(folder, rank, trace, id=f"{name}-{rank}") for rank, trace in ranks.items()]
    return found or [
        pytest.param(None, 0, "", marks=pytest.mark.skip(reason=NO_SHARED), id="no-shared-traces")
    ]


def rows_of(path: Path) -> list[dict[str, str]]:
    packed = path.with_suffix(".csv.gz")
    text = gzip.decompress(packed.read_bytes()).decode() if packed.exists() else path.read_text()
    return list(csv.DictReader(io.StringIO(text)))


def answers(folder: Path, name: str, rank: int) -> list[dict[str, str]]:
    return [row for row in rows_of(folder / name) if int(row["rank"]) == rank]


def gpu_rows(trace: Any, parsed: list[dict[str, str]]) -> pl.DataFrame:
    """The rows that HTA takes for GPU work: kernels, copies, memsets and synchronisations with a stream.

    It also takes operators with an argument ``stream``, as Triton's have; ``parsed`` says which.
    With two or more steps it leaves out the last: host events from its start on, and GPU work
    whose correlation id no host event that remains has.
    """
    columns = ("row", pl.col("name").cast(pl.String), "start_ns", "dur_ns")
    taken = [int(row["index"]) for row in parsed if row["cat"] == "cpu_op" and row["stream"] != "-1"]
    work = pl.concat(
        frame.select(*columns, "stream", "correlation") for frame in (trace.gpu_ops, trace.syncs)
    )
    work = work.filter(pl.col("stream") >= 0)
    marks = trace.ops.filter(pl.col("name").cast(pl.String).str.starts_with("ProfilerStep"))
    if marks["name"].n_unique() >= 2:
        early = trace.launches.filter(pl.col("start_ns") < marks["start_ns"].max())
        work = work.filter(pl.col("correlation").is_in(early["correlation"].implode()))
    operators = trace.ops.filter(pl.col("row").is_in(taken)).select(*columns)
    rows = pl.concat([work, operators], how="diagonal")
    return rows.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns").fill_null(0))


@pytest.mark.parametrize(("folder", "rank", "name"), cases())
def test_kernels(read: Read, folder: Path, rank: int, name: str) -> None:
    trace = read(TRACES / f"{name}.json.gz")
    parsed = rows_of(folder / f"events_rank{meta_rank(folder, rank)}.csv")
    rows = gpu_rows(trace, parsed)
    actual = {
        n: (count, total)
        for n, count, total in rows.group_by("name").agg(pl.len(), pl.col("dur_ns").sum()).rows()
    }
    sums = {
        row["name"]: float(row["sum (us)"])
        for row in answers(folder, "kernel_breakdown_all_kernels.csv", meta_rank(folder, rank))
    }
    counts: dict[str, int] = {}
    for row in parsed:
        if row["stream"] != "-1":
            counts[row["name"]] = counts.get(row["name"], 0) + 1
    assert {n: count for n, (count, _) in actual.items()} == counts
    # HTA leaves out what its patterns call neither computation nor communication nor memory.
    assert sums.keys() <= actual.keys()
    for kernel, total in sums.items():
        assert actual[kernel][1] / 1000 == pytest.approx(total, rel=1e-12), kernel
    if sums:
        kernels = set(trace.gpu_ops.filter(pl.col("kind") == "kernel")["name"].cast(pl.String))
        assert kernels & actual.keys() <= sums.keys()


@pytest.mark.parametrize(("folder", "rank", "name"), cases())
def test_busy_and_idle(read: Read, folder: Path, rank: int, name: str) -> None:
    trace = read(TRACES / f"{name}.json.gz")
    rank = meta_rank(folder, rank)
    if not (folder / "temporal_breakdown.csv").exists():
        # HTA fails on a trace without GPU work.
        assert trace.gpu_ops.is_empty()
        return
    expected = answers(folder, "temporal_breakdown.csv", rank)[0]
    rows = gpu_rows(trace, rows_of(folder / f"events_rank{rank}.csv"))
    span = rows["end_ns"].max() - rows["start_ns"].min()
    busy = covered_ns(rows, by=[]).item()
    whole = (rows["start_ns"] % 1000 == 0).all() and (rows["dur_ns"] % 1000 == 0).all()
    # HTA holds float64 microseconds: a few times the spacing of numbers the size of a timestamp.
    slack = 0.0 if whole else 4 * math.ulp(rows["start_ns"].max() / 1000)
    assert span / 1000 == pytest.approx(float(expected["kernel_time(us)"]), abs=slack, rel=0)
    assert (span - busy) / 1000 == pytest.approx(float(expected["idle_time(us)"]), abs=slack, rel=0)


def meta_rank(folder: Path, rank: int) -> int:
    """The number HTA gave the trace: the only one of a folder, or one of several."""
    ranks = json.loads((folder / "meta.json").read_text())["ranks"]
    return ranks[0] if len(ranks) == 1 else rank
