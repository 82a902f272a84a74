"""The events of a trace as HolisticTraceAnalysis sees them: its rows, rounding, row order and statistics.

Its documentation and its code differ in places; what its version 0.6.1 does counts.
"""

import polars as pl

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
    """The events that HolisticTraceAnalysis keeps of one rank.

    It reads times as float64 microseconds, which holds epoch time to a quarter of one, and rounds starts up
    and ends down where any time is fractional: an event loses up to two microseconds, and may come to last
    -1. With two or more profiler steps it leaves out the last, and GPU work that remaining calls did not
    launch.

    Columns: ``row``, ``ts`` (from the first event of the trace), ``dur``, ``end`` (of the same origin),
        ``stream`` (-1 for the host), ``correlation`` (-1 for none), ``partner`` (``row`` of the launch or of
        the last work it launched), ``name``, ``cat``, ``kernel_type``, ``on_gpu``.
    Units: microseconds.
    Order: GPU work before the rest if a step is left out, each as recorded.
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
        frames.append(
            frame.select(
                "row",
                pl.col("name").cast(pl.String),
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
            pl.coalesce("stream", "given", pl.lit(-1)).alias("stream"),
            pl.col("correlation").fill_null(-1),
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
    """Returns the column ``rank``: that of the trace, 0 if it has none."""
    return pl.lit(trace.meta.rank or 0, dtype=pl.Int64).alias("rank")
