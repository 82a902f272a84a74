"""Laws that hold for the answers about any trace: ``kernelscope info --check TRACE``.

Each law is asked of the public answers, so that what holds here holds for what a user sees: an answer that
breaks one is a fault of kernelscope. What breaks a law for recorders is a fault of the file, and said to be.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

import polars as pl

from kernelscope import analysis
from kernelscope.analysis.costs.achieved import known_pct
from kernelscope.analysis.costs.costed import KNOWN
from kernelscope.analysis.intervals import covered_ns
from kernelscope.analysis.ranges.projection import enclosing_pairs, recorded_annotations
from kernelscope.analysis.replays import with_replayed_ops
from kernelscope.report import views
from kernelscope.report.text.summary import Verdict
from kernelscope.schema import TABLES
from kernelscope.trace import Trace
from kernelscope.units import format_count, format_ns

_MOST_ROUNDING = 1e-6
"""What sums of shares may be off, by their largest value."""
# Differences, and moments on the trace's clock, may lie on either side of 0.
_SIGNED = ("_delta_ns", "offset_ns", "start_ns", "at_ns", "first_ns", "last_ns", "end_ns", "until_ns")
# Of a peak, an achieved rate may be above 100 where a flag says why.
_FLAGGED = ("attained_pct",)
# What is counted, and can be no less than nothing.
_AMOUNTS = (
    "calls", "works", "kernels", "launches", "gpu_ops", "operators", "ranges", "copies", "events", "gaps",
    "changes", "collectives", "allocations", "frees", "allocated_bytes", "flops", "bytes_read",
    "bytes_written",
)  # fmt: skip
_MOST_NAMED = 3
_LINKS = {
    "op_row": "ops",
    "forward_row": "ops",
    "launch_row": "launches",
    "arrow_row": "flows",
    "range_row": "ranges",
    "module_row": "python",
    "graph_row": "captured_graphs",
    "captured_op_row": "captured_ops",
    "captured_node_row": "captured_nodes",
}


Find = Callable[[Trace], Iterator[str]]
"""Says what breaks a law."""


class Law(NamedTuple):
    """A law, and what finds that breaks it; ``of_file`` where that is for the recorder to keep."""

    statement: str
    find: Find
    of_file: bool = False


def check(trace: Trace) -> list[Verdict]:
    """Returns every law with what breaks it in the answers about ``trace``, which must be read whole."""
    return [Verdict(law.statement, list(_faults(law, trace)), law.of_file) for law in LAWS]


def _faults(law: Law, trace: Trace) -> Iterator[str]:
    """What breaks a law, in each of several ranks."""
    if not trace.parts:
        return law.find(trace)
    return (f"rank {part.meta.rank}: {fault}" for part in trace.parts for fault in law.find(part))


def _law(statement: str, *, of_file: bool = False) -> Callable[[Find], Law]:
    return lambda find: Law(statement, find, of_file)


def _total(table: pl.DataFrame, column: str) -> int:
    return int(table[column].sum())


def _differ(what: str, found: int, expected: int) -> Iterator[str]:
    if found != expected:
        yield f"{what}: {found:,} of {expected:,}"


@_law("Every link leads to a row that is there, of the same rank.")
def links(trace: Trace) -> Iterator[str]:
    """Links to events that were not recorded are null."""
    for name, frame in trace.tables.items():
        for column in TABLES[name].columns:
            target = _LINKS.get(column.name, name if column.name == "parent_row" else None)
            if target is None or column.name == "row":
                continue
            linked = frame[column.name].drop_nulls()
            lost = linked.len() - int(linked.is_in(trace.tables[target]["row"].implode()).sum())
            if lost:
                yield f"{name}.{column.name}: {format_count(lost)} lead nowhere"


@_law("What lies in another call lies in its time and on its thread.")
def nesting(trace: Trace) -> Iterator[str]:
    """Of operators; Python frames are placed by the caller that was recorded."""
    end = pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    ops = trace.ops.select("row", "parent_row", "track", "start_ns", end_ns=end)
    inner = ops.join(ops, left_on="parent_row", right_on="row", suffix="_of_parent")
    outside = inner.filter(
        (pl.col("start_ns") < pl.col("start_ns_of_parent"))
        | (pl.col("end_ns") > pl.col("end_ns_of_parent"))
        | (pl.col("track") != pl.col("track_of_parent"))
    )
    if outside.height:
        yield f"{format_count(outside.height)} operators leave the one around them"


@_law("No time, number or rate is negative, and no share is outside of its whole.")
def ranges(trace: Trace) -> Iterator[str]:
    """Of all answers that reports show and folders hold."""
    for name, frame in views.frames(trace, more=True).items():
        for column, values in zip(frame.columns, frame.iter_columns(), strict=True):
            if not values.dtype.is_numeric() or column.endswith(_SIGNED):
                continue
            low, high = cast("tuple[float | None, float | None]", (values.min(), values.max()))
            if low is None or high is None:
                continue
            if low < 0 and (column in _AMOUNTS or column.endswith(("_ns", "_per_s"))):
                yield f"{name}.{column} has {low:,.0f}"
            whole = _whole(column)
            if whole and not (low >= 0 and high <= whole * (1 + _MOST_ROUNDING)):
                yield f"{name}.{column} lies between {low:g} and {high:g}, not 0 and {whole}"


def _whole(column: str) -> int | None:
    """What the shares of a column are of; None for others."""
    if column.endswith("_pct") and column not in _FLAGGED:
        return 100
    return 1 if column in ("utilisation", "overlap") or column.endswith(("share", "_share")) else None


@_law("The parts of a step sum to it.")
def steps(trace: Trace) -> Iterator[str]:
    """Of whole steps and of those that were cut off, on any GPU and on each."""
    for frame in (trace.steps, trace.gpu_steps):
        sums = frame.select("step", "total_ns", parts_ns=pl.sum_horizontal(analysis.CATEGORIES))
        for step, total, parts in sums.filter(pl.col("parts_ns") != pl.col("total_ns")).iter_rows():
            yield f"step {step}: {parts:,} of {total:,} ns"


@_law("Each moment of a GPU is computing, communicating, copying or idle.")
def gpu_time(trace: Trace) -> Iterator[str]:
    """In one of these only, from the first work of a GPU to the end of its last."""
    found = analysis.temporal_breakdown(trace)
    parts = pl.sum_horizontal("compute_ns", "communication_ns", "memory_ns", "idle_ns")
    for device, span, sums in found.select("device", "span_ns", parts=parts).iter_rows():
        if span != sums:
            yield f"GPU {device}: {sums:,} of {span:,} ns"


@_law("All GPU time belongs to an operator or to none, once.")
def device_time(trace: Trace) -> Iterator[str]:
    """The self time of operators and annotations, and of the work that none launched or had open."""
    if trace.gpu_ops.is_empty() or trace.ops.is_empty():
        return
    ops = int(analysis.op_table(trace, annotations=True)["device_self_ns"].sum())
    annotated = enclosing_pairs(trace, recorded_annotations(trace))["launch_row"]
    is_alone = pl.col("op_row").is_null() & ~pl.col("launch_row").is_in(annotated.implode()).fill_null(
        value=False
    )
    unlinked = int(with_replayed_ops(trace).gpu_ops.filter(is_alone)["dur_ns"].sum())
    total = int(trace.gpu_ops["dur_ns"].sum())
    if ops + unlinked != total:
        yield f"operators have {ops:,} ns and no operator {unlinked:,} ns, of {total:,} ns"


@_law("No moment of a thread counts for two operators.")
def host_time(trace: Trace) -> Iterator[str]:
    """Of the own time of operators and annotations."""
    ends = trace.ops.select("track", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns").fill_null(0))
    covered = int(covered_ns(ends, by=["track"])["covered_ns"].sum())
    own = int(analysis.op_table(trace, annotations=True)["host_self_ns"].sum())
    if own > covered:
        yield f"operators have {own:,} ns in {covered:,} ns"


@_law("The kernels' table holds the time of all kernels.")
def kernels(trace: Trace) -> Iterator[str]:
    """By name, by operator and by launch."""
    total = int(trace.gpu_ops.filter(pl.col("kind") == "kernel")["dur_ns"].sum())
    tables = {
        "kernel_table": analysis.kernel_table(trace),
        "kernel_table by operator": analysis.kernel_table(trace, by=("op", "name")),
        "kernels_by_launch": analysis.kernels_by_launch(trace),
    }
    for name, table in tables.items():
        if (found := int(table["total_ns"].sum())) != total:
            yield f"{name}: {found:,} of {total:,} ns"


@_law("Coverage, roofline and efficiency agree on the GPU time whose cost is known.")
def coverage(trace: Trace) -> Iterator[str]:
    """And on all of it, with the work that no operator launched."""
    found = analysis.cost_coverage(trace)
    total, linked = int(trace.gpu_ops["dur_ns"].sum()), pl.col("status") != "unlinked"
    if (covered := int(found["device_ns"].sum())) != total:
        yield f"the coverage has {covered:,} of {total:,} ns"
    roofs = analysis.roofline(trace)
    for column, states in {"device_ns": linked, "known_ns": pl.col("status").is_in(KNOWN)}.items():
        rows, covered = int(roofs[column].sum()), int(found.filter(states)["device_ns"].sum())
        if rows != covered:
            yield f"{column} of the roofline is {rows:,}, that of the coverage {covered:,}"
    times = dict(trace.gpu_ops.group_by("step").agg(pl.col("dur_ns").sum()).iter_rows())
    cut_off = set(trace.steps.filter("is_partial")["step"].drop_nulls())
    # Several steps of one number share its work, also those that are cut off.
    steps = analysis.efficiency(trace).group_by("step", maintain_order=True)
    sums = steps.agg(pl.col("device_ns").sum(), pl.col("known_pct").first())
    for step, device_ns, share in sums.iter_rows():
        expected = total if step is None else times.get(step, 0)
        if device_ns != expected and step not in cut_off:
            yield f"step {step}: the efficiency has {device_ns:,} of {expected:,} ns"
        if step is None and total and abs(share - (known_pct(found) or 0)) > _MOST_ROUNDING:
            yield f"the efficiency knows {share:g} %, the coverage {known_pct(found):g} %"


@_law("Nothing achieves more than a peak without a reason.")
def peaks(trace: Trace) -> Iterator[str]:
    """Of the rows by operator and of each call. An estimate is a reason, and what L2 can hold."""
    for by in ("name", "op_row"):
        over = analysis.roofline(trace, by=by).filter(
            (pl.col("attained_pct") > 100) & pl.col("flag").is_null()
        )
        if over.height:
            yield f"{format_count(over.height)} rows by {by}, up to {over['attained_pct'].max():g} %"


@_law("A cost is not negative, and known if its state says so.")
def costs(trace: Trace) -> Iterator[str]:
    """FLOPs are known of what is exact or an estimate."""
    found = analysis.costs(trace)
    figures = pl.col("flops", "bytes_read", "bytes_written", "device_ns", "tensor_core_ns")
    if negative := found.filter(pl.any_horizontal(figures < 0)).height:
        yield f"{format_count(negative)} operators have a negative cost"
    if unlike := found.filter(pl.col("status").is_in(KNOWN) != pl.col("flops").is_not_null()).height:
        yield f"{format_count(unlike)} operators have FLOPs and are unknown, or are known without"


@_law("A GPU idles between its works, and never else.")
def idle(trace: Trace) -> Iterator[str]:
    """The gaps, their summary and the division of the time of each GPU agree."""
    breakdown = _total(analysis.temporal_breakdown(trace), "idle_ns")
    yield from _differ("the gaps in ns", _total(analysis.idle_gaps(trace), "dur_ns"), breakdown)
    yield from _differ("their summary in ns", _total(analysis.idle_summary(trace), "idle_ns"), breakdown)


@_law("No GPU runs kernels for longer than the time looked at.")
def busy(trace: Trace) -> Iterator[str]:
    """And the figures at a glance are of all GPUs."""
    found = analysis.gpu_summary(trace).filter(pl.col("busy_ns") > pl.col("window_ns"))
    for device, window, part in found.select("device", "window_ns", "busy_ns").iter_rows():
        yield f"GPU {device}: {part:,} of {window:,} ns"
    # Work of a GPU that is not known is in no summary.
    kernels = trace.gpu_ops.filter((pl.col("kind") == "kernel") & pl.col("device").is_not_null())
    yield from _differ("kernels at a glance", analysis.overview(trace)["kernels"][0], kernels.height)


@_law("Communication is hidden by computing or exposed.")
def overlap(trace: Trace) -> Iterator[str]:
    """And exposed communication is that of the division of the time of each GPU."""
    found = analysis.comm_comp_overlap(trace)
    parts = _total(found, "overlap_ns") + _total(found, "exposed_ns")
    yield from _differ("the parts in ns", parts, _total(found, "communication_ns"))
    breakdown = _total(analysis.temporal_breakdown(trace), "communication_ns")
    yield from _differ("exposed communication in ns", _total(found, "exposed_ns"), breakdown)


@_law("Every call that enters a queue leaves it.")
def queues(trace: Trace) -> Iterator[str]:
    """No queue is ever shorter than nothing, and all are empty in the end."""
    length = pl.col("queue_length")
    found = analysis.queue_length(trace).group_by("device", "stream", maintain_order=True)
    for device, stream, least, last in found.agg(length.min(), length.last().alias("last")).iter_rows():
        # A call may be recorded later than its work.
        if last != 0:
            yield f"GPU {device} stream {stream}: from {least:,} to {last:,} in the end"


@_law("Launches have all work whose call was recorded.")
def launched(trace: Trace) -> Iterator[str]:
    """Each once, and the summary sums them up."""
    linked = trace.gpu_ops.drop_nulls("launch_row")
    yield from _differ("launches", analysis.launches(trace).height, linked.height)
    summary = analysis.launch_summary(trace)
    yield from _differ("works", _total(summary, "works"), linked.height)
    yield from _differ("their time in ns", _total(summary, "gpu_dur_ns_sum"), _total(linked, "dur_ns"))


@_law("What ran for an operator is what its table shows when it is opened.")
def opened(trace: Trace) -> Iterator[str]:
    """Of operators and annotations."""
    if trace.gpu_ops.is_empty():
        return
    kernels = analysis.op_kernels(trace)
    tables = analysis.op_table(trace, annotations=True)
    for column, of_table in (("self_ns", "device_self_ns"), ("total_ns", "device_total_ns")):
        yield from _differ(f"{column} of all", _total(kernels, column), _total(tables, of_table))


@_law("An annotation's own time is part of its busy time, which is part of its span.")
def annotations(trace: Trace) -> Iterator[str]:
    """Busy time is also no longer than the works of it, added."""
    found = analysis.annotation_table(trace, by=("row", "name")).drop_nulls("gpu_busy_ns")
    wholes = pl.min_horizontal("gpu_span_ns", "device_total_ns")
    broken = (pl.col("gpu_exclusive_ns") > pl.col("gpu_busy_ns")) | (pl.col("gpu_busy_ns") > wholes)
    for name in found.filter(broken)["name"].head(_MOST_NAMED):
        yield f"{name}"


@_law("A module has what it did itself and what the modules in it did.")
def modules(trace: Trace) -> Iterator[str]:
    """And no piece of work is in two modules."""
    found = analysis.module_table(trace).drop_nulls("device_total_ns")
    inner = found.group_by(path="parent_path").agg(inner_ns=pl.col("device_total_ns").sum())
    sums = found.join(inner, on="path", how="left")
    parts = pl.col("device_self_ns") + pl.col("inner_ns").fill_null(0)
    for path in sums.filter(parts != pl.col("device_total_ns"))["path"].head(_MOST_NAMED):
        yield f"{path}"
    work = _total(trace.gpu_ops, "dur_ns")
    if (own := _total(found, "device_self_ns")) > work:
        yield f"modules have {own:,} of {work:,} ns"


@_law("Each allocation was freed or is open.")
def allocations(trace: Trace) -> Iterator[str]:
    """The list of allocations and the summary of each device agree, and no peak is below an end."""
    summary = analysis.memory_summary(trace).drop_nulls("open_bytes")
    held = analysis.memory_allocations(trace).filter(state="open")
    held = held.filter(pl.col("device").is_in(summary["device"].implode()))
    yield from _differ("open bytes", _total(held, "bytes"), _total(summary, "open_bytes"))
    for device, peak, end in summary.select("device", "peak_bytes", "end_bytes").iter_rows():
        if end > peak:
            yield f"{device} ends with {end:,} bytes, and its peak is {peak:,}"


@_law("Flame graphs of operators have all time of the GPUs, once.")
def flames(trace: Trace) -> Iterator[str]:
    """By operator and by module."""
    for by in ("op", "module"):
        found = analysis.folded_stacks(trace, by=by, metric="self_cuda", most_stacks=0)
        yield from _differ(f"by {by} in ns", _total(found, "value_ns"), _total(trace.gpu_ops, "dur_ns"))


@_law("The timeline shows all works, and no two of a lane at once.")
def lanes(trace: Trace) -> Iterator[str]:
    """Of streams; what has no duration at the very end cannot be seen."""
    if trace.gpu_ops.is_empty():
        return
    shown = analysis.timeline(trace, kinds=("stream",))
    start, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    seen = trace.gpu_ops.filter((start < end.max()) | (start == start.min()))
    yield from _differ("works", _total(shown, "events"), seen.height)
    yield from _differ("their time in ns", _total(shown, "busy_ns"), _total(seen, "dur_ns"))
    before = pl.col("end_ns").shift(1).over("track", "lane")
    if (crowded := shown.filter(pl.col("start_ns") < before).height) > 0:
        yield f"{format_count(crowded)} overlap the one before"


@_law("Advice cites rows that are there, and promises no more than the time of all steps.")
def advice(trace: Trace) -> Iterator[str]:
    """Each with the rows it rests on."""
    columns = ("id", "table", "rows", "cited", "saving_share")
    for rule, table, rows, cited, share in analysis.recommendations(trace).select(columns).iter_rows():
        if share is not None and not 0 <= share <= 1:
            yield f"{rule} would save {share:.2f} of the time"
        if table is None:
            continue
        known = trace.tables[table]["row"]
        if not pl.Series(rows, dtype=known.dtype).is_in(known.implode()).all() or cited < len(rows):
            yield f"{rule} cites rows of {table} that are not there"


@_law("A trace does not differ from itself.")
def differences(trace: Trace) -> Iterator[str]:
    """In what makes steps slower."""
    if trace.extent() is not None:
        changed = analysis.diff(trace, trace).filter(pl.col("delta_ns") != 0)
        if changed.height:
            yield f"{format_count(changed.height)} activities differ"


@_law("No work of a GPU lies outside of the recording.")
def within(trace: Trace) -> Iterator[str]:
    """What has no time is in a table of its own; an hour, and ten times as long as half of all, is far."""
    start, length = pl.col("start_ns"), pl.col("dur_ns").fill_null(0)
    quarter = (pl.len() + 1) // 4
    low, high = (start.sort(descending=down).get(quarter, null_on_oob=True) for down in (False, True))
    far = pl.max_horizontal(10 * (high - low), 3_600 * 10**9)
    is_lost = ((start == 0) & (length == 0)) | (start < low - far) | (start > high + far)
    if (lost := trace.gpu_ops.filter(is_lost).height) > 0:
        yield f"{format_count(lost)} works have no time in it"


@_law("No work of a GPU contains a later one of its stream.")
def serial(trace: Trace) -> Iterator[str]:
    """What was recorded so has ended where the next one begins."""
    stream = ("pid", "device", "context", "stream")
    work = trace.gpu_ops.select(*stream, "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    work = work.filter(pl.col("end_ns") > pl.col("start_ns")).drop_nulls(("device", "stream"))
    ends = work.group_by(*stream, "start_ns").agg(pl.col("end_ns").min(), longest_ns=pl.col("end_ns").max())
    ends = ends.sort("start_ns")
    first_later = pl.col("end_ns").shift(-1).cum_min(reverse=True).over(stream)
    if (broken := ends.filter(pl.col("longest_ns") > first_later).height) > 0:
        yield f"{format_count(broken)} works contain a later one"


@_law("The recorder gives every work a start behind that of its launch.", of_file=True)
def clocks(trace: Trace) -> Iterator[str]:
    """Where the clocks of host and GPU differ, delays and queues are wrong by as much."""
    calls = trace.launches.select(launch_row="row", call_ns="start_ns")
    pairs = trace.gpu_ops.select("launch_row", "start_ns").join(calls, on="launch_row")
    early = pairs.select(early_ns=pl.col("call_ns") - pl.col("start_ns")).filter(pl.col("early_ns") > 0)
    if early.height:
        longest = cast(int, early["early_ns"].max())
        yield (
            f"{format_count(early.height)} of {format_count(pairs.height)} works start before their launch,"
            f" by up to {format_ns(longest)}: the clocks of host and GPU differ"
        )


@_law("The recorder gives every launch an id of its own.", of_file=True)
def correlations(trace: Trace) -> Iterator[str]:
    """Of several calls with one id, work may be linked to the wrong one."""
    calls = trace.launches.drop_nulls("correlation").filter(pl.col("correlation") > 0)
    repeated = int(calls.select("pid", "correlation").is_duplicated().sum())
    if repeated:
        yield f"{format_count(repeated)} calls share their correlation ids with others"


LAWS = [
    links,
    nesting,
    ranges,
    steps,
    gpu_time,
    busy,
    idle,
    overlap,
    queues,
    launched,
    device_time,
    host_time,
    opened,
    annotations,
    kernels,
    modules,
    allocations,
    flames,
    lanes,
    coverage,
    peaks,
    costs,
    advice,
    differences,
    within,
    serial,
    clocks,
    correlations,
]
