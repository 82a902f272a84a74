"""A program on an H200 whose work, nodes and samples are known: program.cpp of tests/recorded/h200."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

import kernelscope as ks
from kernelscope import analysis
from kernelscope.hardware import gpus
from metrics_database import unpack_recorded
from twin import metrics as twin

ACTIVE, TENSOR = "SM Active [Throughput %]", "Tensor Active [Throughput %]"
READ, WRITTEN = "DRAM Read Bandwidth [Throughput %]", "DRAM Write Bandwidth [Throughput %]"
# What the program captured on its two streams: the range and the work launched in it.
NODES = [
    ("layer 0", "copy_floats"),
    ("layer 1", "multiply_adds"),
    ("layer 1", "copy_floats"),
    ("layer 2", "tensor_products"),
    ("layer 3", "[CUDA memset]"),
    ("layer 3", "[CUDA memcpy Device-to-Device]"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return unpack_recorded(tmp_path, "program")


@pytest.fixture
def trace(path: Path) -> ks.Trace:
    return ks.read(path)


def test_every_replayed_node_has_the_range_that_it_was_captured_in(trace: ks.Trace) -> None:
    nodes = trace.captured_nodes.join(
        trace.ranges.select(range_row="row", range=pl.col("name").cast(pl.String)), on="range_row"
    ).select(captured_node_row="row", range="range")
    replayed = trace.gpu_ops.filter(pl.col("match") == "exact").join(nodes, on="captured_node_row")
    per_launch = replayed.group_by("launch_row").agg(
        pl.struct("range", pl.col("name").cast(pl.String)).sort_by("range", "name")
    )
    expected = sorted((name, work) for name, work in NODES)
    assert [sorted((node["range"], node["name"]) for node in nodes) for nodes in per_launch["range"]] == (
        [expected] * 3 * 4
    )


@pytest.mark.slow
def test_samples_during_kernels_beside_loops(path: Path, trace: ks.Trace) -> None:
    recording = twin.Recording(path)
    expected = twin.table(recording, recording.of_kernels())
    found = {
        (row["name"], row["device"], row["metric"]): tuple(row[name] for name in twin.Figures._fields)
        for row in analysis.gpu_metric_table(trace, "kernel").iter_rows(named=True)
    }
    assert found.keys() == expected.keys()
    assert {name for name, _, _ in found} == {"copy_floats", "multiply_adds", "tensor_products"}
    for key, figures in expected.items():
        assert found[key] == pytest.approx(tuple(figures)), key


def test_samples_show_what_the_work_of_each_range_does(trace: ks.Trace) -> None:
    table = analysis.gpu_metric_table(trace, "range")
    mean = {(row["name"], row["metric"]): row["mean_value"] for row in table.iter_rows(named=True)}
    assert mean["products", TENSOR] > 90
    assert max(mean[name, TENSOR] for name in ("copies", "multiply-adds", "upload")) < 1
    assert min(mean[name, ACTIVE] for name in ("products", "multiply-adds")) > 99
    assert mean["upload", ACTIVE] < 1
    # What copies move by their sizes and times is the share of the GPU's peak that the samples show.
    copies = trace.gpu_ops.filter((pl.col("name") == "copy_floats") & (pl.col("dur_ns") > 100_000))
    peak = gpus()["h200-sxm"].bandwidth
    moved = 100 * 2**28 / (copies["dur_ns"].mean() / 1e9) / peak
    assert mean["copies", READ] == pytest.approx(moved, rel=0.05)
    assert mean["copies", WRITTEN] == pytest.approx(moved, rel=0.05)


def test_the_time_with_kernels_is_the_time_that_multiprocessors_are_active(trace: ks.Trace) -> None:
    steps = analysis.gpu_metric_table(trace, "step", metrics=[ACTIVE])
    shares = trace.steps.select(share=100 * pl.col("kernel_ns") / pl.col("total_ns"))
    assert len(steps) == len(shares) == 3
    for active, share in zip(steps["mean_value"], shares["share"], strict=True):
        assert active == pytest.approx(share, abs=2)


@pytest.mark.slow
def test_a_sample_tells_of_the_time_after_it(trace: ks.Trace) -> None:
    """Shifted by a whole interval and not at all, it fits what kernels did less."""
    samples = trace.counters.filter(pl.col("counter") == ACTIVE).select("start_ns", "value").rows()
    works = sorted(trace.gpu_ops.filter(pl.col("kind") != "memcpy").select("start_ns", "dur_ns").rows())

    def difference(shift: int) -> float:
        total = 0.0
        for (at, value), (until, _) in pairwise(samples):
            begin, end = at + shift, until + shift
            busy = sum(max(0, min(end, start + dur) - max(begin, start)) for start, dur in works)
            total += abs(100 * busy / (end - begin) - value)
        return total

    interval = 100_000
    best = difference(0)
    assert best < difference(-interval)
    assert best < difference(interval)
