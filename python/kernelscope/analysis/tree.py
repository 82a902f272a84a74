"""Trees of nested intervals, computed over whole columns.

The work is done in Rust, which takes a pass or two over the few columns that are needed.
"""

from collections.abc import Sequence

import polars as pl

from kernelscope import _traceparse


class CallTree:
    """Calls, and what each comes to by itself and with the calls inside it.

    Columns of whole numbers are put to the calls and stay in Rust until they are summed up: for a million
    calls to hand a column over takes longer than to sum it.

    Columns: of ``calls``, needs ``row`` and ``parent_row`` (null for a root); a parent that is not in
        ``calls`` counts as none.
    Raises: InvalidArgumentError: rows are each other's ancestors.
    """

    def __init__(self, calls: pl.DataFrame) -> None:
        self._rows = calls["row"]
        links = pl.col("row", "parent_row").cast(pl.UInt32)
        self._tree = _traceparse.CallTree(_stream(calls.select(links)))

    def merge_repeats(self, names: pl.Series) -> None:
        """Counts a call that is the only one inside a call of its own name as that one, from now on.

        Wrappers that call an op of their own name would count each call twice. The outermost stands for the
        whole chain.

        Source: torch/autograd/profiler_util.py, EventList._remove_dup_nodes.
        """
        self._tree.merge_repeats(_stream(codes(names).alias("name").to_frame()))

    def kept(self) -> pl.Series:
        """The row of the call that each call is counted as; its own if it is not merged."""
        return _taken(self._tree.kept(), "kept")

    def is_kept(self) -> pl.Series:
        """Which calls are not merged into others."""
        return self.kept() == self._rows

    def parents(self) -> pl.Series:
        """The row of the call around each call that is not merged; null for none."""
        return _taken(self._tree.parents(), "parent_row")

    def nearest(self, marked: pl.Series) -> pl.Series:
        """The row of the nearest marked call on the way up from each, itself included; null for none."""
        return _taken(self._tree.nearest(_stream(marked.alias("marked").to_frame())), "row")

    def put(self, values: pl.DataFrame) -> None:
        """Gives each call its values, row by row as the calls stand; null is 0. Merged calls have 0."""
        self._tree.put(_stream(values))

    def add(self, values: pl.DataFrame) -> None:
        """Adds to calls what belongs to them: to the one in ``call`` (null for none) each other column."""
        self._tree.add(_stream(values))

    def less_children(self, column: str, *, into: str) -> None:
        """Puts to ``into`` what ``column`` is less that of the calls directly inside."""
        self._tree.less_children(column, into)

    def with_inner(self, column: str, *, into: str) -> None:
        """Puts to ``into`` what ``column`` is with that of all calls inside."""
        self._tree.with_inner(column, into)

    def columns(self, names: Sequence[str]) -> pl.DataFrame:
        """Columns as they are by now, for the calls that are not merged."""
        return pl.DataFrame(self._tree.columns(list(names)))

    def class_sums(self, keys: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
        """Sums of columns over the calls that agree in all of ``keys``, which has a row for each call.

        Columns: those of ``keys``, ``calls`` (not counting merged ones) and ``names``.
        """
        first = self._tree.divide(_stream(keys.select(codes(column) for column in keys)))
        sums = pl.DataFrame(self._tree.class_sums(list(names)))
        classes = keys.select(pl.all().gather(_taken(first, "first")))
        return pl.concat([classes, sums], how="horizontal").filter(pl.col("calls") > 0)


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
    return frame.with_columns(_taken(_traceparse.nest_slices(_stream(slices)), "parent_row"))


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
    return frame.with_columns(
        tree.columns(columns).cast({column: frame.schema[column] for column in columns})
    )


def collapse_repeats(frame: pl.DataFrame) -> pl.DataFrame:
    """Which call each call is counted as, where a call's only child has its own name.

    Columns: of ``frame``, needs ``row``, ``parent_row`` and ``name``; gives ``row`` and ``kept``
        (``row`` of the call that stands for this one; itself if it is not merged).
    Source: see :meth:`CallTree.merge_repeats`.
    """
    tree = CallTree(frame)
    tree.merge_repeats(frame["name"])
    return frame.select("row", tree.kept())


def codes(values: pl.Series) -> pl.Series:
    """Whole numbers that are equal where ``values`` are, and null where these are."""
    if values.dtype == pl.String:
        values = values.cast(pl.Categorical)
    if values.dtype == pl.Categorical:
        return values.to_physical().cast(pl.UInt32)
    if values.dtype.is_integer() and values.dtype != pl.UInt64:
        return values.cast(pl.Int64) if values.dtype != pl.UInt32 else values
    return values.rank("dense").cast(pl.UInt32)


def _stream(frame: pl.DataFrame) -> bytes:
    return frame.write_ipc_stream(None, compat_level=pl.CompatLevel.newest()).getvalue()


def _taken(table: _traceparse.ArrowTable, column: str) -> pl.Series:
    return pl.DataFrame(table)[column]
