"""Critical paths of windows of a replay."""

from collections.abc import Sequence

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.dependencies.graph import Dependencies

# What the edges are bound by that are not an event itself.
_OF_EDGES = {
    "stream": "queue",
    "queue": "queue",
    "launch": "launch",
    "synchronisation": "synchronisation",
    "event": "synchronisation",
    "thread": "host",
    "unknown": "unknown",
}


def segments(
    graph: Dependencies,
    replay: _traceparse.Replay,
    windows: Sequence[tuple[int, int]],
    to: Sequence[int | None] = (),
) -> pl.DataFrame:
    """Returns the critical paths of windows of a replay; see :func:`critical_path`.

    A path leads to the start of its event in ``to`` (a position), or else to the last event of the window.

    Columns: as there, ``window`` (index) and ``event`` (position in ``graph.events``).
    """
    found = pl.DataFrame(replay.critical_paths(windows, to))
    events = graph.events.select("row", "table", "kind", "class")[found["event"]]
    edges = pl.Series(graph.graph.edge_names(), dtype=pl.String)[found["edge"]].alias("edge")
    # A thread outside of any event runs something that was not recorded.
    bound = pl.coalesce(pl.col("edge").replace_strict(_OF_EDGES, default=None), "class", pl.lit("host"))
    path = found.with_columns(edges).hstack(events).with_columns(bound.alias("bound_by"))
    columns = ("row", "table", "kind", "start_ns", "dur_ns", "edge", "bound_by", "window", "event")
    return path.select(columns).cast({pl.Enum: pl.String})
