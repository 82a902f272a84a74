"""Attribution of step time: the kernel, copy, call or operator that owns each moment."""

from collections.abc import Sequence

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.grouping import positions
from kernelscope.analysis.ranges.beside_operators import ranges_beside_operators
from kernelscope.analysis.steps.breakdown import CATEGORIES
from kernelscope.trace import Trace

PRIORITIES = {name.removesuffix("_ns"): place for place, name in enumerate(CATEGORIES)}
"""Parts of a step in order of priority, the highest first."""

_MAX_ROUNDS = 33


def claims(trace: Trace) -> pl.DataFrame:
    """Returns all activities with a duration, as counted in :func:`kernelscope.analysis.step_breakdown`.

    Columns: ``row``, ``name``, ``start_ns``, ``end_ns``, ``category`` (kernel, memcpy, memset, communication,
        runtime, dataloader, cpu_exec), ``priority``, ``kind`` (work, launch, op) and ``op_row`` (the
        operator, or range of a trace without operators, that it belongs to; for an operator, itself).
    """
    work = trace.gpu_ops.select(
        "row",
        "name",
        "start_ns",
        "dur_ns",
        category=pl.when(pl.col("kind").cast(pl.String).is_in(["memcpy", "memset"]))
        .then(pl.col("kind").cast(pl.String))
        .when(pl.col("is_communication"))
        .then(pl.lit("communication"))
        .otherwise(pl.lit("kernel")),
        kind=pl.lit("work"),
        op_row=pl.coalesce("op_row", "range_row"),
    )
    launches = trace.launches.select(
        "row",
        "name",
        "start_ns",
        "dur_ns",
        category=pl.lit("runtime"),
        kind=pl.lit("launch"),
        op_row=pl.coalesce("op_row", "range_row"),
    )
    ranges = ranges_beside_operators(trace).filter(pl.col("kind") != "mark")
    parts = [work, launches, _host(trace.ops), _host(ranges)]
    return (
        pl.concat(parts)
        .with_columns(
            end_ns=pl.col("start_ns") + pl.col("dur_ns").fill_null(0),
            priority=pl.col("category").replace_strict(PRIORITIES, return_dtype=pl.UInt8),
        )
        .drop("dur_ns")
    )


def _host(slices: pl.DataFrame) -> pl.DataFrame:
    """Operators or ranges; one inside another counts as that, if that comes first."""
    last = len(PRIORITIES)
    own = slices.select(
        "row",
        "parent_row",
        "name",
        "start_ns",
        "dur_ns",
        priority=pl.when(pl.col("activity") == "step")
        .then(last)
        .when(pl.col("activity") == "data_loading")
        .then(PRIORITIES["dataloader"])
        .otherwise(PRIORITIES["cpu_exec"])
        .cast(pl.UInt8),
    )
    # Counted from 1, so that 0 is none.
    around = (positions(own["row"], own["parent_row"]) + 1).fill_null(0)
    jump = pl.concat([pl.Series([0], dtype=pl.UInt32), around])
    first = pl.concat([pl.Series([last], dtype=pl.UInt8), own["priority"]])
    for _ in range(_MAX_ROUNDS):
        if not (jump > 0).any():
            break
        first = pl.select(pl.min_horizontal(first, first.gather(jump))).to_series()
        jump = jump.gather(jump)
    names = {place: name for name, place in PRIORITIES.items()}
    return (
        own.with_columns(_first=first[1:])
        .filter(pl.col("priority") != last)
        .select(
            "row",
            "name",
            "start_ns",
            "dur_ns",
            category=pl.col("_first").replace_strict(names, return_dtype=pl.String),
            kind=pl.lit("op"),
            op_row="row",
        )
    )


def attribute_time(claimed: pl.DataFrame, windows: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """Returns the owner of each moment of the windows ``(start, end)``, which are in order and disjoint.

    Among the activities at a moment, one of the first category owns it, and among these the one that began
    last.

    Columns: ``window``, ``row`` (null if nothing runs), ``ns`` (owned), ``calls`` (1 if it starts there).
    """
    needed = claimed.select(pl.col("row").alias("id"), "start_ns", "end_ns", "priority")
    owned = pl.DataFrame(_traceparse.attribute_windows(needed, list(windows)))
    schema = {"window": pl.UInt32, "id": pl.UInt32, "ns": pl.Int64}
    owned = pl.DataFrame(
        {c: owned[c] if c in owned.columns else pl.Series([None] * owned.height) for c in schema},
        schema=schema,
    )
    starts = pl.Series([start for start, _ in windows], dtype=pl.Int64)
    ends = pl.Series([end for _, end in windows], dtype=pl.Int64)
    at = starts.search_sorted(claimed["start_ns"], side="right").cast(pl.Int64) - 1
    inside = (at >= 0) & (claimed["start_ns"] < ends.gather(at.clip(lower_bound=0)))
    begun = claimed.select("row", window=at).filter(inside)
    return pl.concat(
        [
            owned.select("window", row="id", ns="ns", calls=pl.lit(0, pl.Int64)),
            begun.select(
                pl.col("window").cast(pl.UInt32), "row", ns=pl.lit(0, pl.Int64), calls=pl.lit(1, pl.Int64)
            ),
        ]
    )
