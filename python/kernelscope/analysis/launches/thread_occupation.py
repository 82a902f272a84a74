"""What a host thread was busy with while something else waited for it."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope import _traceparse

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def longest_on_thread(trace: "Trace", waits: pl.DataFrame) -> pl.DataFrame:
    """The outermost operator or annotation, steps left out, that occupied a thread longest during each wait.

    A trace without operators has NVTX ranges instead.

    Columns: of ``waits``, needs ``row``, ``track`` (of the thread), ``start_ns``, ``until_ns``; gives
        ``row``, ``host_row``, ``host``, ``host_ns``, for the waits in which there was one.
    Units: ns.
    """
    asked = waits[["track", "start_ns", "until_ns"]]
    spans = trace.ops
    if spans.is_empty():
        spans = trace.ranges.filter(pl.col("kind") == "push_pop")
    times = spans[["row", "parent_row", "track", "start_ns", "dur_ns"]]
    found = pl.DataFrame(_traceparse.longest_spans(asked, times, trace.steps[["row"]]))
    found = waits[["row"]].hstack(found).filter(pl.col("at").is_not_null())
    host = spans[["row", "name"]][found["at"]]
    return found.select(
        "row", host_row=host["row"], host=host["name"].cast(pl.String), host_ns=pl.col("shared_ns")
    )
