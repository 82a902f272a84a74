"""Sequences of kernels that operators launch repeatedly in the same order: candidates for fusion."""

import polars as pl

from kernelscope.trace import Trace


def kernel_sequences(trace: Trace, operator: str = "", *, min_kernels: int = 3) -> pl.DataFrame:
    """Sequences of kernels, copies and memsets launched by calls of operators, by number of occurrences.

    A call includes everything launched inside it. Of nested matching calls, the outermost counts.

    ``operator`` is a substring of the operators' names. Without it, the outermost operators of each thread
    count. Calls that launch fewer than ``min_kernels`` operations are left out.

    Columns: ``op`` (name), ``kernels`` (list of names in order of start), ``calls``, ``works`` (operations in
        one call), ``short`` (operations of all calls that are shorter than their launches), ``gpu_dur_ns``
        (sum over operations and calls), ``cpu_dur_ns`` (sum over calls).
    Units: ns. Order: by calls, then by time on the GPU, largest first.
    """
    return sequences_inside(trace, outermost_calls(trace, operator), min_kernels=min_kernels)


def sequences_inside(trace: Trace, calls: pl.DataFrame, *, min_kernels: int) -> pl.DataFrame:
    """Returns the table of ``kernel_sequences`` for ``calls`` from ``outermost_calls``."""
    work = _launched_inside(trace, calls)
    per_call = (
        work.sort("root", "start_ns", "row")
        .group_by("root", maintain_order=True)
        .agg(
            pl.col("name").cast(pl.String).fill_null("").alias("kernels"),
            pl.len().cast(pl.Int64).alias("works"),
            pl.col("is_short").sum().cast(pl.Int64).alias("short"),
            pl.col("dur_ns").sum().alias("gpu_dur_ns"),
        )
        .filter(pl.col("works") >= min_kernels)
    )
    found = per_call.join(calls.select("root", "op", "cpu_dur_ns"), on="root", how="inner")
    # Lists are compared as text: their elements cannot hold a line break.
    key = pl.col("kernels").list.join("\n")
    table = (
        found.group_by("op", key.alias("_key"))
        .agg(
            pl.col("kernels").first(),
            pl.len().cast(pl.Int64).alias("calls"),
            pl.col("works").first(),
            pl.col("short", "gpu_dur_ns", "cpu_dur_ns").sum(),
        )
        .sort("calls", "gpu_dur_ns", "op", "_key", descending=[True, True, False, False])
    )
    return table.drop("_key")


def outermost_calls(trace: Trace, operator: str) -> pl.DataFrame:
    """Returns the outermost matching calls of each thread.

    The columns are ``root``, ``op``, ``track``, ``start_ns`` and ``end_ns``.
    """
    steps = trace.steps.select(pl.col("row").drop_nulls())["row"]
    ops = trace.ops.select("row", "name", "track", "start_ns", dur_ns=pl.col("dur_ns").fill_null(0)).filter(
        ~pl.col("row").is_in(steps.implode())
    )
    names = ops.select("name").unique().drop_nulls().with_columns(op=pl.col("name").cast(pl.String))
    names = names.filter(pl.col("op").str.contains(operator, literal=True))
    found = ops.join(names, on="name", how="inner").with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    # Of calls of one time, the first recorded is around the others.
    found = found.sort("track", "start_ns", "end_ns", "row", descending=[False, False, True, False])
    before = pl.col("end_ns").cum_max().shift(1).over("track")
    outermost = (pl.col("start_ns") >= before).fill_null(value=True)
    return found.filter(outermost).select(
        "op", "track", "start_ns", "end_ns", root="row", cpu_dur_ns="dur_ns"
    )


def _launched_inside(trace: Trace, roots: pl.DataFrame) -> pl.DataFrame:
    """GPU work whose launch lies in one of ``roots``, which do not overlap on a thread: with ``root``."""
    calls = trace.launches.select(launch_row="row", track="track", at_ns="start_ns", call_dur="dur_ns").sort(
        "at_ns"
    )
    inside = calls.join_asof(
        roots.select("track", "root", "end_ns", at_ns="start_ns").sort("at_ns"),
        on="at_ns",
        by="track",
        strategy="backward",
        check_sortedness=False,
    ).filter(pl.col("at_ns") < pl.col("end_ns"))
    work = trace.gpu_ops.select("row", "launch_row", "name", "start_ns", "dur_ns")
    work = work.join(inside.select("launch_row", "root", "call_dur"), on="launch_row", how="inner")
    return work.with_columns(is_short=(pl.col("dur_ns") < pl.col("call_dur")).fill_null(value=False))
