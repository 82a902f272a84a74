"""Corresponding operators and kernels of two traces."""

from typing import NamedTuple

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.training.backward import in_backward
from kernelscope.trace import Trace

# What identifies an event in each round, the most specific first.
_LEVELS = (
    ("thread", "depth", "class", "name", "input_dims"),
    ("thread", "depth", "class", "name"),
    ("thread", "name"),
)
BY_PLACE = len(_LEVELS)
"""Level of pairs that were found only by their position between other pairs."""


class Pairs(NamedTuple):
    """Corresponding rows of two traces.

    ``ops``: ``before`` and ``after`` (rows of operators) and ``level`` (how they were found). ``work``:
    ``before`` and ``after`` (rows of GPU operations).
    """

    ops: pl.DataFrame
    work: pl.DataFrame


def operators(trace: Trace) -> pl.DataFrame:
    """Returns operators and annotations without steps, or NVTX ranges if the trace has them.

    Columns: ``row``, ``name``, ``track``, ``depth``, ``step``, ``start_ns``, ``dur_ns``, ``module``,
        ``phase``, ``input_dims``.
    """
    columns = ("row", "name", "track", "depth", "step", "start_ns", "dur_ns", "activity")
    if trace.ranges.height:
        phases = trace.ops.select("row", "module", "phase")
        ranges = trace.ranges.filter(pl.col("kind") == "push_pop").select(*columns, input_dims="sizes")
        frame = ranges.join(phases, on="row", how="left", maintain_order="left")
        frame = frame.select(*columns, "module", "phase", "input_dims")
    else:
        frame = trace.ops.select(*columns, "module", "phase", "input_dims")
    return frame.filter(pl.col("activity").ne_missing("step")).drop("activity")


def corresponding(before: Trace, after: Trace, steps: pl.DataFrame) -> Pairs:
    """Returns the corresponding operators and GPU operations of the paired ``steps``.

    The operators of a step are aligned thread by thread, in order of their starts, by common subsequences:
    first operators with equal depth, class of module, name and shapes, then, between these, operators that
    agree in fewer properties. If the same number remains on both sides of a gap, they correspond by position.
    The GPU operations of corresponding operators are paired by name and occurrence, and the rest by order.
    """
    sides = [
        _sequence(operators(trace), steps.select("pair", step=f"step_{side}"))
        for trace, side in ((before, "before"), (after, "after"))
    ]
    a, b = _tokens(*sides)
    levels = [f"level{place}" for place in range(len(_LEVELS))]
    found = pl.DataFrame(_traceparse.align_events(_leveled(a, levels), _leveled(b, levels), levels))
    if found.is_empty():
        ops = pl.DataFrame(schema={"before": pl.UInt32, "after": pl.UInt32, "level": pl.UInt8})
    else:
        rows = {"before": a["row"].gather(found["a"]), "after": b["row"].gather(found["b"])}
        ops = pl.DataFrame(rows | {"level": found["level"]})
    return Pairs(ops, _work_pairs(before, after, ops))


def _sequence(ops: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The operators of the paired steps in order, with the rank of their thread by how much runs on it."""
    # Threads are identified by what they do: a backward thread of one may be the busiest of the other.
    gradients = in_backward().fill_null(value=False).mean()
    ranked = (
        ops.group_by("track")
        .agg(pl.len(), pl.col("start_ns", "row").min(), backward=gradients > 0.5)
        .sort("backward", "len", "start_ns", "row", descending=[False, True, False, False])
    )
    place = pl.int_range(pl.len(), dtype=pl.UInt32).over("backward") * 2 + pl.col("backward").cast(pl.UInt32)
    threads = ranked.select("track", thread=place)
    numbered = steps["step"].null_count() == 0
    placed = (
        ops.join(steps, on="step", how="inner") if numbered else ops.with_columns(pair=pl.lit(0, pl.UInt32))
    )
    return (
        placed.join(threads, on="track", how="left")
        .join(_classes(ops), on="module", how="left", nulls_equal=True)
        .sort("pair", "thread", "start_ns", -pl.col("dur_ns").fill_null(0), "row")
    )


def _classes(ops: pl.DataFrame) -> pl.DataFrame:
    """The class of each instance of a module, whose number means nothing."""
    instance = pl.col("module").cast(pl.String)
    return (
        ops.select("module")
        .unique()
        .with_columns(instance.str.replace(r"_\d+$", "").cast(pl.Categorical).alias("class"))
    )


def _tokens(a: pl.DataFrame, b: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Adds a token for each level; what agrees has the same, on both sides."""
    both = pl.concat([a, b])
    for place, keys in enumerate(_LEVELS):
        codes = both.select(keys).unique().with_row_index(f"level{place}")
        both = both.join(codes, on=list(keys), how="left", nulls_equal=True, maintain_order="left")
    return both.head(a.height), both.tail(b.height)


def _leveled(events: pl.DataFrame, levels: list[str]) -> pl.DataFrame:
    return events.select(
        pl.col("pair").cast(pl.UInt32).alias("group"), *(pl.col(c).cast(pl.UInt32) for c in levels)
    )


def _work_pairs(before: Trace, after: Trace, ops: pl.DataFrame) -> pl.DataFrame:
    sides = [_numbered(trace) for trace in (before, after)]
    a = sides[0].join(ops.select(op_row="before", _op="after"), on="op_row", how="inner")
    b = sides[1].rename({"op_row": "_op", "row": "after"})
    same = a.join(b, on=["_op", "kind", "name", "occurrence"], how="inner", nulls_equal=True)
    same = same.select(before="row", after="after")
    left = [a.join(same, left_on="row", right_on="before", how="anti"), b.join(same, on="after", how="anti")]
    key = ["_op", "kind"]
    left = [side.with_columns(_place=pl.col("start_ns").rank("ordinal").over(key)) for side in left]
    rest = left[0].join(left[1], on=[*key, "_place"], how="inner").select(before="row", after="after")
    return pl.concat([same, rest])


def _numbered(trace: Trace) -> pl.DataFrame:
    """GPU work with its operator, and its place among the work of its name there."""
    op = pl.coalesce("op_row", "range_row")
    work = trace.gpu_ops.select("row", "start_ns", "kind", "name", op_row=op)
    occurrence = pl.int_range(pl.len(), dtype=pl.UInt32).over("op_row", "kind", "name")
    return work.drop_nulls("op_row").sort("start_ns", "row").with_columns(occurrence=occurrence)
