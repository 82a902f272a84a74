"""Why GPUs idle, and which host operators made them wait."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.grouping import as_text, check_by
from kernelscope.analysis.hta.answers import hta_idle_time
from kernelscope.analysis.hta.events import check_compat
from kernelscope.analysis.thread_occupation import longest_on_thread

if TYPE_CHECKING:
    from kernelscope.trace import Trace

KERNEL_DELAY_NS = 30_000
"""The longest gap that the GPU needs between works which already wait in its queue."""


def idle_time(
    trace: "Trace",
    by: str | Sequence[str] = ("device", "cause"),
    *,
    kernel_delay_ns: int = KERNEL_DELAY_NS,
    compat: str | None = None,
) -> pl.DataFrame:
    """How long GPUs idled between their first work and their last, by cause.

    ``by`` takes any columns of ``idle_gaps``: ``device``, ``cause``, ``op`` (the operator that launched the
    work which ended the gap), ``host`` (what occupied the host longest meanwhile), ``step``. With ``stream``
    the gaps are those of each stream, as HolisticTraceAnalysis takes them, else those of the whole GPU.

    Columns: those of ``by``; ``idle_ns``, ``gaps``, ``share`` (of the idle time of all groups), ``mean_ns``,
        ``median_ns``, ``max_ns``.
    Units: ns; shares between 0 and 1.
    Order: by idle time, longest first.
    ``compat="hta"``, ``"hta-unrounded"``: the first frame of ``get_idle_time_breakdown`` of
        HolisticTraceAnalysis, by stream.
    Raises: InvalidArgumentError: there is no such ``compat``, or ``by`` names no such column.
    """
    mode = check_compat(compat)
    if mode is not None:
        return hta_idle_time(trace, mode, kernel_delay_us=kernel_delay_ns / 1000)
    columns = check_by(by, ("device", "stream", "cause", "op", "host", "step"))
    gaps = _gaps(trace, per_stream="stream" in columns, kernel_delay_ns=kernel_delay_ns)
    gaps = _with_ops(trace, gaps) if "op" in columns else gaps
    gaps = gaps.join(longest_on_thread(trace, gaps), on="row", how="left") if "host" in columns else gaps
    gap = pl.col("dur_ns")
    table = gaps.group_by(columns).agg(
        gap.sum().alias("idle_ns"),
        pl.len().cast(pl.Int64).alias("gaps"),
        gap.mean().alias("mean_ns"),
        gap.median().alias("median_ns"),
        gap.max().alias("max_ns"),
    )
    total = pl.col("idle_ns").sum()
    return (
        as_text(table)
        .with_columns(share=pl.when(total > 0).then(pl.col("idle_ns") / total))
        .select(*columns, "idle_ns", "gaps", "share", "mean_ns", "median_ns", "max_ns")
        .sort(["idle_ns", *columns], descending=[True, *(False for _ in columns)], nulls_last=True)
    )


def idle_gaps(
    trace: "Trace", *, per_stream: bool = False, kernel_delay_ns: int = KERNEL_DELAY_NS
) -> pl.DataFrame:
    """Each gap in which a GPU idled, and what it waited for.

    A gap's cause is ``host_wait`` if the work that ends it was launched after the gap began, ``kernel_wait``
    if it waited in the queue and the gap is shorter than ``kernel_delay_ns``, else ``other``: the work waited
    for an event, a copy, or another stream. Without a recorded launch the cause is null.

    Columns: ``device``, ``stream`` (of the work that ends the gap), ``step``, ``start_ns``, ``dur_ns``,
        ``cause``, ``row`` (of that work in ``gpu_ops``), ``launch_row``, ``op`` and ``op_row`` (the operator
        that launched it), ``host`` and ``host_row`` (the outermost operator or annotation that occupied the
        launching thread longest between the start of the gap and the launch; null if none did), ``host_ns``
        (how long).
    Units: ns on the trace's clock.
    Order: longest first.
    """
    gaps = _gaps(trace, per_stream=per_stream, kernel_delay_ns=kernel_delay_ns)
    gaps = _with_ops(trace, gaps).join(longest_on_thread(trace, gaps), on="row", how="left")
    return as_text(
        gaps.select(
            "device",
            "stream",
            "step",
            "start_ns",
            "dur_ns",
            "cause",
            "row",
            "launch_row",
            "op",
            "op_row",
            "host",
            "host_row",
            "host_ns",
        )
    ).sort("dur_ns", "start_ns", "row", descending=[True, False, False])


def _gaps(trace: "Trace", *, per_stream: bool, kernel_delay_ns: int) -> pl.DataFrame:
    """Gaps between works of each device, or stream, with the work that ends each and its launch."""
    by = ["device", "stream"] if per_stream else ["device"]
    calls = trace.launches.select(launch_row="row", launch_ns="start_ns", track="track")
    work = trace.gpu_ops.select(
        "row", "launch_row", "op_row", "range_row", "device", "stream", "step", "start_ns", "dur_ns"
    ).sort("start_ns", "row")
    end = pl.col("start_ns") + pl.col("dur_ns").fill_null(0).clip(lower_bound=0)
    before = end.cum_max().shift(1).over(by)
    gaps = work.with_columns(_before=before).filter(pl.col("start_ns") > pl.col("_before"))
    gaps = gaps.join(calls, on="launch_row", how="left", maintain_order="left")
    gap = pl.col("start_ns") - pl.col("_before")
    return gaps.with_columns(
        start_ns=pl.col("_before"),
        dur_ns=gap,
        until_ns=pl.min_horizontal("launch_ns", "start_ns"),
        cause=pl.when(pl.col("launch_ns").is_null())
        .then(None)
        .when(pl.col("launch_ns") > pl.col("_before"))
        .then(pl.lit("host_wait"))
        .when(gap < kernel_delay_ns)
        .then(pl.lit("kernel_wait"))
        .otherwise(pl.lit("other")),
    ).drop("_before")


def _with_ops(trace: "Trace", gaps: pl.DataFrame) -> pl.DataFrame:
    """The operator that launched the work after each gap, or else the NVTX range, as column ``op``."""
    ops = trace.ops.select(op_row="row", op=pl.col("name").cast(pl.String))
    ranges = trace.ranges.select(range_row="row", range=pl.col("name").cast(pl.String))
    gaps = gaps.join(ops, on="op_row", how="left", maintain_order="left")
    gaps = gaps.join(ranges, on="range_row", how="left", maintain_order="left")
    return gaps.with_columns(pl.coalesce("op", "range").alias("op"))
