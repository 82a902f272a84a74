"""How long operators take to get their first kernel launched, and how long that waits for the GPU."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.compat.hta.events import Compat, check_compat, hta_events

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_LAUNCH = r"cuda.*LaunchKernel|cuLaunchKernel|^runFunction"


def op_launch_delay(trace: "Trace", *, compat: str | None = None) -> pl.DataFrame:
    """Operators by the kernels they launched themselves, and how long the first of these took to come.

    Columns: ``op`` (name), ``kernels`` (list of the names of the works, in order of their launches),
        ``calls``, ``launch_delay_ns`` (mean time from the start of the operator to the start of its first
        launch), ``queue_delay_ns`` (mean time from there to the start of its first work).
    Units: ns.
    Order: by calls, most first.
    ``compat="hta"``, ``"hta-unrounded"``: ``get_aten_op_kernels_and_delay`` of HolisticTraceAnalysis, in
        microseconds: only operators of ATen, and only launches of kernels that it knows.
    Raises: InvalidArgumentError: there is no such ``compat``.
    """
    mode = check_compat(compat)
    if mode is not None:
        return _as_hta(trace, mode)
    calls = trace.launches.select(launch_row="row", op_row="op_row", launch_ns="start_ns")
    ops = trace.ops.select(op_row="row", op=pl.col("name").cast(pl.String), op_ns="start_ns")
    work = trace.gpu_ops.select("row", "launch_row", pl.col("name").cast(pl.String), "start_ns")
    pairs = work.join(calls, on="launch_row", how="inner").join(ops, on="op_row", how="inner")
    return _by_sequence(pairs).select(
        "op",
        "kernels",
        "calls",
        launch_delay_ns="launch_delay",
        queue_delay_ns="queue_delay",
    )


def _by_sequence(pairs: pl.DataFrame) -> pl.DataFrame:
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


def _as_hta(trace: "Trace", compat: Compat) -> pl.DataFrame:
    events = hta_events(trace, compat)
    calls = events.filter(pl.col("name").str.contains(_LAUNCH) & ~pl.col("on_gpu") & (pl.col("partner") > 0))
    calls = calls.select("row", "partner", launch_ns="ts").join(_aten_op(trace), on="row", how="inner")
    ops = events.select(op_row="row", op="name", op_ns="ts")
    work = events.select("row", "name", start_ns="ts")
    pairs = calls.drop("row").join(work, left_on="partner", right_on="row", how="inner")
    pairs = pairs.rename({"partner": "row"}).join(ops, on="op_row", how="inner")
    return _by_sequence(pairs).select(
        pl.col("op").alias("aten_op_name"),
        pl.col("kernels").list.join(" -> ").alias("kernel_sequence"),
        pl.col("calls").alias("occurrence_count"),
        pl.col("launch_delay").round(3).alias("avg_aten_op_launch_delay"),
        pl.col("queue_delay").round(3).alias("avg_runtime_delay"),
    )


def _aten_op(trace: "Trace") -> pl.DataFrame:
    """The innermost operator of ATen around each call: ``row``, ``op_row``."""
    ops = trace.ops.select("row", "parent_row", aten=pl.col("name").cast(pl.String).str.starts_with("aten::"))
    ops = ops.sort("row")
    # Position 0 is nobody, whom nobody is around.
    rows = pl.concat([pl.Series("row", [None], dtype=pl.UInt32), ops["row"]])
    aten = pl.concat([pl.Series([True]), ops["aten"].fill_null(value=False)])
    place = ops.select("row").with_row_index("place", offset=1)
    own = pl.int_range(ops.height + 1, dtype=pl.UInt32, eager=True)
    parents = ops.select(row="parent_row").join(place, on="row", how="left", maintain_order="left")["place"]
    parents = pl.concat([pl.Series([0], dtype=pl.UInt32), parents.cast(pl.UInt32).fill_null(0)])
    found = pl.select(pl.when(aten).then(own).otherwise(parents)).to_series()
    # Every round doubles the distance that is followed.
    while not aten.gather(found).all():
        found = found.gather(found)
    around = pl.DataFrame({"op": rows, "op_row": rows.gather(found)}).drop_nulls("op")
    calls = trace.launches.select("row", op="op_row")
    return calls.join(around, on="op", how="inner").drop_nulls("op_row").select("row", "op_row")
