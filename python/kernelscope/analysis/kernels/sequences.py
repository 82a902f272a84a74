"""Kernels that an operator launches again and again in one order: what could be fused."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.compat.hta.events import check_compat

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def kernel_sequences(
    trace: "Trace", operator: str = "", *, min_kernels: int = 3, compat: str | None = None
) -> pl.DataFrame:
    """The sequences of kernels, copies and memsets that calls of operators launched, by how often they occur.

    A call counts with everything that is launched inside it; of nested calls that match, the outermost
    counts.

    ``operator`` is a part of the operators' names; with none, the outermost operators of each thread count.
    Calls that launch fewer than ``min_kernels`` works are left out.

    Columns: ``op`` (name), ``kernels`` (list of names in order of start), ``calls``, ``works`` (in one call),
        ``short`` (works of all calls that lasted less than their launches), ``gpu_dur_ns`` (sum over works
        and calls), ``cpu_dur_ns`` (sum over calls).
    Units: ns.
    Order: by calls, then by time on the GPU, most first.
    ``compat="hta"``: ``get_frequent_cuda_kernel_sequences`` of HolisticTraceAnalysis: its columns, in
        microseconds, without the last of several profiler steps.
    Raises: InvalidArgumentError: there is no such ``compat``.
    """
    mode = check_compat(compat)
    roots = _roots(trace, operator)
    if mode is not None and trace.steps["step"].drop_nulls().n_unique() > 1:
        roots = roots.filter(pl.col("start_ns") < trace.steps["host_start_ns"].max())
    work = _launched_inside(trace, roots)
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
    calls = per_call.join(roots.select("root", "op", "cpu_dur_ns"), on="root", how="inner")
    # Lists are compared as text: their elements cannot hold a line break.
    key = pl.col("kernels").list.join("\n")
    table = (
        calls.group_by("op", key.alias("_key"))
        .agg(
            pl.col("kernels").first(),
            pl.len().cast(pl.Int64).alias("calls"),
            pl.col("works").first(),
            pl.col("short", "gpu_dur_ns", "cpu_dur_ns").sum(),
        )
        .sort("calls", "gpu_dur_ns", "op", "_key", descending=[True, True, False, False])
    )
    return table.drop("_key") if mode is None else _as_hta(table)


def _as_hta(table: pl.DataFrame) -> pl.DataFrame:
    return table.select(
        pl.concat_str("op", pl.col("kernels").list.join("|"), separator="|").alias("pattern"),
        pl.col("calls").alias("count"),
        (pl.col("gpu_dur_ns") / 1000).alias("GPU kernel duration (us)"),
        (pl.col("cpu_dur_ns") / 1000).alias("CPU op duration (us)"),
    ).sort("count", "pattern", descending=[True, False])


def _roots(trace: "Trace", operator: str) -> pl.DataFrame:
    """The outermost matching calls of each thread: ``root``, ``op``, ``track``, ``start_ns``, ``end_ns``."""
    steps = trace.steps.select(pl.col("row").drop_nulls())["row"]
    ops = trace.ops.select("row", "name", "track", "start_ns", dur_ns=pl.col("dur_ns").fill_null(0)).filter(
        ~pl.col("row").is_in(steps.implode())
    )
    names = ops.select("name").unique().drop_nulls().with_columns(op=pl.col("name").cast(pl.String))
    names = names.filter(pl.col("op").str.contains(operator, literal=True))
    found = ops.join(names, on="name", how="inner").with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    found = found.sort("track", "start_ns", "end_ns", descending=[False, False, True])
    before = pl.col("end_ns").cum_max().shift(1).over("track")
    outermost = (pl.col("start_ns") >= before).fill_null(value=True)
    return found.filter(outermost).select(
        "op", "track", "start_ns", "end_ns", root="row", cpu_dur_ns="dur_ns"
    )


def _launched_inside(trace: "Trace", roots: pl.DataFrame) -> pl.DataFrame:
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
