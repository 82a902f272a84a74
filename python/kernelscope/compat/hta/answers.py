"""The tables of HolisticTraceAnalysis, with its columns, units and rounding, for one rank.

Where its answers are wrong by its own definition they are not copied: see docs/analyses.md.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from kernelscope.compat.hta.events import Compat, hta_events

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_KINDS = ("COMPUTATION", "COMMUNICATION", "MEMORY")
_DEVICE_WORK = ("kernel", "gpu_memset", "memset", "gpu_memcpy", "memcpy", "mtia_ccp_events")
_LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "runFunction - job_prep_and_submit_for_execution")
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
_COPY_NAMES = ("Memcpy DtoH", "Memcpy HtoD", "Memcpy DtoD", "Memset", "Memcpy Unknown")


def hta_temporal_breakdown(trace: "Trace", compat: Compat) -> pl.DataFrame:
    """``get_temporal_breakdown``: empty for a trace without GPU work, where HolisticTraceAnalysis fails."""
    work = hta_events(trace, compat).filter("on_gpu")
    busy = _merged(work)
    compute = _length(_merged(work.filter(pl.col("kernel_type") == "COMPUTATION")))
    kernel = busy.select(pl.col("end").last() - pl.col("ts").first()).item() if busy.height else 0.0
    idle = kernel - _length(busy)
    parts = {"idle_time": idle, "compute_time": compute, "non_compute_time": kernel - compute - idle}
    row = {f"{name}(us)": value for name, value in parts.items()} | {"kernel_time(us)": kernel}
    row |= {
        f"{name}_pctg": round(100 * value / kernel, 2) if kernel else 0.0 for name, value in parts.items()
    }
    table = pl.DataFrame([row], schema=dict.fromkeys(row, pl.Float64)).head(busy.height)
    return table.select(_rank(trace), pl.all())


def hta_comm_comp_overlap(trace: "Trace", compat: Compat) -> pl.DataFrame:
    """``get_comm_comp_overlap``: null where there is no communication."""
    segments = _segments(hta_events(trace, compat).filter("on_gpu"))
    both = _total(segments.filter(pl.col("COMPUTATION") & pl.col("COMMUNICATION")))
    communication = _total(segments.filter("COMMUNICATION"))
    share = round(100 * both / communication, 2) if communication else None
    return pl.DataFrame(
        {"comp_comm_overlap_pctg": [share]}, schema={"comp_comm_overlap_pctg": pl.Float64}
    ).select(_rank(trace), pl.all())


def hta_kernel_types(trace: "Trace", compat: Compat) -> pl.DataFrame:
    """The first frame of ``get_gpu_kernel_breakdown``: time by what ran at once; parts cut to whole us."""
    segments = _segments(hta_events(trace, compat).filter("on_gpu"))
    label = pl.concat_str(
        *(pl.when(kind).then(pl.lit(kind)) for kind in _KINDS), separator=" overlapping ", ignore_nulls=True
    )
    table = segments.group_by(kernel_type=label).agg(sum=pl.col("length").cast(pl.Int64).sum())
    table = table.filter((pl.col("kernel_type") != "") & (pl.col("sum") != 0))
    return table.with_columns(percentage=(100 * pl.col("sum") / pl.col("sum").sum()).round(1)).sort(
        "sum", descending=True
    )


def hta_kernels(trace: "Trace", compat: Compat) -> pl.DataFrame:
    """The second frame of ``get_gpu_kernel_breakdown`` with every kernel named."""
    work = hta_events(trace, compat).filter(pl.col("kernel_type").is_in(_KINDS))
    return (
        work.group_by("kernel_type", "name")
        .agg(*_summed())
        .sort("kernel_type", "name")
        .select("name", pl.all().exclude("name", "kernel_type"), "kernel_type", _rank(trace))
    )


def hta_idle_gaps(trace: "Trace", compat: Compat, *, kernel_delay_us: float) -> pl.DataFrame:
    """The gaps between neighbours of each stream.

    Columns: ``stream``, ``idle_category``, ``gap`` (null for the first work), ``place`` of the stream.
    """
    events = hta_events(trace, compat)
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
        .when(gap < kernel_delay_us)
        .then(pl.lit("kernel_wait"))
        .otherwise(pl.lit("other")),
        place=pl.col("stream").replace_strict(order, range(len(order)), return_dtype=pl.UInt32),
    )


def hta_idle_time(trace: "Trace", compat: Compat, *, kernel_delay_us: float) -> pl.DataFrame:
    """``get_idle_time_breakdown``, its first frame."""
    gaps = hta_idle_gaps(trace, compat, kernel_delay_us=kernel_delay_us)
    table = gaps.group_by("place", "stream", "idle_category").agg(idle_time=pl.col("gap").sum())
    share = pl.col("idle_time") / pl.col("idle_time").sum().over("stream")
    return (
        table.with_columns(idle_time_ratio=pl.when(share.is_finite()).then(share.round(2)))
        .with_columns(pl.col("idle_time").round(2))
        .sort("place", "idle_category")
        .select(_rank(trace), "stream", "idle_category", "idle_time", "idle_time_ratio")
    )


def hta_idle_intervals(trace: "Trace", compat: Compat, *, kernel_delay_us: float) -> pl.DataFrame:
    """``get_idle_time_breakdown``, its second frame: what the gaps of each category are like."""
    gaps = hta_idle_gaps(trace, compat, kernel_delay_us=kernel_delay_us)
    table = gaps.group_by("place", "stream", "idle_category").agg(_described("gap"))
    numbers = pl.col("mean", "std", "min", "25%", "50%", "75%", "max").round(2)
    return table.sort("place", "idle_category").select(
        "idle_category", _rank(trace), "stream", pl.col("count").cast(pl.Float64), numbers
    )


def hta_launch_stats(trace: "Trace", compat: Compat) -> pl.DataFrame:
    """``get_cuda_kernel_launch_stats``: of ``cudaLaunchKernel``, its ``ExC`` form, copies and memsets."""
    events = hta_events(trace, compat).filter(pl.col("correlation") != -1)
    calls = events.filter(~pl.col("on_gpu") & pl.col("name").is_in([*_LAUNCHES, *_COPIES]))
    pairs = events.filter("on_gpu").join(calls, on="correlation", how="inner", suffix="_call")
    delay = pl.col("ts") - pl.col("ts_call") - pl.col("dur_call")
    return pairs.select(
        "correlation",
        cpu_duration=pl.col("dur_call"),
        gpu_duration=pl.col("dur"),
        launch_delay=delay.clip(lower_bound=0),
    ).sort("correlation")


def hta_queue_length(trace: "Trace", compat: Compat) -> pl.DataFrame:
    """``get_queue_length_time_series``."""
    events = hta_events(trace, compat)
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


def hta_memory_bandwidth(trace: "Trace", compat: Compat) -> pl.DataFrame:
    """``get_memory_bw_time_series``."""
    events = hta_events(trace, compat).filter(pl.col("kernel_type") == "MEMORY")
    rates = trace.gpu_ops.select("row", pid="device", rate=pl.col("bandwidth_gb_per_s").fill_null(0.0))
    name = pl.when(pl.col("name").str.starts_with("Memset")).then(pl.lit("Memset"))
    name = name.when(pl.col("name").str.starts_with("Memcpy Unknown")).then(pl.lit("Memcpy Unknown"))
    copies = events.join(rates, on="row", how="left").select(
        "ts",
        "pid",
        "rate",
        dur=pl.when(pl.col("dur") == 0).then(1.0).otherwise("dur"),
        name=name.otherwise(pl.col("name").str.slice(0, 11)),
    )
    copies = copies.filter(pl.col("name").is_in(_COPY_NAMES))
    ends = copies.with_columns(pl.col("ts") + pl.col("dur"), -pl.col("rate"))
    changes = pl.concat([copies, ends]).sort("name", "ts", maintain_order=True)
    return changes.select("ts", "pid", "name", memory_bw_gbps=pl.col("rate").cum_sum().over("name"))


def hta_annotations(trace: "Trace", compat: Compat, *, on_gpu: bool) -> pl.DataFrame:
    """``get_gpu_user_annotation_breakdown`` with every annotation named, of the GPU or of the host."""
    category = "gpu_user_annotation" if on_gpu else "user_annotation"
    events = hta_events(trace, compat).filter(pl.col("cat") == category)
    return events.group_by("name").agg(*_summed()).sort("name").with_columns(_rank(trace))


def _summed() -> list[pl.Expr]:
    """Statistics of durations, under its names."""
    dur = pl.col("dur")
    return [
        dur.sum().alias("sum (us)"),
        dur.max().alias("max (us)"),
        dur.min().alias("min (us)"),
        dur.std().fill_null(0.0).alias("stddev"),
        dur.mean().alias("mean (us)"),
    ]


def described(frame: pl.DataFrame, column: str, *, by: Sequence[str]) -> pl.DataFrame:
    """What ``describe`` of pandas says of ``column``: count, mean, std, min, quartiles and max, by ``by``."""
    return frame.group_by(by).agg(_described(column)).sort(by)


def _described(column: str) -> list[pl.Expr]:
    value = pl.col(column)
    quartiles = [
        value.quantile(share, interpolation="linear").alias(f"{share:.0%}") for share in (0.25, 0.5, 0.75)
    ]
    return [
        value.count().cast(pl.Int64).alias("count"),
        value.mean().alias("mean"),
        value.std().alias("std"),
        value.min().alias("min"),
        *quartiles,
        value.max().alias("max"),
    ]


def _rank(trace: "Trace") -> pl.Expr:
    return pl.lit(trace.meta.rank or 0, dtype=pl.Int64).alias("rank")


def _merged(work: pl.DataFrame) -> pl.DataFrame:
    """Unions as HolisticTraceAnalysis makes them: an event that lasts -1 us is a part, too."""
    ordered = work.select("ts", "end").sort("ts", maintain_order=True)
    opens = (pl.col("ts") > pl.col("end").cum_max().shift(1)).fill_null(value=True)
    return ordered.group_by(opens.cum_sum().alias("_part"), maintain_order=True).agg(
        pl.col("ts").min(), pl.col("end").max()
    )


def _length(parts: pl.DataFrame) -> float:
    return parts.select((pl.col("end") - pl.col("ts")).sum()).item()


def _total(segments: pl.DataFrame) -> float:
    return segments.select(pl.col("length").sum()).item()


def _segments(work: pl.DataFrame) -> pl.DataFrame:
    """The time between neighbouring starts and ends: what runs meanwhile, and ``length``."""
    changes: list[pl.DataFrame] = []
    for kind in _KINDS:
        parts = _merged(work.filter(pl.col("kernel_type") == kind))
        changes += [parts.select(at="ts", kind=pl.lit(kind), change=1)]
        changes += [parts.select(at="end", kind=pl.lit(kind), change=-1)]
    ordered = pl.concat(changes).sort("at", "change", descending=[False, True])
    running = [
        (pl.when(pl.col("kind") == kind).then("change").otherwise(0).cum_sum() > 0).alias(kind)
        for kind in _KINDS
    ]
    return ordered.select(*running, length=(pl.col("at").shift(-1) - pl.col("at")).fill_null(0.0))
