"""Laws that hold for all answers about any trace: ``kernelscope info --check TRACE``.

Each law is checked on public answers, so it holds for the results that users see. An answer that violates a
law is a bug of kernelscope. A violated law about profilers is reported as a fault of the file.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

import polars as pl

from kernelscope import analysis
from kernelscope.analysis.costs.achieved import known_pct
from kernelscope.analysis.costs.costed import KNOWN
from kernelscope.analysis.dependencies.graph import TIMED, dependencies
from kernelscope.analysis.intervals import covered_ns
from kernelscope.analysis.ranges.projection import enclosing_pairs, recorded_annotations
from kernelscope.analysis.replays import with_replayed_ops
from kernelscope.report import views
from kernelscope.report.text.summary import Verdict
from kernelscope.schema import TABLES
from kernelscope.trace import Trace
from kernelscope.units import format_count, format_ns

_MOST_ROUNDING = 1e-6
"""Tolerance of sums of shares, relative to their largest value."""
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
"""Yields descriptions of violations."""


class Law(NamedTuple):
    """A law and the function that finds violations; ``of_file`` if the profiler is responsible."""

    statement: str
    find: Find
    of_file: bool = False


def check(trace: Trace) -> list[Verdict]:
    """Returns every law with its violations in the answers about ``trace``, which must be read completely."""
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


@_law("Every link leads to an existing row of the same rank.")
def links(trace: Trace) -> Iterator[str]:
    """Checks that links to unrecorded events are null."""
    for name, frame in trace.tables.items():
        for column in TABLES[name].columns:
            target = _LINKS.get(column.name, name if column.name == "parent_row" else None)
            if target is None or column.name == "row":
                continue
            linked = frame[column.name].drop_nulls()
            lost = linked.len() - int(linked.is_in(trace.tables[target]["row"].implode()).sum())
            if lost:
                yield f"{name}.{column.name}: {format_count(lost)} lead nowhere"


@_law("A nested call is within the time of its parent and on the same thread.")
def nesting(trace: Trace) -> Iterator[str]:
    """Checks operators. Python frames are placed by their recorded caller."""
    end = pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    ops = trace.ops.select("row", "parent_row", "track", "start_ns", end_ns=end)
    inner = ops.join(ops, left_on="parent_row", right_on="row", suffix="_of_parent")
    outside = inner.filter(
        (pl.col("start_ns") < pl.col("start_ns_of_parent"))
        | (pl.col("end_ns") > pl.col("end_ns_of_parent"))
        | (pl.col("track") != pl.col("track_of_parent"))
    )
    if outside.height:
        yield f"{format_count(outside.height)} operators extend beyond the enclosing one"


@_law("No time, number or rate is negative, and no share exceeds its whole.")
def ranges(trace: Trace) -> Iterator[str]:
    """Checks all answers in reports and folders."""
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
                yield f"{name}.{column} ranges from {low:g} to {high:g}, not from 0 to {whole}"


def _whole(column: str) -> int | None:
    """What the shares of a column are of; None for others."""
    if column.endswith("_pct") and column not in _FLAGGED:
        return 100
    return 1 if column in ("utilisation", "overlap") or column.endswith(("share", "_share")) else None


@_law("The parts of a step sum to it.")
def steps(trace: Trace) -> Iterator[str]:
    """Checks complete and partial steps, over all GPUs and on each."""
    for frame in (trace.steps, trace.gpu_steps):
        sums = frame.select("step", "total_ns", parts_ns=pl.sum_horizontal(analysis.CATEGORIES))
        for step, total, parts in sums.filter(pl.col("parts_ns") != pl.col("total_ns")).iter_rows():
            yield f"step {step}: {parts:,} of {total:,} ns"


@_law("Each moment of a GPU is computing, communicating, copying or idle.")
def gpu_time(trace: Trace) -> Iterator[str]:
    """Checks that categories are disjoint, from the first to the last operation of a GPU."""
    found = analysis.temporal_breakdown(trace)
    parts = pl.sum_horizontal("compute_ns", "communication_ns", "memory_ns", "idle_ns")
    for device, span, sums in found.select("device", "span_ns", parts=parts).iter_rows():
        if span != sums:
            yield f"GPU {device}: {sums:,} of {span:,} ns"


@_law("All GPU time is counted once, with its operator or without one.")
def device_time(trace: Trace) -> Iterator[str]:
    """Compares with the self time of operators and annotations, plus unlinked operations."""
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
        yield f"operators have {ops:,} ns and unlinked operations {unlinked:,} ns, of {total:,} ns"


@_law("No moment of a thread counts for two operators.")
def host_time(trace: Trace) -> Iterator[str]:
    """Compares with the own time of operators and annotations."""
    covered = _covered_by_operators(trace)
    own = int(analysis.op_table(trace, annotations=True)["host_self_ns"].sum())
    if own > covered:
        yield f"operators have {own:,} ns in {covered:,} ns"


def _covered_by_operators(trace: Trace) -> int:
    """Time of all threads in operators and annotations."""
    ends = trace.ops.select("track", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns").fill_null(0))
    return int(covered_ns(ends, by=["track"])["covered_ns"].sum())


@_law("The phases of training have all GPU time, and no moment of a thread twice.")
def phases(trace: Trace) -> Iterator[str]:
    """Checks by phase, and by micro-batch and step."""
    total, covered = int(trace.gpu_ops["dur_ns"].sum()), _covered_by_operators(trace)
    for by in (("phase",), ("micro_batch", "step")):
        device, host = (
            analysis.training_phases(trace, by=by).select(pl.col("device_ns", "host_ns").sum()).row(0)
        )
        if device != total:
            yield f"by {', '.join(by)}: {device:,} of {total:,} ns on GPUs"
        if host > covered:
            yield f"by {', '.join(by)}: {host:,} ns in {covered:,} ns of threads"


@_law("A step waits no longer for sharded parameters than it lasts.")
def sharding(trace: Trace) -> Iterator[str]:
    """Checks the waits of complete steps."""
    waits = pl.sum_horizontal("forward_wait_ns", "backward_wait_ns", "reduce_wait_ns")
    steps = trace.steps.filter(~pl.col("is_partial")).group_by("step").agg(pl.col("total_ns").max())
    found = analysis.fsdp_steps(trace).join(steps, on="step", nulls_equal=True)
    for step, wait_ns, total_ns in found.select("step", waits, "total_ns").iter_rows():
        if wait_ns > total_ns:
            yield f"step {step} waits {wait_ns:,} of {total_ns:,} ns"


@_law("The table of kernels contains the time of all kernels.")
def kernels(trace: Trace) -> Iterator[str]:
    """Checks by name, by operator and by launch."""
    total = int(trace.gpu_ops.filter(pl.col("kind") == "kernel")["dur_ns"].sum())
    tables = {
        "kernel_table": analysis.kernel_table(trace),
        "kernel_table by operator": analysis.kernel_table(trace, by=("op", "name")),
        "kernels_by_launch": analysis.kernels_by_launch(trace),
    }
    for name, table in tables.items():
        if (found := int(table["total_ns"].sum())) != total:
            yield f"{name}: {found:,} of {total:,} ns"


@_law("Coverage, roofline and efficiency agree on the GPU time with known costs.")
def coverage(trace: Trace) -> Iterator[str]:
    """Also checks the total, including operations without an operator."""
    found = analysis.cost_coverage(trace)
    total, linked = int(trace.gpu_ops["dur_ns"].sum()), pl.col("status") != "unlinked"
    if (covered := int(found["device_ns"].sum())) != total:
        yield f"the coverage has {covered:,} of {total:,} ns"
    roofs = analysis.roofline(trace)
    for column, states in {"device_ns": linked, "known_ns": pl.col("status").is_in(KNOWN)}.items():
        rows, covered = int(roofs[column].sum()), int(found.filter(states)["device_ns"].sum())
        if rows != covered:
            yield f"{column} of the roofline is {rows:,}, but {covered:,} in the coverage"
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


@_law("Nothing exceeds a peak without a reason.")
def peaks(trace: Trace) -> Iterator[str]:
    """Checks the rows by operator and by call. Estimates and the L2 are accepted reasons."""
    for by in ("name", "op_row"):
        over = analysis.roofline(trace, by=by).filter(
            (pl.col("attained_pct") > 100) & pl.col("flag").is_null()
        )
        if over.height:
            yield f"{format_count(over.height)} rows by {by}, up to {over['attained_pct'].max():g} %"


@_law("A cost is not negative, and is known exactly if its state says so.")
def costs(trace: Trace) -> Iterator[str]:
    """Checks that FLOPs are known for exact and estimated costs."""
    found = analysis.costs(trace)
    figures = pl.col("flops", "bytes_read", "bytes_written", "device_ns", "tensor_core_ns")
    if negative := found.filter(pl.any_horizontal(figures < 0)).height:
        yield f"{format_count(negative)} operators have a negative cost"
    if unlike := found.filter(pl.col("status").is_in(KNOWN) != pl.col("flops").is_not_null()).height:
        yield f"{format_count(unlike)} operators have FLOPs but are unknown, or are known but have none"


@_law("A GPU is idle exactly between its operations.")
def idle(trace: Trace) -> Iterator[str]:
    """Compares the gaps, their summary and the time breakdown of each GPU."""
    breakdown = _total(analysis.temporal_breakdown(trace), "idle_ns")
    yield from _differ("the gaps in ns", _total(analysis.idle_gaps(trace), "dur_ns"), breakdown)
    yield from _differ("their summary in ns", _total(analysis.idle_summary(trace), "idle_ns"), breakdown)


@_law("No GPU runs kernels for longer than the observed time.")
def busy(trace: Trace) -> Iterator[str]:
    """Also compares with the key figures over all GPUs."""
    found = analysis.gpu_summary(trace).filter(pl.col("busy_ns") > pl.col("window_ns"))
    for device, window, part in found.select("device", "window_ns", "busy_ns").iter_rows():
        yield f"GPU {device}: {part:,} of {window:,} ns"
    # Work of a GPU that is not known is in no summary.
    kernels = trace.gpu_ops.filter((pl.col("kind") == "kernel") & pl.col("device").is_not_null())
    yield from _differ("kernels at a glance", analysis.overview(trace)["kernels"][0], kernels.height)


@_law("Communication is either hidden by computation or exposed.")
def overlap(trace: Trace) -> Iterator[str]:
    """Also compares exposed communication with the time breakdown of each GPU."""
    found = analysis.comm_comp_overlap(trace)
    parts = _total(found, "overlap_ns") + _total(found, "exposed_ns")
    yield from _differ("the parts in ns", parts, _total(found, "communication_ns"))
    breakdown = _total(analysis.temporal_breakdown(trace), "communication_ns")
    yield from _differ("exposed communication in ns", _total(found, "exposed_ns"), breakdown)


@_law("Every call that enters a queue leaves it.")
def queues(trace: Trace) -> Iterator[str]:
    """Checks that no queue is negative, and that all are empty at the end."""
    length = pl.col("queue_length")
    found = analysis.queue_length(trace).group_by("device", "stream", maintain_order=True)
    for device, stream, least, last in found.agg(length.min(), length.last().alias("last")).iter_rows():
        # A call may be recorded later than its work.
        if last != 0:
            yield f"GPU {device} stream {stream}: from {least:,} to {last:,} at the end"


@_law("Launches include all operations whose call was recorded.")
def launched(trace: Trace) -> Iterator[str]:
    """Checks that each occurs once, and that the summary sums them."""
    linked = trace.gpu_ops.drop_nulls("launch_row")
    yield from _differ("launches", analysis.launches(trace).height, linked.height)
    summary = analysis.launch_summary(trace)
    yield from _differ("works", _total(summary, "works"), linked.height)
    yield from _differ("their time in ns", _total(summary, "gpu_dur_ns_sum"), _total(linked, "dur_ns"))


@_law("Opening an operator shows everything that ran for it.")
def opened(trace: Trace) -> Iterator[str]:
    """Checks operators and annotations."""
    if trace.gpu_ops.is_empty():
        return
    kernels = analysis.op_kernels(trace)
    tables = analysis.op_table(trace, annotations=True)
    for column, of_table in (("self_ns", "device_self_ns"), ("total_ns", "device_total_ns")):
        yield from _differ(f"{column} of all", _total(kernels, column), _total(tables, of_table))


@_law("The own time of an annotation is part of its busy time, which is part of its span.")
def annotations(trace: Trace) -> Iterator[str]:
    """Also checks that busy time is at most the sum of the operations."""
    found = analysis.annotation_table(trace, by=("row", "name")).drop_nulls("gpu_busy_ns")
    wholes = pl.min_horizontal("gpu_span_ns", "device_total_ns")
    broken = (pl.col("gpu_exclusive_ns") > pl.col("gpu_busy_ns")) | (pl.col("gpu_busy_ns") > wholes)
    for name in found.filter(broken)["name"].head(_MOST_NAMED):
        yield f"{name}"


@_law("The time of a module is its own plus the time of its submodules.")
def modules(trace: Trace) -> Iterator[str]:
    """Also checks that no operation is in two modules."""
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
    """Compares the list of allocations with the summary of each device, and peaks with final values."""
    summary = analysis.memory_summary(trace).drop_nulls("open_bytes")
    held = analysis.memory_allocations(trace).filter(state="open")
    held = held.filter(pl.col("device").is_in(summary["device"].implode()))
    yield from _differ("open bytes", _total(held, "bytes"), _total(summary, "open_bytes"))
    for device, peak, end in summary.select("device", "peak_bytes", "end_bytes").iter_rows():
        if end > peak:
            yield f"{device} ends with {end:,} bytes, but its peak is {peak:,}"


@_law("Flame graphs of operators contain all GPU time once.")
def flames(trace: Trace) -> Iterator[str]:
    """Checks by operator and by module."""
    for by in ("op", "module"):
        found = analysis.folded_stacks(trace, by=by, metric="self_cuda", most_stacks=0)
        yield from _differ(f"by {by} in ns", _total(found, "value_ns"), _total(trace.gpu_ops, "dur_ns"))


@_law("The timeline shows all operations, and no two in a lane at the same time.")
def lanes(trace: Trace) -> Iterator[str]:
    """Checks streams. An event without a duration at the very end is not visible."""
    if trace.gpu_ops.is_empty():
        return
    shown = analysis.timeline(trace, kinds=("stream",))
    start, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    seen = trace.gpu_ops.filter((start < end.max()) | (start == start.min()))
    yield from _differ("works", _total(shown, "events"), seen.height)
    yield from _differ("their time in ns", _total(shown, "busy_ns"), _total(seen, "dur_ns"))
    before = pl.col("end_ns").shift(1).over("track", "lane")
    if (crowded := shown.filter(pl.col("start_ns") < before).height) > 0:
        yield f"{format_count(crowded)} overlap the previous one"


@_law("Replaying the unchanged graph of dependencies gives every recorded time.")
def replayed(trace: Trace) -> Iterator[str]:
    """Checks start and end of all events, and that critical paths fill their windows."""
    graph = dependencies(trace)
    end_ns = pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    tables = [trace.tables[name].select("row", "start_ns", end_ns=end_ns) for name in TIMED]
    # Ranges of operators are in two tables.
    recorded = pl.concat(tables).unique("row").rename({"start_ns": "first_ns", "end_ns": "last_ns"})
    times = pl.DataFrame(graph.replayed().times())
    found = graph.events.select("row").hstack(times).join(recorded, on="row", how="left")
    differ = (pl.col("start_ns") != pl.col("first_ns")) | (pl.col("end_ns") != pl.col("last_ns"))
    if (count := found.filter(differ.fill_null(value=True)).height) > 0:
        yield f"{format_count(count)} events are replayed at other times"
    for step in (None, *trace.steps["step"].drop_nulls().head(_MOST_NAMED)):
        path = analysis.critical_path(trace, step)
        ends = path["start_ns"] + path["dur_ns"]
        if (path["start_ns"].tail(-1) != ends.head(-1)).any():
            yield f"the critical path of step {step} has gaps"


@_law("Advice refers to existing rows and promises at most the time of all steps.")
def advice(trace: Trace) -> Iterator[str]:
    """Checks each with the rows it refers to."""
    columns = ("id", "table", "rows", "cited", "saving_share")
    for rule, table, rows, cited, share in analysis.recommendations(trace).select(columns).iter_rows():
        if share is not None and not 0 <= share <= 1:
            yield f"{rule} would save {share:.2f} of the time"
        if table is None:
            continue
        known = trace.tables[table]["row"]
        if not pl.Series(rows, dtype=known.dtype).is_in(known.implode()).all() or cited < len(rows):
            yield f"{rule} refers to rows of {table} that do not exist"


@_law("A trace does not differ from itself.")
def differences(trace: Trace) -> Iterator[str]:
    """Checks the causes of slower steps."""
    if trace.extent() is not None:
        changed = analysis.diff(trace, trace).filter(pl.col("delta_ns") != 0)
        if changed.height:
            yield f"{format_count(changed.height)} activities differ"


@_law("No GPU operation is outside the recording.")
def within(trace: Trace) -> Iterator[str]:
    """Finds operations that are more than an hour, and ten times the extent of half of all, outside.

    Operations without a timestamp are in another table.
    """
    start, length = pl.col("start_ns"), pl.col("dur_ns").fill_null(0)
    quarter = (pl.len() + 1) // 4
    low, high = (start.sort(descending=down).get(quarter, null_on_oob=True) for down in (False, True))
    far = pl.max_horizontal(10 * (high - low), 3_600 * 10**9)
    is_lost = ((start == 0) & (length == 0)) | (start < low - far) | (start > high + far)
    if (lost := trace.gpu_ops.filter(is_lost).height) > 0:
        yield f"{format_count(lost)} operations have no timestamp inside it"


@_law("No GPU operation contains a later one of its stream.")
def serial(trace: Trace) -> Iterator[str]:
    """Such operations were cut where the next one begins."""
    stream = ("pid", "device", "context", "stream")
    work = trace.gpu_ops.select(*stream, "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    work = work.filter(pl.col("end_ns") > pl.col("start_ns")).drop_nulls(("device", "stream"))
    ends = work.group_by(*stream, "start_ns").agg(pl.col("end_ns").min(), longest_ns=pl.col("end_ns").max())
    ends = ends.sort("start_ns")
    first_later = pl.col("end_ns").shift(-1).cum_min(reverse=True).over(stream)
    if (broken := ends.filter(pl.col("longest_ns") > first_later).height) > 0:
        yield f"{format_count(broken)} operations contain a later one"


@_law("The recorded start of every operation is after its launch.", of_file=True)
def clocks(trace: Trace) -> Iterator[str]:
    """If the clocks of host and GPU differ, delays and queues are wrong by the difference."""
    calls = trace.launches.select(launch_row="row", call_ns="start_ns")
    pairs = trace.gpu_ops.select("launch_row", "start_ns").join(calls, on="launch_row")
    early = pairs.select(early_ns=pl.col("call_ns") - pl.col("start_ns")).filter(pl.col("early_ns") > 0)
    if early.height:
        longest = cast(int, early["early_ns"].max())
        yield (
            f"{format_count(early.height)} of {format_count(pairs.height)} operations start before "
            f"their launch, by up to {format_ns(longest)}: the clocks of host and GPU differ"
        )


@_law("Every recorded launch has a unique id.", of_file=True)
def correlations(trace: Trace) -> Iterator[str]:
    """If several calls share an id, operations may be linked to the wrong one."""
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
    phases,
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
    replayed,
    advice,
    differences,
    within,
    serial,
    clocks,
    correlations,
]
