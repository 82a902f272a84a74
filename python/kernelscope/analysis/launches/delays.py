"""How long operators take to get their first kernel launched, and how long that waits for the GPU."""

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def op_launch_delay(trace: "Trace") -> pl.DataFrame:
    """Operators by the kernels they launched themselves, and how long the first of these took to come.

    Columns: ``op`` (name), ``kernels`` (list of the names of the works, in order of their launches),
        ``calls``, ``launch_delay_ns`` (mean time from the start of the operator to the start of its first
        launch), ``queue_delay_ns`` (mean time from there to the start of its first work).
    Units: ns.
    Order: by calls, most first.
    """
    calls = trace.launches.select(launch_row="row", op_row="op_row", launch_ns="start_ns")
    ops = trace.ops.select(op_row="row", op=pl.col("name").cast(pl.String), op_ns="start_ns")
    work = trace.gpu_ops.select("row", "launch_row", pl.col("name").cast(pl.String), "start_ns")
    pairs = work.join(calls, on="launch_row", how="inner").join(ops, on="op_row", how="inner")
    return delays_by_sequence(pairs).select(
        "op",
        "kernels",
        "calls",
        launch_delay_ns="launch_delay",
        queue_delay_ns="queue_delay",
    )


def delays_by_sequence(pairs: pl.DataFrame) -> pl.DataFrame:
    """Returns the operators by the sequence of the kernels they launched, and their delays.

    Columns: of ``pairs``, needs ``op_row``, ``op``, ``op_ns``, ``launch_ns``, ``name``, ``start_ns``.
    """
    per_op = (
        pairs.sort("launch_ns", "start_ns", "row")
        .group_by("op_row", maintain_order=True)
        .agg(
            pl.col("op").first(),
            pl.col("name").fill_null("").alias("kernels"),
            launch_delay=(pl.col("launch_ns") - pl.col("op_ns")).first(),
            queue_delay=(pl.col("start_ns") - pl.col("launch_ns")).first(),
        )
    )
    # Lists are compared as text: their elements cannot hold a line break.
    key = pl.col("kernels").list.join("\n").alias("_key")
    return (
        per_op.group_by("op", key)
        .agg(
            pl.col("kernels").first(),
            pl.len().cast(pl.Int64).alias("calls"),
            pl.col("launch_delay", "queue_delay").mean(),
        )
        .sort("calls", "op", "_key", descending=[True, False, False])
    )
