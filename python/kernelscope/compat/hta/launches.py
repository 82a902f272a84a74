"""HolisticTraceAnalysis on the launches of one rank: gaps, delays, queues and sequences of kernels."""

import polars as pl

from kernelscope.analysis.call_tree import CallTree
from kernelscope.analysis.kernels.sequences import outermost_calls, sequences_inside
from kernelscope.analysis.launches.idle import KERNEL_DELAY_NS
from kernelscope.analysis.launches.launches import delays_by_sequence
from kernelscope.compat.hta.events import describe, hta_events, rank_of
from kernelscope.trace import Trace

_DEVICE_WORK = ("kernel", "gpu_memset", "memset", "gpu_memcpy", "memcpy", "mtia_ccp_events")
_LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "runFunction - job_prep_and_submit_for_execution")
_LAUNCH = r"cuda.*LaunchKernel|cuLaunchKernel|^runFunction"
_COPIES = ("cudaMemcpyAsync", "cudaMemsetAsync")
_QUEUED = (
    *_LAUNCHES,
    *_COPIES,
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "hipLaunchKernel",
    "hipExtModuleLaunchKernel",
    "hipMemsetAsync",
    "hipMemcpyAsync",
    "hipMemcpyWithStream",
)


def idle_time(trace: Trace, *, rounded: bool = True, kernel_delay_ns: int = KERNEL_DELAY_NS) -> pl.DataFrame:
    """``get_idle_time_breakdown``, its first frame."""
    gaps = _idle_gaps(trace, rounded=rounded, kernel_delay_ns=kernel_delay_ns)
    table = gaps.group_by("place", "stream", "idle_category").agg(idle_time=pl.col("gap").sum())
    share = pl.col("idle_time") / pl.col("idle_time").sum().over("stream")
    return (
        table.with_columns(idle_time_ratio=pl.when(share.is_finite()).then(share.round(2)))
        .with_columns(pl.col("idle_time").round(2))
        .sort("place", "idle_category")
        .select(rank_of(trace), "stream", "idle_category", "idle_time", "idle_time_ratio")
    )


def idle_intervals(
    trace: Trace, *, rounded: bool = True, kernel_delay_ns: int = KERNEL_DELAY_NS
) -> pl.DataFrame:
    """``get_idle_time_breakdown``, its second frame: what the gaps of each category are like."""
    gaps = _idle_gaps(trace, rounded=rounded, kernel_delay_ns=kernel_delay_ns)
    table = gaps.group_by("place", "stream", "idle_category").agg(describe("gap"))
    numbers = pl.col("mean", "std", "min", "25%", "50%", "75%", "max").round(2)
    return table.sort("place", "idle_category").select(
        "idle_category", rank_of(trace), "stream", pl.col("count").cast(pl.Float64), numbers
    )


def launch_stats(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """``get_cuda_kernel_launch_stats``: of ``cudaLaunchKernel``, its ``ExC`` form, copies and memsets."""
    events = hta_events(trace, rounded=rounded).filter(pl.col("correlation") != -1)
    calls = events.filter(~pl.col("on_gpu") & pl.col("name").is_in([*_LAUNCHES, *_COPIES]))
    pairs = events.filter("on_gpu").join(calls, on="correlation", how="inner", suffix="_call")
    delay = pl.col("ts") - pl.col("ts_call") - pl.col("dur_call")
    return pairs.select(
        "correlation",
        cpu_duration=pl.col("dur_call"),
        gpu_duration=pl.col("dur"),
        launch_delay=delay.clip(lower_bound=0),
    ).sort("correlation")


def queue_length(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """``get_queue_length_time_series``."""
    events = hta_events(trace, rounded=rounded)
    calls = events.filter(pl.col("name").is_in(_QUEUED) & ~pl.col("on_gpu") & (pl.col("partner") > 0))
    work = events.filter("on_gpu").select("row", "ts", "stream")
    pairs = calls.select("row", "ts", "partner").join(
        work, left_on="partner", right_on="row", how="inner", suffix="_work"
    )
    device = trace.gpu_ops.select("row", pid="device")
    pairs = pairs.join(device, left_on="partner", right_on="row", how="left")
    changes = pl.concat(
        [
            pairs.select("row", "ts", "pid", "stream", change=1),
            pairs.select("partner", "ts_work", "pid", "stream", change=-1).rename(
                {"partner": "row", "ts_work": "ts"}
            ),
        ]
    ).sort("stream", "ts", "change", descending=[False, False, True])
    return changes.select(
        pl.col("row").alias("index"),
        "ts",
        "pid",
        tid="stream",
        stream="stream",
        queue_length=pl.col("change").cum_sum().over("stream"),
    )


def queue_summary(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """``get_queue_length_summary``: statistics of the lengths over the changes, by stream."""
    lengths = queue_length(trace, rounded=rounded)
    return lengths.group_by("stream").agg(describe("queue_length")).sort("stream")


def op_launch_delay(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """``get_aten_op_kernels_and_delay``: of operators of ATen, and launches of kernels that it knows."""
    events = hta_events(trace, rounded=rounded)
    calls = events.filter(pl.col("name").str.contains(_LAUNCH) & ~pl.col("on_gpu") & (pl.col("partner") > 0))
    calls = calls.select("row", "partner", launch_ns="ts").join(_aten_op(trace), on="row", how="inner")
    ops = events.select(op_row="row", op="name", op_ns="ts")
    work = events.select("row", "name", start_ns="ts")
    pairs = calls.drop("row").join(work, left_on="partner", right_on="row", how="inner")
    pairs = pairs.rename({"partner": "row"}).join(ops, on="op_row", how="inner")
    return delays_by_sequence(pairs).select(
        pl.col("op").alias("aten_op_name"),
        pl.col("kernels").list.join(" -> ").alias("kernel_sequence"),
        pl.col("calls").alias("occurrence_count"),
        pl.col("launch_delay").round(3).alias("avg_aten_op_launch_delay"),
        pl.col("queue_delay").round(3).alias("avg_runtime_delay"),
    )


def kernel_sequences(trace: Trace, operator: str = "", *, min_kernels: int = 3) -> pl.DataFrame:
    """``get_frequent_cuda_kernel_sequences``: without the last of several profiler steps."""
    calls = outermost_calls(trace, operator)
    if trace.steps["step"].drop_nulls().n_unique() > 1:
        calls = calls.filter(pl.col("start_ns") < trace.steps["host_start_ns"].max())
    return (
        sequences_inside(trace, calls, min_kernels=min_kernels)
        .select(
            pl.concat_str("op", pl.col("kernels").list.join("|"), separator="|").alias("pattern"),
            pl.col("calls").alias("count"),
            (pl.col("gpu_dur_ns") / 1000).alias("GPU kernel duration (us)"),
            (pl.col("cpu_dur_ns") / 1000).alias("CPU op duration (us)"),
        )
        .sort("count", "pattern", descending=[True, False])
    )


def _idle_gaps(trace: Trace, *, rounded: bool = True, kernel_delay_ns: int = KERNEL_DELAY_NS) -> pl.DataFrame:
    """The gaps between neighbours of each stream.

    Columns: ``stream``, ``idle_category``, ``gap`` (null for the first work), ``place`` of the stream.
    """
    events = hta_events(trace, rounded=rounded)
    starts = events.select(partner="row", launch_ts="ts")
    work = events.filter(pl.col("on_gpu") & pl.col("cat").str.to_lowercase().is_in(_DEVICE_WORK))
    work = work.join(starts, on="partner", how="left", maintain_order="left")
    order = work["stream"].unique(maintain_order=True)
    before = pl.col("end").shift(1).over("stream")
    work = work.sort("ts", maintain_order=True).with_columns(_before=before)
    gap = pl.col("ts") - pl.col("_before")
    return work.select(
        "stream",
        gap=gap,
        idle_category=pl.when(pl.col("launch_ts") > pl.col("_before"))
        .then(pl.lit("host_wait"))
        .when(gap < kernel_delay_ns / 1000)
        .then(pl.lit("kernel_wait"))
        .otherwise(pl.lit("other")),
        place=pl.col("stream").replace_strict(order, range(len(order)), return_dtype=pl.UInt32),
    )


def _aten_op(trace: Trace) -> pl.DataFrame:
    """The innermost operator of ATen around each call: ``row``, ``op_row``."""
    tree = CallTree(trace.ops)
    tree.keep_marked(trace.ops["name"].cast(pl.String).str.starts_with("aten::").fill_null(value=False))
    around = trace.ops.select(op="row").with_columns(op_row=tree.kept())
    calls = trace.launches.select("row", op="op_row")
    return calls.join(around, on="op", how="inner").drop_nulls("op_row").select("row", "op_row")
