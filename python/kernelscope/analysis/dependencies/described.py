"""What the events of a graph are: their operators, modules, lines of Python and categories."""

from collections.abc import Sequence

import polars as pl

from kernelscope.analysis.dependencies.graph import Dependencies
from kernelscope.analysis.grouping import gather_rows
from kernelscope.analysis.kernels.categories import work_categories
from kernelscope.analysis.ops.call_stacks import SOURCE
from kernelscope.trace import Trace

COLUMNS = ("name", "kind", "table", "op", "module", "phase", "category", "python")
"""Columns of :func:`described`."""


def described(trace: Trace, graph: Dependencies, columns: Sequence[str]) -> pl.DataFrame:
    """Returns ``columns`` of every event, and ``bound_by``: see :func:`critical_path_table`."""
    events = graph.events
    own = [column for column in columns if column in ("name", "kind", "table")]
    found = events.select(*own, bound_by="class").cast({pl.Enum: pl.String})
    if {"op", "module", "phase"} & set(columns):
        is_operator = (events["table"] == "ops") & (events["kind"] == "operator")
        rows = events["row"].gather(graph.enclosing(is_operator))
        of_ops = gather_rows(rows, trace.ops, "name", "module", "phase").rename({"name": "op"})
        found = found.hstack(of_ops.select(c for c in columns if c in ("op", "module", "phase")))
    if "python" in columns:
        names = trace.python["name"].unique()
        lines = names.filter(names.cast(pl.String).str.contains(SOURCE))
        is_line = events.select((pl.col("table") == "python") & pl.col("name").is_in(lines.implode()))
        frames = graph.enclosing(is_line.to_series())
        found = found.with_columns(events["name"].gather(frames).alias("python"))
    if "category" in columns:
        categories = work_categories(trace).cast(pl.String)
        of_host = pl.repeat(None, events.height - categories.len(), dtype=pl.String, eager=True)
        found = found.with_columns(pl.concat([of_host, categories]).alias("category"))
    return found
