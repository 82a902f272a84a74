"""Trees of nested intervals, computed over whole columns.

Rust does the computation in one or two passes over the required columns.
"""

from collections.abc import Sequence
from copy import copy
from typing import Literal

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.grouping import Classes, codes, positions, taken

# PyTorch's device types: CPU, MKL-DNN, IDEEP; CUDA, HIP, XPU, PrivateUse1.
HOST_TYPES = (0, 2, 5)
DEVICE_TYPES = (1, 6, 12, 20)


class CallTree:
    """Calls with sums over each call alone and including nested calls.

    Integer columns are assigned to the calls after merging, and stay in Rust until requested: for a million
    calls, copying a column takes longer than summing it.

    Columns: ``calls`` needs ``row`` and ``parent_row`` (null for a root). A parent that is not in ``calls``
        counts as none.
    Raises: InvalidArgumentError: rows are each other's ancestors.
    """

    def __init__(self, calls: pl.DataFrame) -> None:
        self._rows = calls["row"]
        links = pl.col("row", "parent_row").cast(pl.UInt32)
        self._tree = _traceparse.CallTree(calls.select(links))

    def merge_repeats(self, names: pl.Series) -> None:
        """Counts a call that is the only one inside a call of the same name as that call from now on.

        Wrappers that call an operator of the same name would count each call twice. The outermost call
        represents the whole chain.

        Source: torch/autograd/profiler_util.py, EventList._remove_dup_nodes.
        """
        self._tree.merge_repeats(codes(names).cast(pl.UInt32).alias("name").to_frame())

    def copy_structure(self) -> "CallTree":
        """Returns another tree of the same calls with the current merges but without columns."""
        tree = copy(self)
        tree._tree = self._tree.copy_structure()  # noqa: SLF001 - it is one of these
        return tree

    def kept(self) -> pl.Series:
        """Returns the row that each call is counted as: its own if it is not merged, null for none."""
        return taken(self._tree.kept(), "kept")

    def is_kept(self) -> pl.Series:
        """Returns which calls are not merged into others."""
        return self.kept().eq_missing(self._rows)

    def parents(self) -> pl.Series:
        """Returns the row of the parent of each call that is not merged, or null."""
        return taken(self._tree.parents(), "parent_row")

    def keep_marked(self, marked: pl.Series) -> None:
        """Counts each unmarked call as its nearest marked ancestor from now on."""
        self._tree.keep_marked(marked.alias("marked").to_frame())

    def retain_classes(self, classes: Classes, marked: pl.Series) -> None:
        """Counts each call of an unmarked class as its nearest ancestor of a marked class from now on."""
        self._tree.keep_marked(marked.alias("marked").to_frame(), classes.of.alias("class").to_frame())

    def put(self, values: pl.DataFrame) -> None:
        """Assigns values to the calls row by row. Null becomes 0. Merged calls have 0."""
        self._tree.put(values)

    def put_by_class(self, classes: Classes, *names: str) -> None:
        """Assigns to each call the values of its class in these columns.

        Null becomes 0. Merged calls have 0.
        """
        self._tree.put_by_class(classes.of.alias("class").to_frame(), classes.keys.select(names))

    def put_memory(self, calls: pl.DataFrame, memory: pl.DataFrame, place: Literal["cpu", "device"]) -> None:
        """Assigns to each call the bytes allocated minus freed while it ran, and while it but no child ran.

        Both ends are included, as are other threads. Merged calls have 0. Afterwards the tree has
        ``cpu_memory_bytes`` and ``cpu_self_memory_bytes``, or the columns of ``device``.

        Columns: ``calls``, the calls of the tree, needs ``start_ns`` and ``dur_ns`` (null is 0); ``memory``
            needs ``start_ns``, ``bytes`` and ``device_type``.
        Source: torch/autograd/profiler_util.py, MemRecordsAcc.
        """
        moments = memory.select("start_ns", "bytes", "device_type")
        types = HOST_TYPES if place == "cpu" else DEVICE_TYPES
        column = f"{place}_memory_bytes"
        self._tree.put_records(calls.select("start_ns", "dur_ns"), moments, types, column)
        self.subtract_children(column, into=f"{place}_self_memory_bytes")

    def add(self, values: pl.DataFrame) -> None:
        """Adds each other column to the call in ``call`` (null for none)."""
        self._tree.add(values)

    def add_by_class(
        self, values: pl.DataFrame, classes: Classes, *, counts: Sequence[str], sums: Sequence[str]
    ) -> None:
        """Adds values to calls, determined by the classes of these rows.

        The call in ``call`` (null for none) gets the value of the class in each of ``counts``. For each of
        ``sums`` in which its class is marked, it gets the ``value`` of the row. Null is 0. Both are columns
        of the keys.
        """
        of = classes.of.alias("class").to_frame()
        keys = classes.keys.select(*counts, *sums)
        self._tree.add_by_class(values.select("call", "value"), of, keys, list(counts), list(sums))

    def put_own_time(self, calls: pl.DataFrame, *, into: str, others: pl.DataFrame | None = None) -> None:
        """Assigns to ``into`` the duration of each call, excluding nested calls and nested ``others``.

        Each moment of a thread counts for the call that started last, so partially overlapping calls share no
        time. The time of a merged call counts for the call that represents it.

        Columns: ``calls``, the calls of the tree, and ``others`` need ``row``, ``track``, ``start_ns`` and
            ``dur_ns`` (null is 0).
        """
        columns = ("row", "track", "start_ns", "dur_ns")
        beside = calls.clear() if others is None else others
        self._tree.put_own_time(calls.select(columns), beside.select(columns), into)

    def subtract_children(self, column: str, *, into: str) -> None:
        """Assigns to ``into`` the value of ``column`` minus its sum over the direct children."""
        self._tree.subtract_children(column, into)

    def with_inner(self, column: str, *, into: str) -> None:
        """Assigns to ``into`` the value of ``column`` including all descendants."""
        self._tree.with_inner(column, into)

    def mark_changes(self, column: str, *, into: str) -> None:
        """Assigns to ``into`` 0 if the parent has the same ``column``, otherwise 1."""
        self._tree.mark_changes(column, into)

    def columns(self, names: Sequence[str]) -> pl.DataFrame:
        """Returns the current columns of the calls that are not merged."""
        return pl.DataFrame(self._tree.columns(list(names)))

    def columns_where(self, column: str, names: Sequence[str]) -> pl.DataFrame:
        """Returns the current columns of the unmerged calls with a nonzero ``column``.

        Columns: ``names``, and ``at``, the index of the call.
        """
        found = self._tree.columns_where(column, list(names))
        # One by one: columns of one table keep one another alive.
        return pl.DataFrame([pl.DataFrame(part).to_series() for part in found.columns()])

    def class_sums(self, classes: Classes, names: Sequence[str]) -> pl.DataFrame:
        """Returns sums of columns over the calls of each class.

        Columns: the keys of ``classes``, ``calls`` (not counting merged ones) and ``names``. Every class has
            a row, even if all of its calls are merged into others.
        """
        of = classes.of.alias("class").to_frame()
        sums = pl.DataFrame(self._tree.class_sums(of, classes.keys.height, list(names)))
        return pl.concat([classes.keys, sums], how="horizontal")

    def paths(self, names: pl.Series, *, most_levels: int) -> tuple[pl.Series, pl.DataFrame]:
        """Returns the path of names that leads to each call, and all distinct paths.

        A call deeper than ``most_levels`` has the path of its parent.

        Columns: the paths have ``parent`` (the enclosing path; null for none) and ``name``. A path is
            identified by its position, and each follows its parent.
        """
        of, paths = self._tree.paths(names.alias("name").to_frame(), most_levels)
        return taken(of, "path"), pl.DataFrame(paths)


def nest(frame: pl.DataFrame, *, by: str = "track") -> pl.DataFrame:
    """Nests intervals within each group like a call stack.

    Intervals are processed in order of (start, longest first). An interval that does not enclose the next one
    is closed, and the innermost open interval is the parent. Two partially overlapping intervals are
    therefore siblings.

    Columns: ``frame`` needs ``by`` (an integer), ``start_ns``, ``dur_ns`` and ``row``; adds ``parent_row``
        (``row`` of the parent, null for none). A null duration counts as 0.
    Source: torch/autograd/profiler_util.py, EventList._populate_cpu_children.
    """
    slices = frame.select("start_ns", "dur_ns", pl.col("row").cast(pl.UInt32), group=by)
    return frame.with_columns(taken(_traceparse.nest_slices(slices), "parent_row"))


def marked_parents(calls: pl.DataFrame, marked: pl.Series) -> pl.Series:
    """Returns the row of the nearest marked ancestor of each marked call, in order; null for none.

    Columns: ``calls`` needs ``row`` and ``parent_row`` (null for a root).
    """
    links = calls.select("row", "parent_row", marked.alias("marked"))
    return taken(_traceparse.marked_parents(links), "parent_row")


def subtree_sums(frame: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Adds to each row the values of all its descendants.

    Columns: ``frame`` needs ``row``, ``parent_row`` (null for roots) and ``columns``. The result has the rows
        of ``frame`` in order, with ``columns`` summed. A parent that is not in ``frame`` counts as none.
    Raises: InvalidArgumentError: rows are each other's ancestors.
    """
    tree = CallTree(frame)
    tree.put(frame.select(columns))
    for column in columns:
        tree.with_inner(column, into=column)
    sums = tree.columns(columns).cast({column: frame.schema[column] for column in columns})
    return frame.with_columns(sums)


def collapse_repeats(frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the call that each call is counted as if the only child of a call has the same name.

    Columns: ``frame`` needs ``row``, ``parent_row`` and ``name``. The result has ``row`` and ``kept``
        (``row`` of the representing call; its own if it is not merged).
    Source: see :meth:`CallTree.merge_repeats`.
    """
    tree = CallTree(frame)
    tree.merge_repeats(frame["name"])
    return frame.select("row", tree.kept())


def innermost(points: pl.DataFrame, slices: pl.DataFrame, *, counts: pl.Series | None = None) -> pl.Series:
    """Returns ``row`` of the innermost slice of the same thread around each point; null for none.

    A slice includes its start but not its end. A point with a duration must end no later than the slice.
    ``counts`` selects the slices that count; others are ignored.

    Columns: ``points`` needs ``track``, ``start_ns`` and ``dur_ns`` (0 for an instant); ``slices`` needs
        ``row`` in ascending order, ``parent_row`` (of the enclosing slice), ``track``, ``start_ns`` and
        ``dur_ns``.
    """
    if points.is_empty() or slices.is_empty():
        return pl.repeat(None, points.height, dtype=pl.UInt32, eager=True).alias("row")
    looked_at = slices.select("row", "parent_row", "track", "start_ns", "dur_ns")
    if counts is not None:
        looked_at = looked_at.with_columns(counts.alias("counts"))
    found = _traceparse.innermost_slices(points.select("track", "start_ns", "dur_ns"), looked_at)
    if found is not None:
        return taken(found, "row")
    return _nested(points, slices if counts is None else slices.filter(counts))


def _nested(points: pl.DataFrame, slices: pl.DataFrame) -> pl.Series:
    """The same by nesting everything, which takes longer, but not the longer the deeper slices nest."""
    largest = slices["row"].max()
    first = (largest if isinstance(largest, int) else 0) + 1
    columns = ("row", "track", "start_ns", "dur_ns")
    numbered = points.with_columns(row=pl.int_range(first, first + pl.len(), dtype=pl.UInt32))
    around = nest(pl.concat([slices.select(columns), numbered.select(columns)]))
    tree = CallTree(around)
    # Another point may lie between.
    tree.keep_marked(around["row"] < first)
    return tree.kept().gather(positions(around["row"], numbered["row"])).alias("row")
