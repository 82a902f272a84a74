"""Trees of nested intervals, computed over whole columns.

Neither function walks rows or recurses: both follow all parent pointers at once and double the
distance in each round, so the number of rounds grows with the logarithm of the depth.
"""

import polars as pl

from kernelscope.errors import InvalidArgumentError

# 2^33 levels are more than rows can be numbered.
_MAX_ROUNDS = 33


def nest(frame: pl.DataFrame, *, by: str = "track") -> pl.DataFrame:
    """Nests intervals within each group as a call stack does.

    In order of (start, longest first), an interval that does not enclose the next one is closed;
    what remains open and innermost is the parent. Two intervals that overlap only in part are
    therefore siblings.

    Columns: of ``frame``, needs ``by``, ``start_ns``, ``dur_ns`` and ``row``; adds ``parent_row``
        (``row`` of the parent, null for none). A null duration counts as 0.
    Source: torch/autograd/profiler_util.py, EventList._populate_cpu_children.
    """
    end = pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    ordered = frame.with_columns(end.alias("_end")).sort(
        [by, "start_ns", "_end", "row"], descending=[False, False, True, False]
    )
    # Position 0 stands for "no parent" and never closes; row i of the frame has position i + 1.
    never = pl.Series([2**63 - 1], dtype=pl.Int64)
    starts, ends = ordered["start_ns"], never.append(ordered["_end"])
    own_end = ordered["_end"]
    first = (ordered[by] != ordered[by].shift(1)).fill_null(value=True)
    before = pl.int_range(ordered.height, dtype=pl.UInt32, eager=True)
    parent = pl.select(pl.when(first).then(pl.lit(0, pl.UInt32)).otherwise(before)).to_series()
    for _ in range(ordered.height + 1):
        candidate = ends.gather(parent)
        closed = (candidate < own_end) | (starts >= candidate)
        if not closed.any():
            break
        beyond = pl.Series([0], dtype=pl.UInt32).append(parent).gather(parent)
        parent = pl.select(pl.when(closed).then(beyond).otherwise(parent)).to_series()
    rows = pl.Series([None], dtype=pl.UInt32).append(ordered["row"].cast(pl.UInt32))
    return ordered.with_columns(rows.gather(parent).alias("parent_row")).drop("_end")


def subtree_sums(frame: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Adds to each row the values of all its descendants.

    Columns: of ``frame``, needs ``row``, ``parent_row`` (null for roots) and ``columns``; the
        result has the rows of ``frame`` in order, and ``columns`` summed.
    Raises: InvalidArgumentError: rows are each other's ancestors.
    """
    totals = frame.select("row", *columns)
    ancestor = frame.select("row", ancestor="parent_row")
    for _ in range(_MAX_ROUNDS):
        reached = ancestor.filter(pl.col("ancestor").is_not_null())
        if reached.is_empty():
            return frame.with_columns(totals.select(columns))
        gained = (
            reached.join(totals, on="row", how="left")
            .group_by("ancestor")
            .agg(pl.col(c).sum() for c in columns)
        )
        totals = totals.join(
            gained, left_on="row", right_on="ancestor", how="left", suffix="_gained", maintain_order="left"
        ).select("row", *(pl.col(c) + pl.col(f"{c}_gained").fill_null(0) for c in columns))
        # The ancestor of the ancestor is twice as far away.
        further = ancestor.rename({"row": "ancestor", "ancestor": "further"})
        ancestor = reached.join(further, on="ancestor", how="inner").select("row", ancestor="further")
    raise InvalidArgumentError("the rows are each other's ancestors")


def collapse_repeats(frame: pl.DataFrame) -> pl.DataFrame:
    """Which call each call is counted as, where a call's only child has its own name.

    Wrappers that call an op of their own name would count each call twice. The outermost stands
    for the whole chain.

    Columns: of ``frame``, needs ``row``, ``parent_row`` and ``name``; gives ``row`` and ``kept``
        (``row`` of the call that stands for this one; itself if it is not merged).
    Source: torch/autograd/profiler_util.py, EventList._remove_dup_nodes.
    """
    children = frame.group_by(pl.col("parent_row").alias("row")).agg(pl.len().alias("children"))
    parents = frame.select("row", parent_name="name").join(children, on="row", how="inner")
    only_child = parents.filter(children=1).rename({"row": "parent_row"})
    merged = (
        frame.join(only_child, on="parent_row", how="inner")
        .filter(pl.col("name").eq_missing(pl.col("parent_name")))
        .select("row", kept="parent_row")
    )
    for _ in range(_MAX_ROUNDS):
        further = merged.rename({"row": "kept", "kept": "further"})
        followed = merged.join(further, on="kept", how="left")
        if followed["further"].null_count() == followed.height:
            break
        merged = followed.select("row", kept=pl.coalesce("further", "kept"))
    return (
        frame.select("row")
        .join(merged, on="row", how="left", maintain_order="left")
        .with_columns(pl.col("kept").fill_null(pl.col("row")))
    )
