"""Every answer about one trace beside its slow twin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import polars as pl
import pytest

import kernelscope as ks
import slow_reader
from kernelscope import analysis
from kernelscope.analysis.costs.peaks import device_peaks
from kernelscope.analysis.kernels.tensor_cores import kernel_flags
from twin import (
    advice,
    cost_sums,
    gpu,
    kernels,
    launching,
    memory,
    modules,
    operators,
    python_stacks,
    ranges,
    ranks,
    roofs,
    screens,
    stacks,
)  # fmt: skip
from twin.callers import put_callers
from twin.figures import Figures, Rows, compare, equal
from twin.training import Training

KERNEL_DELAY_NS = 30
T = TypeVar("T")


class Pick(Protocol):
    """Which of several ways of asking a question are tried on one trace."""

    def __call__(self, options: Sequence[T]) -> Sequence[T]: ...


def every(options: Sequence[T]) -> Sequence[T]:
    """All of them."""
    return options


def keyed(table: pl.DataFrame) -> pl.DataFrame:
    """Launch sizes as tuples, which can be keys."""
    sizes = [name for name, dtype in table.schema.items() if isinstance(dtype, pl.Array | pl.List)]
    return table.with_columns(
        pl.Series(name, [None if v is None else tuple(v) for v in table[name].to_list()], dtype=pl.Object)
        for name in sizes
    )


def flags_of(trace: ks.Trace) -> gpu.Flags:
    """What the names of kernels say of tensor cores; the sums that follow are what is compared."""
    names = trace.gpu_ops.select("name", "device").unique()
    flags = kernel_flags(names.with_columns(pl.col("name").cast(pl.String)), trace.devices)
    return {(name, device): flag for name, device, flag in flags.iter_rows()}


def compare_gpu(trace: ks.Trace, rows: Rows, pick: Pick) -> None:
    compare(analysis.temporal_breakdown(trace), gpu.temporal_breakdown(rows), "device")
    for by in pick((("device",), ("name",), ("device", "stream"), ("step",))):
        compare(analysis.comm_comp_overlap(trace, by=by), gpu.comm_comp_overlap(rows, *by), *by)
    compare(analysis.gpu_summary(trace), gpu.gpu_summary(rows, flags_of(trace)), "device")
    for parts in pick((10, 100)):
        compare(
            analysis.gpu_timeline(trace, parts=parts), gpu.gpu_timeline(rows, parts), "device", "start_ns"
        )
    compare(analysis.memory_bandwidth(trace), gpu.memory_bandwidth(rows), "device", "name", "at_ns")
    compare(analysis.memory_bandwidth_summary(trace), gpu.memory_bandwidth_summary(rows), "device", "name")


def compare_kernels(trace: ks.Trace, rows: Rows, pick: Pick) -> None:
    flags = flags_of(trace)
    for by in pick((("name",), ("op", "name"), ("device", "stream"), ("step",), ("grid", "block", "device"))):
        table = keyed(analysis.kernel_table(trace, by=by))
        compare(table, kernels.kernel_table(rows, flags, *by), *by)
    table = keyed(analysis.kernels_by_launch(trace))
    compare(table, kernels.kernels_by_launch(rows, flags), *kernels.BY_LAUNCH)
    for text, least in pick((("", 1), ("aten::", 3))):
        found = keyed(analysis.kernel_sequences(trace, text, min_kernels=least))
        compare(found, kernels.kernel_sequences(rows, text, least), "op", "kernels")


def compare_launching(trace: ks.Trace, rows: Rows, pick: Pick) -> None:
    compare(analysis.launches(trace), launching.launches(rows), "row")
    for by in pick(("call", "name")):
        compare(analysis.launch_summary(trace, by=by), launching.launch_summary(rows, by), by)
    for per_stream in pick((False, True)):
        gaps = analysis.idle_gaps(trace, per_stream=per_stream, kernel_delay_ns=KERNEL_DELAY_NS)
        compare(gaps, launching.idle_gaps(rows, KERNEL_DELAY_NS, per_stream=per_stream), "row")
    for by in pick((("device", "cause"), ("stream",))):
        summary = analysis.idle_summary(trace, by=by, kernel_delay_ns=KERNEL_DELAY_NS)
        compare(summary, launching.idle_summary(rows, KERNEL_DELAY_NS, *by), *by)
    queues: dict[Any, launching.Course] = {}
    for device, stream, *change in analysis.queue_length(trace).drop("row").iter_rows():
        queues.setdefault((device, stream), []).append((change[0], change[1]))
    assert queues == launching.queue_length(rows)
    compare(analysis.queue_summary(trace), launching.queue_summary(rows), "device", "stream")
    for limit in pick((1, 3, 1024)):
        blocked = analysis.queue_blocked(trace, limit=limit)
        compare(blocked, launching.queue_blocked(rows, limit), "device", "stream")
    compare(keyed(analysis.op_launch_delay(trace)), launching.op_launch_delay(rows), "op", "kernels")


def compare_operators(trace: ks.Trace, rows: Rows, pick: Pick) -> None:
    for collapse in pick((False, True)):
        calls = operators.Calls(rows, flags_of(trace), collapse=collapse)
        for by in pick((("name",), ("name", "input_dims"), ("step",), ("pid", "tid"))):
            for shown in pick((False, True)):
                table = analysis.op_table(trace, by=by, annotations=shown, collapse=collapse)
                compare(table, operators.op_table(calls, *by, annotations=shown), *by)
        compare(analysis.ops(trace, collapse=collapse), operators.ops(calls), "row")
        found = analysis.op_kernels(trace, collapse=collapse)
        compare(found, operators.op_kernels(calls), "op", "kind", "name")
        if collapse:
            names = operators.op_table(calls, "name")
            for top in pick((None, 3)):
                shares = analysis.op_shares(trace, top=top)
                compare(shares, operators.op_shares(names, top), "measure", "name", "is_rest")


def compare_ranges(trace: ks.Trace, rows: Rows, pick: Pick) -> None:
    for by in pick((("name",), ("row", "name"), ("step",))):
        found = analysis.annotation_table(trace, by=by).filter(pl.col("calls") > 0)
        compare(found, ranges.annotation_table(rows, *by), *by)
    if rows["ops"]:
        compare(analysis.nvtx_projection(trace), ranges.nvtx_projection(rows), "row")
        compare(analysis.nvtx_table(trace), ranges.nvtx_table(rows), "domain", "name")


def compare_memory(trace: ks.Trace, rows: Rows, pick: Pick) -> None:
    compare(analysis.memory_timeline(trace), memory.memory_timeline(rows), "row")
    compare(analysis.memory_summary(trace), memory.memory_summary(rows), "device")
    allocations = analysis.memory_allocations(trace)
    compare(allocations, memory.memory_allocations(rows), "alloc_row", "free_row")
    compare(analysis.memory_peak(trace), memory.memory_peak(rows), "device", "op", "is_older")
    compare(analysis.memory_table(trace), memory.memory_table(rows), "device", "name")


def compare_modules(trace: ks.Trace, rows: Rows, pick: Pick) -> None:
    training = Training(rows)
    found = trace.ops.select("row", "forward_row", "module_row", pl.col("phase").cast(pl.String))
    twin = {
        row: {
            "forward_row": training.forward.get(row),
            "phase": "recompute" if row in training.recomputed else training.phases[row],
            "module_row": training.modules.get(row),
        }
        for row in training.ops
    }
    compare(found, twin, "row")
    if any(training.frames):
        compare(analysis.module_table(trace), modules.module_table(rows), "path")


def compare_stacks(trace: ks.Trace, rows: Rows, pick: Pick) -> None:
    if not rows["ops"]:
        return
    for metric in pick(("self_cpu", "self_cuda")):
        compare(
            analysis.folded_stacks(trace, metric=metric), python_stacks.folded_stacks(rows, metric), "stack"
        )
    for by in pick(("op", "module")):
        for metric in pick(("self_cpu", "self_cuda")):
            found = analysis.folded_stacks(trace, by=by, metric=metric)
            twin = stacks.folded_stacks(rows, metric, with_modules=by == "module")
            compare(found, twin, "stack")


def compare_screens(trace: ks.Trace, rows: Rows, pick: Pick) -> None:
    for partial in pick((False, True)):
        found = analysis.step_breakdown(trace, include_partial=partial)
        assert found.rows() == screens.step_breakdown(rows, include_partial=partial)
    glance = screens.overview(rows, gpu.gpu_summary(rows, flags_of(trace)))
    flags = flags_of(trace)
    calls = operators.Calls(rows, flags, collapse=True)
    glance["tc_eligible_share"] = operators.eligible_share(calls, flags)
    compare(analysis.overview(trace).with_columns(all=1), {1: glance}, "all")
    missing = set(analysis.missing_views(trace)["view"])
    assert missing & set(screens.KNOWN_VIEWS) == screens.missing_views(rows)
    extent = trace.extent()
    if extent is None:
        return
    third = (extent[1] - extent[0]) // 3
    inner = (extent[0] + third, extent[1] - third)
    for window, asked in pick(((extent, (None, None)), (inner, inner))):
        if window[0] >= window[1]:
            continue
        for pixels in pick((7, 2_000)):
            shown = analysis.timeline(trace, pixels=pixels, start_ns=asked[0], end_ns=asked[1])
            _compare_timeline(shown, rows, window)


def _compare_timeline(shown: pl.DataFrame, rows: Rows, window: tuple[int, int]) -> None:
    """No two events of a lane overlap; those of a track sum to what it did in the window."""
    lanes = shown.sort("track", "lane", "start_ns", "end_ns")
    before = pl.col("end_ns").shift(1).over("track", "lane")
    assert lanes.filter(pl.col("start_ns") < before).is_empty()
    start, end = (pl.lit(at, pl.Int64) for at in window)
    # What is wide reaches out of the window.
    sticks_out = (pl.col("start_ns") < start) | (pl.col("end_ns") > end)
    clipped = pl.min_horizontal("end_ns", end) - pl.max_horizontal("start_ns", start)
    shown = shown.with_columns(
        busy_ns=pl.when(sticks_out).then(clipped).otherwise("busy_ns"),
        events=pl.when(pl.col("start_ns") < start).then(0).otherwise("events"),
    )
    is_stream = pl.col("track_kind") == "stream"
    keys = [
        pl.when(is_stream).then(pl.lit("stream")).otherwise(pl.lit("thread")).alias("kind"),
        pl.when(is_stream).then("device").otherwise("pid").alias("place"),
        pl.when(is_stream).then("stream").otherwise("tid").alias("number"),
    ]
    sums = shown.group_by(keys).agg(pl.col("events").cast(pl.Int64).sum(), pl.col("busy_ns").sum())
    sums = sums.filter((pl.col("events") > 0) | (pl.col("busy_ns") > 0))
    compare(sums, screens.timeline(rows, window), "kind", "place", "number")


def compare_ranks(trace: ks.Trace, rows: Rows, pick: Pick) -> None:
    recorded = trace.meta.rank
    cluster = analysis.cluster_of(trace)
    told = analysis.rank_calls(cluster).to_dicts()
    said = {row["row"]: {name: row[name] for name in (*ranks.SAID, *ranks.SAID_ON_HOST)} for row in told}
    offsets = dict(analysis.clock_offsets(cluster).select("rank", "offset_ns").iter_rows())
    shifts = {rank: offset or 0 for rank, offset in offsets.items()}
    calls = ranks.calls_of(rows, said, shifts, recorded)
    found = analysis.rank_calls(cluster)
    compare(found, ranks.rank_calls(calls), "rank", "row")
    # Numbers of collectives stand for what tells them apart.
    numbers = {
        (rank, row): number for rank, row, number in found.select("rank", "row", "instance").iter_rows()
    }
    named = {numbers[call["rank"], call["row"]]: call["instance"] for call in calls}
    assert len(set(named.values())) == len(named)
    instances = ranks.collective_instances(calls)
    twin = {number: instances[key] for number, key in named.items()}
    compare(analysis.collective_instances(cluster), twin, "instance")
    for by in pick((("kind", "group_size", "message_bytes"), ("group",), ("step", "name"))):
        compare(analysis.communication(cluster, by=by), ranks.communication(instances, *by), *by)
    compare(analysis.collective_stragglers(cluster), ranks.collective_stragglers(calls), "rank")
    assert analysis.stragglers(cluster).is_empty()
    rank = recorded if recorded is not None else int(cluster.ranks["rank"][0])
    steps = ranks.rank_steps(rows, calls, rank)
    compare(analysis.rank_steps(cluster), steps, "rank", "step")
    compare(
        analysis.step_pace(cluster), ranks.step_pace(rows, steps, shifts[rank]), "rank", "step", "start_ns"
    )
    for by in pick(("rank", "step")):
        compare(analysis.rank_quantiles(cluster, by=by), ranks.rank_quantiles(steps, by), by, "part")
    compare(analysis.table_quantiles(trace), ranks.name_quantiles(rows), "name")
    compare(analysis.rank_gpu_time(trace), ranks.rank_gpu_time(rows, rank), "rank", "device")


_WHOLE = (
    "flops", "bytes_read", "bytes_written", "attainable_ns", "saveable_ns", "tensor_core_ns",
)  # fmt: skip
"""Figures that are rounded to whole ones."""


def peaks_of(trace: ks.Trace) -> dict[Any, roofs.Peaks]:
    """What the table of GPUs says, which has its own tests."""
    found = {peaks.device: peaks.gpu for peaks in device_peaks(trace)}
    return {
        device: roofs.Peaks(dict(gpu.vector), dict(gpu.matrix), gpu.bandwidth, gpu.l2_bytes)
        for device, gpu in found.items()
        if gpu is not None
    }


def compare_costs(trace: ks.Trace, rows: Rows, pick: Pick) -> None:
    known = analysis.costs(trace).to_dicts()
    owned = cost_sums.Owned(rows, known)
    flags = flags_of(trace)
    limits = roofs.limits(owned, peaks_of(trace), flags)
    if rows["gpu_ops"]:
        twin = cost_sums.costs(owned)
        for row, works in owned.works.items():
            twin[row]["tensor_cores"] = roofs.used_cores(works, flags)
        compare(analysis.costs(trace), twin, "op_row")
    compare(analysis.cost_coverage(trace), cost_sums.cost_coverage(owned), "status")
    for by in pick((("name",), ("device", "stream"), ("step", "family"), ("kernel", "status"), ("op_row",))):
        table = analysis.roofline(trace, by=by).with_columns(pl.col(_WHOLE).cast(pl.Float64))
        twin, roofs_of = cost_sums.roofline(owned, *by), roofs.roofline(owned, limits, *by)
        for key, figures in twin.items():
            figures |= roofs_of[key]
            figures |= {name: pytest.approx(figures[name], abs=0.51, rel=1e-9)
                        for name in _WHOLE if figures.get(name) is not None}  # fmt: skip
        compare(table, twin, *by)
    _compare_steps(analysis.efficiency(trace), cost_sums.efficiency(owned))
    ranges = [row for row in rows["counters"] if row["category"] == "cuda_profiler_range"]
    if ranges:
        compare(analysis.counters_with_operators(trace), cost_sums.counters(rows), "row")


def _compare_steps(found: pl.DataFrame, twin: Figures) -> None:
    """The FLOPs of each step are those of its operators, and its share of the peak follows from them."""
    for figures in twin.values():
        for name in ("flops", "recompute_flops"):
            if figures[name] is not None:
                figures[name] = pytest.approx(figures[name], rel=1e-9, abs=0.51)
    compare(found.with_row_index("at"), twin, "at")
    columns = ("total_ns", "flops", "recompute_flops", "hfu_pct", "mfu_pct", "peak_flops_per_s")
    for total, number, again, hfu, mfu, peak in found.select(columns).iter_rows():
        is_known = number is not None and peak and total
        assert hfu == (pytest.approx(100 * number / (total * 1e-9 * peak)) if is_known else None)
        assert mfu == (pytest.approx(hfu * (number - again) / number) if is_known and number else hfu)


def compare_advice(trace: ks.Trace, rows: Rows, pick: Pick) -> None:
    found = analysis.recommendations(trace).to_dicts()
    steps = advice.Steps(rows)
    advice.hold(steps, found)
    overlaps = gpu.comm_comp_overlap(rows, "device", "step")
    twin = advice.general(steps, gpu.gpu_summary(rows, flags_of(trace)), overlaps)
    rows_of = {(row["id"], row["device"]): row for row in found}
    # Advice about what costs next to nothing is left out, but for that of the plugin's rules.
    for key, figures in twin.items():
        if key in rows_of or key[0] != "exposed_communication":
            assert {name: rows_of[key][name] for name in figures} == {
                name: equal(value) for name, value in figures.items()
            }, key
    general = {rule for rule, _ in twin} | {"data_loading", "communication", "low_utilisation"}
    assert {key for key in rows_of if key[0] in general} <= set(twin)


SUBJECTS = (
    compare_gpu,
    compare_kernels,
    compare_launching,
    compare_operators,
    compare_ranges,
    compare_memory,
    compare_modules,
    compare_stacks,
    compare_screens,
    compare_ranks,
    compare_costs,
    compare_advice,
)


def read_both(path: Path, *, threads: int | None = None) -> tuple[ks.Trace, Rows]:
    """A trace, and its rows by the slow reader, which is told what mangled names stand for."""
    trace = ks.read(path, threads=threads)
    rows = slow_reader.read(path, slow_reader.demangled(trace.gpu_ops.iter_rows(named=True)))
    put_callers(rows)
    return trace, rows
