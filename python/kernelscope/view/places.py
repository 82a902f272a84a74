"""Location of an event in the timeline."""

from typing import Any, NamedTuple

import polars as pl

from kernelscope.analysis.grouping import ON_TRACKS, gather_events, positions
from kernelscope.errors import NotRecordedError
from kernelscope.report.names import safe, short
from kernelscope.report.parts.window import origin_ns
from kernelscope.trace import Trace
from kernelscope.view.windows import timeline_of

_ROWS = 2**32
SHORT = 60
"""Length of the short form of a name, in characters."""


class Event(NamedTuple):
    """A row of a table, by column."""

    table: str
    values: dict[str, Any]


def event(trace: Trace, row: int) -> Event:
    """Returns the event with the number ``row``.

    Raises: NotRecordedError: there is none.
    """
    for table in ON_TRACKS if 0 <= row < _ROWS else ():
        frame = trace.tables[table]
        at = positions(frame["row"], pl.Series([row], dtype=pl.UInt32))[0]
        if at is not None:
            return Event(table, frame.row(at, named=True))
    raise NotRecordedError(f"the trace has no event {row} on a track of the timeline")


def times(trace: Trace, rows: pl.Series) -> pl.DataFrame:
    """Returns the times of the events with these numbers, null for one without a track.

    Columns: ``row``, ``start_ns`` and ``dur_ns``.
    """
    return gather_events(rows, trace, "start_ns", "dur_ns").insert_column(0, rows.alias("row"))


def place(trace: Trace, values: dict[str, Any]) -> dict[str, Any]:
    """Returns the location of an event.

    Its fields are ``row``, ``name``, ``short``, ``start``, ``length``, ``track`` and ``lane``.

    The last two are null for an event without a track, or too short to be found on it.
    """
    timeline, start = timeline_of(trace), values["start_ns"]
    length = max(values["dur_ns"] or 0, 0)
    # As wide as a pixel, so that it is a mark of its own.
    marks = timeline.show(start_ns=start, end_ns=start + max(length, 1), pixels=1)
    own = marks.filter(row=values["row"])
    where = own.row(0, named=True) if own.height else {"track": None, "lane": None}
    return {
        "row": values["row"],
        "name": safe(values["name"]),
        "short": short(values["name"], SHORT),
        "start": start - origin_ns(trace),
        "length": length,
        "track": where["track"],
        "lane": where["lane"],
    }
