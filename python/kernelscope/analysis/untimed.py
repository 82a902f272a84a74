"""Events without a timestamp: their number, and the moment from which timestamps are missing."""

from typing import NamedTuple, cast

import polars as pl

from kernelscope.memo import per_trace
from kernelscope.trace import Trace

_SHARE = 0.05
"""Share of events without a timestamp above which idle time and launches are unreliable."""
_CLEAN = 0.9
"""Minimum share of events with a timestamp before the moment from which timestamps are missing."""
_NOUNS = {
    "operator": "operator",
    "annotation": "annotation",
    "call": "API call",
    "frame": "Python frame",
    "memory": "memory event",
}
_GPU = "GPU operation"
_TABLES = {
    "ops": ("operator", "annotation"),
    "launches": ("call",),
    "python": ("frame",),
    "memory": ("memory",),
}
"""Kinds of events in each table."""


class Untimed(NamedTuple):
    """The events without a timestamp.

    ``share`` is their share of all operators, API calls, GPU operations, Python frames and memory events that
    were read, ``counts`` their number by kind. ``since_ns`` is the time from the first event to the moment
    from which timestamps are missing; null if missing timestamps are spread over the trace.
    """

    share: float
    counts: dict[str, int]
    since_ns: int | None


@per_trace
def many_untimed(trace: Trace) -> Untimed | None:
    """Returns the events without a timestamp if they are more than 5 % of all events, else null."""
    untimed = _by_table(trace)
    missing = sum(frame.height for frame in untimed.values())
    total = missing + sum(trace.tables[table].height for table in untimed)
    if missing <= _SHARE * total:
        return None
    kinds = dict(trace.untimed_events.group_by("kind").len().iter_rows())
    counts = {noun: int(kinds.get(kind, 0)) for kind, noun in _NOUNS.items()}
    counts[_GPU] = trace.untimed_gpu_ops.height
    counts = {noun: count for noun, count in counts.items() if count}
    extent = trace.extent()
    first = extent[0] if extent is not None else 0
    moments = [_last_moment(trace.tables[table], frame) for table, frame in untimed.items() if frame.height]
    known = [max(0, moment - first) for moment in moments if moment is not None]
    since = min(known) if len(known) == len(moments) else None
    return Untimed(missing / total, counts, since)


def _by_table(trace: Trace) -> dict[str, pl.DataFrame]:
    """The events without a timestamp by the table that they would be in."""
    kind = pl.col("kind").cast(pl.String)
    found = {table: trace.untimed_events.filter(kind.is_in(kinds)) for table, kinds in _TABLES.items()}
    return {**found, "gpu_ops": trace.untimed_gpu_ops}


def _last_moment(timed: pl.DataFrame, untimed: pl.DataFrame) -> int | None:
    """The start of the last event before timestamps stop, in the order of the source; null if they go on.

    The place is the one that leaves the fewest events on the wrong side.
    """
    parts = (timed.select("row", "start_ns"), untimed.select("row", start_ns=pl.lit(None, pl.Int64)))
    events = pl.concat(parts).sort("row")
    has_time = events["start_ns"].is_not_null()
    # How many more events are right if one that has a time lies before the place.
    gain = (has_time.cast(pl.Int64) * 2 - 1).cum_sum()
    place = cast(int, gain.arg_max()) + 1 if cast(int, gain.max()) > 0 else 0
    before, after = has_time.head(place), ~has_time.slice(place)
    if any(part.len() and cast(float, part.mean()) < _CLEAN for part in (before, after)):
        return None
    return cast("int | None", events["start_ns"].head(place).max()) or 0
