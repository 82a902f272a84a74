"""Finds events of the timeline by name, regardless of their number."""

from typing import Any

import polars as pl

from kernelscope.analysis.grouping import ON_TRACKS
from kernelscope.errors import NotRecordedError
from kernelscope.report.names import safe
from kernelscope.report.parts.window import origin_ns
from kernelscope.trace import Trace
from kernelscope.view.parameters import Parameters
from kernelscope.view.places import event, place

_MOST_NAMES = 30


def search(trace: Trace, asked: Parameters) -> dict[str, Any]:
    """Returns the number of events whose names contain ``text`` (or, with ``exact``, equal it).

    With ``count``, the result has ``at``, the number of the first event that starts at or after the time
    ``from``, and ``names``, the most frequent names with their ``count``.
    """
    found = _hits(trace, asked)
    since = asked.whole("from", 0) + origin_ns(trace)
    names = found.group_by("name").len("count").sort("count", "name", descending=[True, False])
    return {
        "count": found.height,
        "at": int((found["start_ns"] < since).sum()),
        "names": [
            {"name": safe(name), "count": count} for name, count in names.head(_MOST_NAMES).iter_rows()
        ],
        "all_names": names.height,
    }


def hit(trace: Trace, asked: Parameters) -> dict[str, Any]:
    """Returns the place of the event number ``n`` of the matches of ``search``, from 0 in order of time.

    Raises: NotRecordedError: there are fewer events.
    """
    found = _hits(trace, asked)
    number = asked.whole("n")
    if not 0 <= number < found.height:
        raise NotRecordedError(f"{found.height:,} events match; there is no number {number + 1:,}")
    row = found.sort("start_ns", "row")["row"][number]
    return {"n": number, "count": found.height, "place": place(trace, event(trace, row).values)}


def _hits(trace: Trace, asked: Parameters) -> pl.DataFrame:
    """The events that are meant: ``row``, ``start_ns`` and ``name``."""
    text, exact = asked.text("text"), asked.flag("exact")
    parts: list[pl.DataFrame] = []
    for table in ON_TRACKS:
        frame = trace.tables[table]
        if table == "ranges":
            frame = frame.filter(pl.col("kind") == "push_pop")
        # Names are few beside events.
        distinct = frame["name"].unique().drop_nulls()
        names = distinct.cast(pl.String)
        meant = _called(names, text) if exact else _containing(names, text)
        if meant.any():
            wanted = pl.col("name").is_in(distinct.filter(meant).implode())
            parts.append(frame.select("row", "start_ns", pl.col("name")).filter(wanted))
    named = [part.with_columns(pl.col("name").cast(pl.String)) for part in parts]
    nothing = pl.DataFrame(schema={"row": pl.UInt32, "start_ns": pl.Int64, "name": pl.String})
    return pl.concat(named) if named else nothing


def _called(names: pl.Series, text: str) -> pl.Series:
    """Which of the names are ``text``, or are shown as it: a name with what cannot be shown is another."""
    same = names == text
    return same if same.any() else pl.Series([safe(name) == text for name in names], dtype=pl.Boolean)


def _containing(names: pl.Series, text: str) -> pl.Series:
    return names.str.to_lowercase().str.contains(text.lower(), literal=True)
