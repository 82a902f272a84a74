"""How the time of every rank's GPUs divides: the same from a lake as from each trace alone."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from jobs import batch, write_job

import kernelscope as ks
from kernelscope import analysis

_PARTS = ["compute_ns", "exposed_ns", "memory_ns", "idle_ns"]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[ks.Trace]:
    folder = write_job(tmp_path_factory.mktemp("rank-time"), ranks=4)
    return [ks.read(folder / f"rank{rank}.pt.trace.json") for rank in range(4)]


@pytest.fixture(scope="module")
def found(traces: list[ks.Trace], tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    lake = tmp_path_factory.mktemp("rank-time-lake") / "lake"
    batch([trace.meta.path for trace in traces], lake)
    return analysis.rank_gpu_time(ks.scan(lake))


def test_parts_are_those_of_each_trace(traces: list[ks.Trace], found: pl.DataFrame) -> None:
    for trace in traces:
        alone = analysis.temporal_breakdown(trace).rename({"communication_ns": "exposed_ns"})
        of_rank = found.filter(pl.col("rank") == trace.meta.rank)
        columns = ["device", "span_ns", *_PARTS]
        assert of_rank.select(columns).rows() == alone.select(columns).rows()
        assert of_rank["compute_ns"].min() > 0


def test_overlap_is_that_of_each_trace(traces: list[ks.Trace], found: pl.DataFrame) -> None:
    columns = ["device", "communication_ns", "overlap_ns", "exposed_ns", "overlap"]
    for trace in traces:
        alone = analysis.comm_comp_overlap(trace).sort("device")
        assert (
            found.filter(pl.col("rank") == trace.meta.rank).select(columns).rows()
            == alone.select(columns).rows()
        )
        assert alone["overlap_ns"].min() > 0


def test_traces_in_memory_answer_the_same(traces: list[ks.Trace], found: pl.DataFrame) -> None:
    assert analysis.rank_gpu_time(traces).equals(found)
    assert found.select(pl.sum_horizontal(_PARTS)).to_series().equals(found["span_ns"], check_names=False)


def test_rank_without_gpu_work_has_no_row(traces: list[ks.Trace], tmp_path: Path) -> None:
    quiet = tmp_path / "rank9.json"
    quiet.write_text(
        '{"distributedInfo": {"rank": 9}, "traceEvents": ['
        '{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}'
    )
    both = analysis.rank_gpu_time([ks.read(quiet), traces[2]])
    assert both["rank"].unique().to_list() == [2]
    assert analysis.rank_gpu_time([ks.read(quiet)]).columns == both.columns
    assert analysis.rank_gpu_time([ks.read(quiet)]).schema == both.schema
