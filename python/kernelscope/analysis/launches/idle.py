"""Causes of idle time of GPUs, and the host operators involved."""

from collections.abc import Sequence

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.analysis.grouping import as_text, check_by, classes_of, describe_by_group, gather_rows
from kernelscope.trace import Trace

KERNEL_DELAY_NS = 30_000
"""Upper bound of the gap between two operations that both wait in the GPU's queue."""

_RECORDED = ("row", "launch_row", "op_row", "range_row", "device", "stream", "step")
_OF_GAPS = (
    "device", "stream", "step", "start_ns", "dur_ns", "cause", "row", "launch_row", "op", "op_row", "host",
    "host_row", "host_ns",
)  # fmt: skip
_CAUSE = pl.Enum(["host_wait", "kernel_wait", "other"])


def idle_summary(
    trace: Trace, by: str | Sequence[str] = ("device", "cause"), *, kernel_delay_ns: int = KERNEL_DELAY_NS
) -> pl.DataFrame:
    """Idle time of GPUs between their first and last operation, by cause.

    ``by`` accepts any columns of ``idle_gaps``: ``device``, ``cause``, ``op`` (the operator that launched the
    operation after the gap), ``host`` (the host activity with the most time in the gap), ``step``. With
    ``stream``, the gaps are those of each stream, as in HolisticTraceAnalysis, otherwise those of the whole
    GPU.

    Columns: the columns of ``by``; ``idle_ns``, ``gaps``, ``share`` (of the idle time of all groups),
        ``mean_ns``, ``median_ns``, ``max_ns``.
    Units: ns; shares between 0 and 1.
    Order: by idle time, longest first.
    Raises: InvalidArgumentError: ``by`` contains an unknown column.
    """
    columns = check_by(by, ("device", "stream", "cause", "op", "host", "step"))
    recorded = [name for name in columns if name in trace.gpu_ops.columns]
    recorded += ["op_row", "range_row"] if "op" in columns else []
    gaps = _gaps(trace, *recorded, per_stream="stream" in columns, kernel_delay_ns=kernel_delay_ns)
    gaps = _with_ops(trace, gaps) if "op" in columns else gaps
    gaps = _with_hosts(trace, gaps) if "host" in columns else gaps
    classes = classes_of(gaps.select(columns))
    found = describe_by_group(classes.of, gaps["dur_ns"], classes.keys.height)
    total = pl.col("sum").sum()
    figures = found.select(
        idle_ns="sum",
        gaps="rows",
        share=pl.when(total > 0).then(pl.col("sum") / total),
        mean_ns="mean",
        median_ns="median",
        max_ns="max",
    )
    table = _as_text(classes.keys.hstack(figures))
    return table.sort(["idle_ns", *columns], descending=[True, *(False for _ in columns)], nulls_last=True)


def idle_gaps(
    trace: Trace, *, per_stream: bool = False, kernel_delay_ns: int = KERNEL_DELAY_NS
) -> pl.DataFrame:
    """Idle gaps of GPUs and their causes.

    The cause is ``host_wait`` if the operation after the gap was launched in the gap. It is ``kernel_wait``
    if the operation waited in the queue and the gap is shorter than ``kernel_delay_ns``. Otherwise it is
    ``other``: the operation waited for an event, a copy, or another stream. Without a recorded launch, the
    cause is null.

    Columns: ``device``, ``stream`` (of the operation after the gap), ``step``, ``start_ns``, ``dur_ns``,
        ``cause``, ``row`` (of that operation in ``gpu_ops``), ``launch_row``, ``op`` and ``op_row`` (the
        operator that launched it), ``host`` and ``host_row`` (the outermost operator or annotation with the
        most time on the launching thread between the start of the gap and the launch; null if none),
        ``host_ns`` (its time).
    Units: ns on the trace's clock.
    Order: longest first.
    """
    gaps = _gaps(trace, *_RECORDED, per_stream=per_stream, kernel_delay_ns=kernel_delay_ns)
    gaps = _with_hosts(trace, _with_ops(trace, gaps))
    return _as_text(gaps.select(_OF_GAPS)).sort("dur_ns", "start_ns", "row", descending=[True, False, False])


def _gaps(trace: Trace, *columns: str, per_stream: bool, kernel_delay_ns: int) -> pl.DataFrame:
    """Gaps between works of each device, or stream, with the work that ends each and their cause."""
    return work_gaps(trace, *columns, per_stream=per_stream).with_columns(
        cause=pl.when("is_late")
        .then(pl.lit("host_wait", _CAUSE))
        .when(pl.col("is_late").is_null())
        .then(None)
        .when(pl.col("dur_ns") < kernel_delay_ns)
        .then(pl.lit("kernel_wait", _CAUSE))
        .otherwise(pl.lit("other", _CAUSE))
    )


def _with_hosts(trace: Trace, gaps: pl.DataFrame) -> pl.DataFrame:
    """What occupied the launching thread longest until the launch, and when the gap begins."""
    end = pl.col("start_ns") + pl.col("dur_ns")
    gaps = with_launches(trace, gaps).with_columns(until_ns=pl.min_horizontal("launch_ns", end))
    return gaps.hstack(longest_on_thread(trace, gaps))


def _as_text(table: pl.DataFrame) -> pl.DataFrame:
    return as_text(table.with_columns(pl.col(_CAUSE).cast(pl.String)))


def _with_ops(trace: Trace, gaps: pl.DataFrame) -> pl.DataFrame:
    """The operator that launched the work after each gap, or else the NVTX range, as column ``op``."""
    ops = gather_rows(gaps["op_row"], trace.ops, "name")["name"]
    ranges = gather_rows(gaps["range_row"], trace.ranges, "name")["name"]
    return gaps.with_columns(op=ops.zip_with(ops.is_not_null(), ranges))


def work_gaps(trace: Trace, *columns: str, per_stream: bool = False) -> pl.DataFrame:
    """Returns the gaps between the operations of each GPU, or of each stream.

    Columns: ``at`` (position in ``gpu_ops`` of the operation after the gap); ``columns`` of that operation,
        as in ``gpu_ops``; ``dur_ns`` of the gap; ``is_late`` (whether the operation was launched in it, null
        if its launch was not recorded).
    Units: ns. Order: by device, then stream if requested, then time.
    """
    work = GpuWork(trace)
    found = work.on_streams.gaps(work.calls, trace.launches) if per_stream else work.gaps
    return found.hstack(trace.gpu_ops.select(pl.col(columns).gather(found["at"])))


def with_launches(trace: Trace, gaps: pl.DataFrame) -> pl.DataFrame:
    """Adds the start of each gap, and the call that launched the operation after it.

    Columns: ``gaps`` needs ``at`` and ``dur_ns``; adds ``start_ns``, and ``launch_ns`` and ``track`` of the
        call, null if it was not recorded.
    Units: ns on the trace's clock.
    """
    starts = trace.gpu_ops["start_ns"].gather(gaps["at"]) - gaps["dur_ns"]
    calls = GpuWork(trace).calls.gather(gaps["at"])
    return gaps.with_columns(starts).hstack(trace.launches.select("track", launch_ns="start_ns")[calls])


def longest_on_thread(trace: Trace, waits: pl.DataFrame) -> pl.DataFrame:
    """Returns the operator or annotation with the most time on a thread during each wait.

    It is the outermost one. Steps are excluded.

    In a trace with NVTX ranges, these are used instead; its operators are among them.

    Columns: ``waits`` needs ``track`` (of the thread), ``start_ns``, ``until_ns``. The result has
        ``host_row``, ``host``, ``host_ns``, null if there is none.
    Units: ns.
    Order: as the waits.
    """
    asked = waits[["track", "start_ns", "until_ns"]]
    spans = trace.ops
    if trace.ranges.height:
        # Operators are among them.
        spans = trace.ranges.filter(pl.col("kind") == "push_pop")
    times = spans[["row", "parent_row", "track", "start_ns", "dur_ns"]]
    found = pl.DataFrame(_traceparse.longest_spans(asked, times, trace.steps[["row"]]))
    host = spans.select(host_row="row", host="name")[found["at"]]
    return host.with_columns(host_ns=pl.when(found["at"].is_not_null()).then(found["shared_ns"]))
