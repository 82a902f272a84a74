"""Trees of nested intervals, computed over whole columns.

The work is done in Rust, which takes a pass or two over the few columns that are needed.
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
    """Calls with sums of each by itself and with the calls inside it.

    Columns of whole numbers are put to the calls, which are merged before, and stay in Rust until they are
    asked for: for a million calls to hand a column over takes longer than to sum it.

    Columns: of ``calls``, needs ``row`` and ``parent_row`` (null for a root); a parent that is not in
        ``calls`` counts as none.
    Raises: InvalidArgumentError: rows are each other's ancestors.
    """

    def __init__(self, calls: pl.DataFrame) -> None:
        self._rows = calls["row"]
        links = pl.col("row", "parent_row").cast(pl.UInt32)
        self._tree = _traceparse.CallTree(calls.select(links))

    def merge_repeats(self, names: pl.Series) -> None:
        """Counts a call that is the only one inside a call of its own name as that one, from now on.

        Wrappers that call an op of their own name would count each call twice. The outermost stands for the
        whole chain.

        Source: torch/autograd/profiler_util.py, EventList._remove_dup_nodes.
        """
        self._tree.merge_repeats(codes(names).cast(pl.UInt32).alias("name").to_frame())

    def copy_structure(self) -> "CallTree":
        """Another tree of the same calls, merged as they are by now, that has no columns."""
        tree = copy(self)
        tree._tree = self._tree.copy_structure()  # noqa: SLF001 - it is one of these
        return tree

    def kept(self) -> pl.Series:
        """The row of the call that each call is counted as: its own if it is not merged, null for none."""
        return taken(self._tree.kept(), "kept")

    def is_kept(self) -> pl.Series:
        """Which calls are not merged into others."""
        return self.kept().eq_missing(self._rows)

    def parents(self) -> pl.Series:
        """The row of the call around each call that is not merged; null for none."""
        return taken(self._tree.parents(), "parent_row")

    def keep_marked(self, marked: pl.Series) -> None:
        """Counts a call that is not marked as the nearest marked one around it, from now on."""
        self._tree.keep_marked(marked.alias("marked").to_frame())

    def retain_classes(self, classes: Classes, marked: pl.Series) -> None:
        """Counts a call whose class is not marked as the nearest around it whose class is, from now on."""
        self._tree.keep_marked(marked.alias("marked").to_frame(), classes.of.alias("class").to_frame())

    def put(self, values: pl.DataFrame) -> None:
        """Gives each call its values, row by row as the calls stand; null is 0. Merged calls have 0."""
        self._tree.put(values)

    def put_by_class(self, classes: Classes, *names: str) -> None:
        """Gives each call what its class has in these columns of its keys; null is 0. Merged calls have 0."""
        self._tree.put_by_class(classes.of.alias("class").to_frame(), classes.keys.select(names))

    def put_memory(self, calls: pl.DataFrame, memory: pl.DataFrame, place: Literal["cpu", "device"]) -> None:
        """Puts to calls the bytes allocated less those freed while each ran, and while it but no child ran.

        Both ends are included, and so is what other threads did. Merged calls have 0. The tree has
        ``cpu_memory_bytes`` and ``cpu_self_memory_bytes`` afterwards, or those of ``device``.

        Columns: of ``calls``, which are those of the tree, needs ``start_ns`` and ``dur_ns`` (null is 0); of
            ``memory``, ``start_ns``, ``bytes`` and ``device_type``.
        Source: torch/autograd/profiler_util.py, MemRecordsAcc.
        """
        moments = memory.select("start_ns", "bytes", "device_type")
        types = HOST_TYPES if place == "cpu" else DEVICE_TYPES
        column = f"{place}_memory_bytes"
        self._tree.put_records(calls.select("start_ns", "dur_ns"), moments, types, column)
        self.subtract_children(column, into=f"{place}_self_memory_bytes")

    def add(self, values: pl.DataFrame) -> None:
        """Adds to calls what belongs to them: to the one in ``call`` (null for none) each other column."""
        self._tree.add(values)

    def add_by_class(
        self, values: pl.DataFrame, classes: Classes, *, counts: Sequence[str], sums: Sequence[str]
    ) -> None:
        """Adds to calls what belongs to them, as the classes of these rows tell.

        The call in ``call`` (null for none) gets what the class has in each of ``counts``, and the ``value``
        of the row for each of ``sums`` in which its class is marked; null is 0. Both are columns of the keys.
        """
        of = classes.of.alias("class").to_frame()
        keys = classes.keys.select(*counts, *sums)
        self._tree.add_by_class(values.select("call", "value"), of, keys, list(counts), list(sums))

    def put_own_time(self, calls: pl.DataFrame, *, into: str, others: pl.DataFrame | None = None) -> None:
        """Puts to ``into`` how long each call itself runs, and not a call or one of ``others`` inside.

        Each moment of a thread counts for the call that started last, so that calls which overlap in part
        share no time. What a merged call runs counts for the one that stands for it.

        Columns: of ``calls``, which are those of the tree, and of ``others``, needs ``row``, ``track``,
            ``start_ns`` and ``dur_ns`` (null is 0).
        """
        columns = ("row", "track", "start_ns", "dur_ns")
        beside = calls.clear() if others is None else others
        self._tree.put_own_time(calls.select(columns), beside.select(columns), into)

    def subtract_children(self, column: str, *, into: str) -> None:
        """Puts to ``into`` what ``column`` is less that of the calls directly inside."""
        self._tree.subtract_children(column, into)

    def with_inner(self, column: str, *, into: str) -> None:
        """Puts to ``into`` what ``column`` is with that of all calls inside."""
        self._tree.with_inner(column, into)

    def mark_changes(self, column: str, *, into: str) -> None:
        """Puts to ``into`` 1 where no call is around or has the same ``column``, and else 0."""
        self._tree.mark_changes(column, into)

    def columns(self, names: Sequence[str]) -> pl.DataFrame:
        """Columns as they are by now, for the calls that are not merged."""
        return pl.DataFrame(self._tree.columns(list(names)))

    def columns_where(self, column: str, names: Sequence[str]) -> pl.DataFrame:
        """Columns as they are by now, for the calls that are not merged and where ``column`` is not 0.

        Columns: ``names``, and ``at``, where the call stands among the calls.
        """
        found = self._tree.columns_where(column, list(names))
        # One by one: columns of one table keep one another alive.
        return pl.DataFrame([pl.DataFrame(part).to_series() for part in found.columns()])

    def class_sums(self, classes: Classes, names: Sequence[str]) -> pl.DataFrame:
        """Sums of columns over the calls of each class.

        Columns: the keys of ``classes``, ``calls`` (not counting merged ones) and ``names``, and a row for
            each class, though its calls may all be merged into others.
        """
        of = classes.of.alias("class").to_frame()
        sums = pl.DataFrame(self._tree.class_sums(of, classes.keys.height, list(names)))
        return pl.concat([classes.keys, sums], how="horizontal")

    def paths(self, names: pl.Series, *, most_levels: int) -> tuple[pl.Series, pl.DataFrame]:
        """The path of names that leads to each call, and the paths.

        A call deeper than ``most_levels`` has the path of the call around it.

        Columns: of the paths, ``parent`` (the path around it; null for none) and ``name``. A path is known
            by its position among them, and none comes before the one around it.
        """
        of, paths = self._tree.paths(names.alias("name").to_frame(), most_levels)
        return taken(of, "path"), pl.DataFrame(paths)


def nest(frame: pl.DataFrame, *, by: str = "track") -> pl.DataFrame:
    """Nests intervals within each group as a call stack does.

    In order of (start, longest first), an interval that does not enclose the next one is closed;
    what remains open and innermost is the parent. Two intervals that overlap only in part are
    therefore siblings.

    Columns: of ``frame``, needs ``by`` (a whole number), ``start_ns``, ``dur_ns`` and ``row``; adds
        ``parent_row`` (``row`` of the parent, null for none). A null duration counts as 0.
    Source: torch/autograd/profiler_util.py, EventList._populate_cpu_children.
    """
    slices = frame.select("start_ns", "dur_ns", pl.col("row").cast(pl.UInt32), group=by)
    return frame.with_columns(taken(_traceparse.nest_slices(slices), "parent_row"))


def marked_parents(calls: pl.DataFrame, marked: pl.Series) -> pl.Series:
    """The row of the nearest marked call around each marked call, in order; null for none.

    Columns: of ``calls``, needs ``row`` and ``parent_row`` (null for a root).
    """
    links = calls.select("row", "parent_row", marked.alias("marked"))
    return taken(_traceparse.marked_parents(links), "parent_row")


def subtree_sums(frame: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Adds to each row the values of all its descendants.

    Columns: of ``frame``, needs ``row``, ``parent_row`` (null for roots) and ``columns``; the
        result has the rows of ``frame`` in order, and ``columns`` summed. A parent that is not in
        ``frame`` counts as none.
    Raises: InvalidArgumentError: rows are each other's ancestors.
    """
    tree = CallTree(frame)
    tree.put(frame.select(columns))
    for column in columns:
        tree.with_inner(column, into=column)
    sums = tree.columns(columns).cast({column: frame.schema[column] for column in columns})
    return frame.with_columns(sums)


def collapse_repeats(frame: pl.DataFrame) -> pl.DataFrame:
    """Which call each call is counted as, where a call's only child has its own name.

    Columns: of ``frame``, needs ``row``, ``parent_row`` and ``name``; gives ``row`` and ``kept``
        (``row`` of the call that stands for this one; itself if it is not merged).
    Source: see :meth:`CallTree.merge_repeats`.
    """
    tree = CallTree(frame)
    tree.merge_repeats(frame["name"])
    return frame.select("row", tree.kept())


def innermost(points: pl.DataFrame, slices: pl.DataFrame, *, counts: pl.Series | None = None) -> pl.Series:
    """``row`` of the innermost slice of the same thread around each point; null for none.

    A slice lasts from its start until just before its end. What lasts itself must end no later than the
    slice. ``counts`` says which slices count; others are looked through.

    Columns: of ``points``, needs ``track``, ``start_ns`` and ``dur_ns`` (0 for a moment); of ``slices``,
        ``row``, which ascends, ``parent_row`` (of the slice around it), ``track``, ``start_ns`` and
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
