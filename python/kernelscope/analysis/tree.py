"""Trees of nested intervals, computed over whole columns.

Neither function walks rows or recurses: both follow all parent pointers at once and double the
distance in each round, so the number of rounds grows with the logarithm of the depth.
"""

import polars as pl

from kernelscope.errors import InvalidArgumentError

# 2^33 levels are more than rows can be numbered.
_MAX_ROUNDS = 33
# What stands at position 0, which means "none".
_NOBODY = pl.Series([0], dtype=pl.UInt32)


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
        beyond = pl.concat([_NOBODY, parent]).gather(parent)
        parent = pl.select(pl.when(closed).then(beyond).otherwise(parent)).to_series()
    rows = pl.Series([None], dtype=pl.UInt32).append(ordered["row"].cast(pl.UInt32))
    return ordered.with_columns(rows.gather(parent).alias("parent_row")).drop("_end")


def subtree_sums(frame: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Adds to each row the values of all its descendants.

    Columns: of ``frame``, needs ``row``, ``parent_row`` (null for roots) and ``columns``; the
        result has the rows of ``frame`` in order, and ``columns`` summed. A parent that is not in
        ``frame`` counts as none.
    Raises: InvalidArgumentError: rows are each other's ancestors.
    """
    ancestor = pl.concat([_NOBODY, _positions(frame["row"], frame["parent_row"])])
    # Position 0 collects what belongs to nobody.
    totals = frame.select(columns)
    totals = pl.concat([totals.clear(1).fill_null(0), totals])
    for _ in range(_MAX_ROUNDS):
        if not (ancestor > 0).any():
            return frame.with_columns(totals[1:])
        gained = totals.group_by(ancestor.alias("_at")).agg(pl.col(columns).sum())
        at = gained["_at"]
        totals = totals.with_columns(totals[c].scatter(at, totals[c].gather(at) + gained[c]) for c in columns)
        # The ancestor of the ancestor is twice as far away.
        ancestor = ancestor.gather(ancestor)
    raise InvalidArgumentError("the rows are each other's ancestors")


def _positions(rows: pl.Series, wanted: pl.Series) -> pl.Series:
    """Where ``wanted`` stand in ``rows``, counted from 1; 0 for null and for what is not there."""
    order = rows.arg_sort()
    ordered = rows.gather(order)
    at = ordered.search_sorted(wanted.fill_null(0)).clip(upper_bound=max(rows.len() - 1, 0))
    if rows.is_empty():
        return pl.repeat(0, wanted.len(), dtype=pl.UInt32, eager=True)
    found = (ordered.gather(at) == wanted).fill_null(value=False)
    return pl.select(pl.when(found).then(order.gather(at) + 1).otherwise(0).cast(pl.UInt32)).to_series()


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
