"""HolisticTraceAnalysis's tables of one rank, from the events as it reads them: its rows, rounding and order.

If its documentation and its code differ, the behaviour of version 0.6.1 counts.
"""

import polars as pl

from kernelscope.analysis.call_tree import CallTree
from kernelscope.analysis.kernels.sequences import outermost_calls, sequences_inside
from kernelscope.analysis.launches.idle import KERNEL_DELAY_NS
from kernelscope.analysis.launches.launches import delays_by_sequence
from kernelscope.trace import Trace

_TABLES = ("ops", "launches", "python", "gpu_ops", "gpu_annotations", "syncs", "spans", "counters")

# In the order in which it tries them; what matches none is OTHER.
_COMMUNICATION = r"^nccl.*|^hip|^hccl|.*ncclKernel.*"
_MEMORY = r"^(hip)?Memcpy|^(hip)?Memset|^dma"
_NOT_COMPUTATION = (
    r"^nccl|.*Memcpy|.*Memset|.*dma|^.*Sync|^Stream Wait Event|cuda.*LaunchKernel|^runFunction|^hip|^job_exe"
    r"|^packet|^pe_exe|^cpum_exe_subgraph|^hccl|^collective_subgraph_execution"
)


def hta_events(trace: Trace, *, rounded: bool) -> pl.DataFrame:
    """Returns the events that HolisticTraceAnalysis keeps for one rank.

    It reads times as float64 microseconds, which represents epoch time to a quarter of a microsecond. If any
    time is fractional, it rounds starts up and ends down: an event loses up to two microseconds, and may have
    the duration -1. With two or more profiler steps it leaves out the last, and GPU operations that remaining
    calls did not launch.

    Columns: ``row``, ``ts`` (from the first event of the trace), ``dur``, ``end`` (of the same origin),
        ``stream`` (-1 for the host), ``correlation`` (-1 for none), ``partner`` (``row`` of the launch or of
        the last operation it launched), ``name``, ``cat``, ``kernel_type``, ``on_gpu``.
    Units: microseconds. Order: GPU operations first if a step is left out, each as recorded.
    """
    rows = _all_rows(trace)
    rows = _in_microseconds(rows, rounded=rounded)
    rows = rows.with_columns(pl.col("ts") - pl.col("ts").min())
    rows = rows.with_columns(end=pl.col("ts") + pl.col("dur"))
    rows = _with_partners(rows)
    rows = _without_last_step(rows)
    return _with_types(rows).drop("start_ns", "dur_ns")


def _all_rows(trace: Trace) -> pl.DataFrame:
    frames: list[pl.DataFrame] = []
    for table in _TABLES:
        frame: pl.DataFrame = getattr(trace, table)
        absent = pl.lit(None, pl.Int64)
        has_stream = table in {"gpu_ops", "syncs"}
        # It knows kernels by the names that were recorded.
        name = pl.coalesce("mangled_name", "name") if table == "gpu_ops" else pl.col("name")
        frames.append(
            frame.select(
                "row",
                name.cast(pl.String).alias("name"),
                pl.col("category").cast(pl.String).alias("cat")
                if "category" in frame.columns
                else pl.lit(_category(table)).alias("cat"),
                "start_ns",
                "dur_ns",
                (pl.col("stream") if has_stream else absent).alias("stream"),
                (pl.col("correlation") if "correlation" in frame.columns else absent).alias("correlation"),
            )
        )
    # A range of hardware counters has a row per counter.
    rows = (
        pl.concat(frames)
        .unique("row", keep="first")
        .filter(pl.col("dur_ns").is_not_null() & (pl.col("cat").str.to_lowercase() != "trace"))
    )
    # Operators that record a stream, as Triton's do, are GPU work to it.
    given = trace.extra_args.filter(pl.col("key").cast(pl.String) == "stream")
    given = given.select("row", given=pl.col("value").cast(pl.String).str.to_integer(strict=False))
    rows = rows.join(given, on="row", how="left")
    return (
        rows.with_columns(
            pl.coalesce("stream", "given", pl.lit(-1)).alias("stream"), pl.col("correlation").fill_null(-1)
        )
        .drop("given")
        .sort("row")
    )


def _category(table: str) -> str:
    return {"python": "python_function", "gpu_annotations": "gpu_user_annotation"}[table]


def _in_microseconds(rows: pl.DataFrame, *, rounded: bool) -> pl.DataFrame:
    """Times as float64 microseconds, as a JSON reader gives them."""
    ts, dur = _microseconds("start_ns"), _microseconds("dur_ns")
    fractional = rows.select((pl.col("start_ns") % 1000 != 0).any()).item()
    if rounded and fractional:
        return rows.with_columns(ts=ts.ceil(), dur=(ts + dur).floor() - ts.ceil())
    return rows.with_columns(ts=ts, dur=dur)


def _microseconds(column: str) -> pl.Expr:
    """Nanoseconds as microseconds, rounded once to the nearest float64.

    Epoch time in nanoseconds is beyond what float64 holds exactly; there its whole microseconds are not.
    """
    time = pl.col(column)
    whole, rest = time // 1000, time % 1000
    # Polars divides by a number by multiplying with its inverse, which rounds twice; by a column it divides.
    thousand = pl.col("row").cast(pl.Float64) * 0.0 + 1000.0
    epoch = whole.cast(pl.Float64) + rest / thousand
    return pl.when(time.abs() < 2**53).then(time / thousand).otherwise(epoch)


def _with_partners(rows: pl.DataFrame) -> pl.DataFrame:
    """Launches and their work, by correlation id; of several works of a launch it keeps the last."""
    on_gpu = (pl.col("stream") != -1) | pl.col("name").is_in(["Event Sync", "Context Sync"])
    known = rows.filter(pl.col("correlation") >= 0).select("row", "correlation", gpu=on_gpu)
    host = known.filter(~pl.col("gpu")).select("correlation", host_row="row")
    work = known.filter("gpu").select("correlation", work_row="row")
    pairs = host.join(work, on="correlation", how="inner")
    sides = [
        pairs.select(row="host_row", partner="work_row"),
        pairs.select(row="work_row", partner="host_row"),
    ]
    partners = pl.concat(sides).unique("row", keep="last", maintain_order=True)
    return rows.join(partners, on="row", how="left", maintain_order="left")


def _without_last_step(rows: pl.DataFrame) -> pl.DataFrame:
    marks = rows.filter(pl.col("name").str.starts_with("ProfilerStep") & (pl.col("stream") == -1))
    marks = marks.filter(pl.col("cat") != "gpu_user_annotation")
    if marks["name"].n_unique() < 2:
        return rows
    host = rows.filter((pl.col("stream") == -1) & (pl.col("ts") < marks["ts"].max()))
    work = rows.filter(
        (pl.col("stream") != -1)
        & (pl.col("correlation") != -1)
        & pl.col("correlation").is_in(host["correlation"].unique().implode())
    )
    return pl.concat([work, host])


def _with_types(rows: pl.DataFrame) -> pl.DataFrame:
    names = rows.filter(pl.col("stream") != -1).select("name").unique()
    text = pl.col("name")
    kinds = names.with_columns(
        kernel_type=pl.when(text.str.contains(_COMMUNICATION))
        .then(pl.lit("COMMUNICATION"))
        .when(text.str.contains(_MEMORY))
        .then(pl.lit("MEMORY"))
        .when(text.str.contains(_NOT_COMPUTATION))
        .then(pl.lit("OTHER"))
        .otherwise(pl.lit("COMPUTATION"))
    )
    rows = rows.with_columns(on_gpu=pl.col("stream") != -1)
    return rows.join(kinds, on="name", how="left", maintain_order="left")


def sums() -> list[pl.Expr]:
    """Statistics of ``dur`` as HolisticTraceAnalysis names them."""
    dur = pl.col("dur")
    return [
        dur.sum().alias("sum (us)"),
        dur.max().alias("max (us)"),
        dur.min().alias("min (us)"),
        dur.std().fill_null(0.0).alias("stddev"),
        dur.mean().alias("mean (us)"),
    ]


def describe(column: str) -> list[pl.Expr]:
    """Statistics of ``column`` as ``describe`` of pandas names them."""
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


def rank_of(trace: Trace) -> pl.Expr:
    """Returns the column ``rank``: the rank of the trace, or 0 if it has none."""
    return pl.lit(trace.meta.rank or 0, dtype=pl.Int64).alias("rank")


_KINDS = ("COMPUTATION", "COMMUNICATION", "MEMORY")
_COPY_NAMES = ("Memcpy DtoH", "Memcpy HtoD", "Memcpy DtoD", "Memset", "Memcpy Unknown")


def temporal_breakdown(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """``get_temporal_breakdown``.

    It is empty for a trace without GPU operations, for which HolisticTraceAnalysis fails.
    """
    work = hta_events(trace, rounded=rounded).filter("on_gpu")
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
    return table.select(rank_of(trace), pl.all())


def comm_comp_overlap(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """``get_comm_comp_overlap``. Null without communication."""
    segments = _segments(hta_events(trace, rounded=rounded).filter("on_gpu"))
    both = _total(segments.filter(pl.col("COMPUTATION") & pl.col("COMMUNICATION")))
    communication = _total(segments.filter("COMMUNICATION"))
    share = round(100 * both / communication, 2) if communication else None
    return pl.DataFrame(
        {"comp_comm_overlap_pctg": [share]}, schema={"comp_comm_overlap_pctg": pl.Float64}
    ).select(rank_of(trace), pl.all())


def kernel_type_breakdown(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """The first frame of ``get_gpu_kernel_breakdown``.

    It contains the time by concurrently running types, truncated to whole us.
    """
    segments = _segments(hta_events(trace, rounded=rounded).filter("on_gpu"))
    label = pl.concat_str(
        *(pl.when(kind).then(pl.lit(kind)) for kind in _KINDS), separator=" overlapping ", ignore_nulls=True
    )
    table = segments.group_by(kernel_type=label).agg(sum=pl.col("length").cast(pl.Int64).sum())
    table = table.filter((pl.col("kernel_type") != "") & (pl.col("sum") != 0))
    return table.with_columns(percentage=(100 * pl.col("sum") / pl.col("sum").sum()).round(1)).sort(
        "sum", descending=True
    )


def kernel_breakdown(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """The second frame of ``get_gpu_kernel_breakdown`` with every kernel named."""
    work = hta_events(trace, rounded=rounded).filter(pl.col("kernel_type").is_in(_KINDS))
    return (
        work.group_by("kernel_type", "name")
        .agg(*sums())
        .sort("kernel_type", "name")
        .select("name", pl.all().exclude("name", "kernel_type"), "kernel_type", rank_of(trace))
    )


def annotation_breakdown(trace: Trace, *, on_gpu: bool, rounded: bool = True) -> pl.DataFrame:
    """``get_gpu_user_annotation_breakdown`` with every annotation named, of the GPU or of the host."""
    category = "gpu_user_annotation" if on_gpu else "user_annotation"
    events = hta_events(trace, rounded=rounded).filter(pl.col("cat") == category)
    return events.group_by("name").agg(*sums()).sort("name").with_columns(rank_of(trace))


def memory_bandwidth(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """``get_memory_bw_time_series``."""
    events = hta_events(trace, rounded=rounded).filter(pl.col("kernel_type") == "MEMORY")
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


def memory_bandwidth_summary(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """``get_memory_bw_summary``: statistics of the series where it is above 0, by name."""
    series = memory_bandwidth(trace, rounded=rounded).filter(pl.col("memory_bw_gbps") > 0)
    return series.group_by("name").agg(describe("memory_bw_gbps")).sort("name")


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
    """The second frame of ``get_idle_time_breakdown``: statistics of the gaps of each category."""
    gaps = _idle_gaps(trace, rounded=rounded, kernel_delay_ns=kernel_delay_ns)
    table = gaps.group_by("place", "stream", "idle_category").agg(describe("gap"))
    numbers = pl.col("mean", "std", "min", "25%", "50%", "75%", "max").round(2)
    return table.sort("place", "idle_category").select(
        "idle_category", rank_of(trace), "stream", pl.col("count").cast(pl.Float64), numbers
    )


def launch_stats(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """``get_cuda_kernel_launch_stats``, for ``cudaLaunchKernel``, its ``ExC`` form, copies and memsets."""
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
    """``get_aten_op_kernels_and_delay``, for ATen operators and the kernel launches that it knows."""
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
