"""Traces that are joined have the answers that each has alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import draws
import kernelscope as ks
from events import V100, Events
from kernelscope import _traceparse, analysis
from kernelscope.analysis.costs import achieved, together
from kernelscope.analysis.costs.limits import limited_work
from kernelscope.analysis.ranks.cluster import Window
from kernelscope.analysis.ranks.joined import PART, joined
from kernelscope.analysis.training import phases, pipelines
from kernelscope.schema import TABLES
from oracles.traces import SHARED
from twin import drawn

RECORDED = sorted(Path(__file__).parents[1].joinpath("recorded").glob("**/*.json.gz"))
REAL = [path for path in sorted(SHARED.glob("traces/**/*")) if path.is_file()]
_FIGURES = (
    "pieces", "device_ns", "shares", "flops", "bytes_read", "bytes_written", "attainable_ns", "saveable_ns",
    "tensor_core_ns", "missed_ns",
)  # fmt: skip
_KEYS = (
    "name", "model", "status", "kernel", "stream", "device", "step", "step_place", "bound", "limit_type",
    "flag", "is_again",
)  # fmt: skip


def sums(table: pl.DataFrame) -> pl.DataFrame:
    """What a table of limits says, in any order."""
    is_again = (pl.col("by_phase") == "recompute").fill_null(value=False)
    place = pl.when(pl.col("step").is_not_null()).then("step_place")
    table = table.with_columns(pl.col(pl.Categorical).cast(pl.String), is_again=is_again, step_place=place)
    return table.group_by(_KEYS).agg(pl.col(_FIGURES).sum()).sort(_KEYS, nulls_last=True)


def of_all(traces: Sequence[ks.Trace]) -> list[pl.DataFrame]:
    """The limits of each trace, as they are found together, with its own numbers."""
    found: dict[int, pl.DataFrame] = {}
    for places, whole, table in together.limits_by_phase(traces, {}):
        own = table.with_columns(whole.own_numbers(table[kind]) for kind in ("device", "step"))
        for part, place in enumerate(places):
            first = int((whole.trace.steps[PART] < part).sum())
            found[place] = own.filter(pl.col(PART) == part).with_columns(pl.col("step_place") - first)
    return [found[place] for place in range(len(traces))]


def of_each(traces: Sequence[ks.Trace]) -> list[pl.DataFrame]:
    return [together.by_phase(trace, limited_work(trace)) for trace in traces]


def same(found: Sequence[pl.DataFrame], expected: Sequence[pl.DataFrame]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert_frame_equal(sums(one), sums(other), rel_tol=1e-9)


def read(paths: Sequence[Path]) -> list[ks.Trace]:
    """The trace of each rank in files of any format; other files are passed over."""
    traces: list[ks.Trace] = []
    for path in paths:
        try:
            trace = ks.read(path)
        except ks.NotATraceError:
            continue
        traces += trace.parts or (trace,)
    return traces


def tasks_of(traces: Sequence[ks.Trace]) -> list[tuple[Window]]:
    """The windows of ranks that have the positions of ``traces`` as numbers."""
    return [(Window(place, 0, 0, trace),) for place, trace in enumerate(traces)]


def same_answers(traces: Sequence[ks.Trace]) -> None:
    same(of_all(traces), of_each(traces))
    same_utilisation(traces)
    same_phases(traces)
    same_slots(traces)


def same_utilisation(traces: Sequence[ks.Trace]) -> None:
    found = achieved._of_share(tasks_of(traces), traces, {}, None)
    for place, trace in enumerate(traces):
        own = found.filter(rank=place).drop("rank")
        assert_frame_equal(own, analysis.efficiency(trace), rel_tol=1e-9)


def same_phases(traces: Sequence[ks.Trace]) -> None:
    for by in (["phase"], ["step", "micro_batch", "phase"], ["module", "phase"]):
        found = phases._of_share(tasks_of(traces), traces, by)
        for place, trace in enumerate(traces):
            alone = analysis.training_phases(trace, by=by).drop("device_share")
            own = found.filter(rank=place).select(alone.columns)
            assert_frame_equal(own, alone, check_row_order=False)


def same_slots(traces: Sequence[ks.Trace]) -> None:
    tasks = tasks_of(traces)
    found = pipelines._of_share(tasks, traces)
    alone = [pipelines._of_share([task], [trace]) for task, trace in zip(tasks, traces, strict=True)]
    assert_frame_equal(found, pl.concat(alone), check_row_order=False)


@pytest.mark.parametrize("paths", [RECORDED, REAL], ids=["recorded", "real"])
def test_traces_of_all_kinds_are_joined(paths: list[Path]) -> None:
    traces = read(paths)
    if not traces:
        pytest.skip("the real traces of ../shared are not here")
    same_answers(traces)


@settings(max_examples=draws.count(10, 300), deadline=None)
@given(st.lists(drawn.traces(), min_size=2, max_size=4))
def test_drawn_traces_are_joined(events: list[Events]) -> None:
    with TemporaryDirectory() as folder:
        traces = [one.read(Path(folder)) for one in events]
    same_answers(traces)
    same(of_all(traces[:1] * 2), of_each(traces[:1] * 2))


def step(folder: Path, *, number: int = 7, device: int = 0, rank: int = 0) -> Path:
    """Writes a rank with one step, in which an operator of a micro-batch launches a kernel."""
    events = Events({**V100, "id": device})
    events.annotation(f"ProfilerStep#{number}", 1, 100)
    events.annotation("micro_batch 0", 2, 90)
    events.op("aten::mm", 5, 20, Input_Dims=[[8, 8], [8, 8]], Input_type=["float", "float"])
    events.call(10, 5, 1)
    events.kernel("gemm", 30, 40, 1, device=device)
    return events.write(folder / f"rank{rank}.json", distributedInfo={"rank": rank, "world_size": 4})


def test_numbers_of_joined_traces_are_their_own(tmp_path: Path) -> None:
    trace = ks.read(step(tmp_path))
    whole = joined([trace, trace], ("ops", "launches", "gpu_ops", "steps"))
    ops, steps, gpu_ops = whole.trace.ops, whole.trace.steps, whole.trace.gpu_ops
    assert gpu_ops["device"].n_unique() == steps["step"].n_unique() == 2
    assert whole.own_numbers(steps["step"]).to_list() == [7, 7]
    assert whole.own_numbers(gpu_ops["device"]).to_list() == [0, 0]
    assert ops["row"].n_unique() == 2 * trace.ops.height
    assert whole.trace.threads.is_empty()
    for part in range(2):
        work = gpu_ops.filter(pl.col(PART) == part)
        op = ops.filter(pl.col("row") == work["op_row"][0])
        assert op[PART].to_list() == [part]
        assert op["name"].to_list() == ["aten::mm"]
        assert work["step"].to_list() == steps.filter(pl.col(PART) == part)["step"].to_list()


def test_numbers_far_apart_are_joined(tmp_path: Path) -> None:
    most = 2**31 - 1
    numbers = [(0, 0), (2_000_000_000, most), (5, 1_000_000_000), (most, 3)]
    for rank, (number, device) in enumerate(numbers):
        step(tmp_path / "traces", number=number, device=device, rank=rank)
    ks.batch.run(tmp_path / "traces", tmp_path / "lake")
    lake, traces = ks.scan(tmp_path / "lake"), read(sorted((tmp_path / "traces").iterdir()))
    assert [trace.steps["step"].to_list() for trace in traces] == [[number] for number, _ in numbers]
    assert [trace.gpu_ops["device"].to_list() for trace in traces] == [[device] for _, device in numbers]
    same_answers(traces)
    for ask in (analysis.efficiency, partial(analysis.training_phases, by=("step", "phase"))):
        assert_frame_equal(ask(lake), of_ranks([(trace, ask(trace)) for trace in traces]))


def of_ranks(answers: Sequence[tuple[ks.Trace, pl.DataFrame]]) -> pl.DataFrame:
    """The answers about several ranks as one, by rank."""
    frames = [
        found.select(pl.lit(trace.meta.rank, pl.Int64).alias("rank"), pl.all()) for trace, found in answers
    ]
    return pl.concat(frames).sort("rank", maintain_order=True)


def test_rows_are_counted_where_they_are_far_apart(tmp_path: Path) -> None:
    """The events of one trace may be anywhere in a large file."""
    trace = ks.read(step(tmp_path))
    far = {
        name: frame.with_columns(pl.col(TABLES[name].of_role("row", "link")) + 3_000_000_000)
        for name, frame in trace.tables.items()
    }
    same_answers([replace(trace, **far), trace])


def job(folder: Path) -> list[ks.Trace]:
    """Ranks that recompute, of which some have other GPUs."""
    written, _ = _traceparse.write_demo_training(
        folder / "traces", parallel="tp=2,pp=2,dp=2", recompute="selective", seed=3, steps=2, layers=2
    )
    return [ks.read(path) for path, _ in written]


def test_utilisation_of_a_lake_is_that_of_its_ranks(tmp_path: Path) -> None:
    traces = job(tmp_path)
    ks.batch.run(tmp_path / "traces", tmp_path / "lake")
    options: dict[str, Any] = {"gpu": "h100-sxm5"}
    found = analysis.efficiency(ks.scan(tmp_path / "lake"), **options)
    expected = of_ranks([(trace, analysis.efficiency(trace, **options)) for trace in traces])
    assert_frame_equal(found, expected, rel_tol=1e-9)
    assert (found["recompute_flops"] > 0).all()
    assert found["step"].n_unique() == 2


def test_costs_need_no_other_tables(tmp_path: Path) -> None:
    trace = job(tmp_path)[0]
    nothing: dict[str, Any] = {name: pl.DataFrame() for name in TABLES if name not in together.TABLES}
    assert nothing
    for one in (trace, *read(RECORDED)):
        alone = replace(one, **nothing)
        same(of_each([alone]), of_each([one]))
        assert_frame_equal(analysis.efficiency(alone), analysis.efficiency(one))
