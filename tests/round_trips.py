"""Holds a trace that was written and read again against what it was written from."""

from __future__ import annotations

import polars as pl

import kernelscope as ks
from kernelscope.report.perfetto.added_events import CATEGORY

_ROWS = ("row", "parent_row", "launch_row", "op_row", "range_row", "forward_row", "module_row", "arrow_row")
# What a file says of its own bytes, and not of its events.
_ABOUT_THE_FILE = ("diagnostics",)


def comparable(trace: ks.Trace) -> dict[str, pl.DataFrame]:
    """The tables without what may differ.

    Rows are counted without those that were dropped; tracks go by their process and thread, for an added
    event can be on a new one; added events are left out; the order of extra arguments means nothing.
    """
    numbered = [
        frame["row"] for name, frame in trace.tables.items() if "row" in frame.columns and name != "steps"
    ]
    order = pl.concat(numbered).unique().sort()
    places = pl.DataFrame({"_row": order, "_place": pl.int_range(order.len(), dtype=pl.UInt32, eager=True)})
    text = pl.col(pl.Categorical).cast(pl.String)
    ids = [pl.coalesce(pl.col(f"{kind}id").cast(pl.String), f"{kind}id_text").fill_null("?") for kind in "pt"]
    tracks = trace.threads.with_columns(text).select("track", _track=pl.concat_str(ids, separator="/"))
    drawn = trace.spans.filter(pl.col("category").cast(pl.String) == CATEGORY)["row"].implode()
    tables: dict[str, pl.DataFrame] = {}
    for name, frame in trace.tables.items():
        if name in _ABOUT_THE_FILE:
            continue
        frame = frame.with_columns(text)
        if "category" in frame.columns and name in ("flows", "counters", "spans"):
            frame = frame.filter(pl.col("category").ne_missing(CATEGORY))
        if name == "extra_args":
            frame = frame.filter((pl.col("value") != f'"{CATEGORY}"') & ~pl.col("row").is_in(drawn))
        for column in (c for c in _ROWS if c in frame.columns):
            rows = frame.select(_row=column).join(places, on="_row", how="left", maintain_order="left")
            frame = frame.with_columns(rows["_place"].alias(column))
        for column in (c for c in ("track", "caller_track") if c in frame.columns):
            of_track = tracks.rename({"track": column})
            frame = frame.join(of_track, on=column, how="left", maintain_order="left")
            frame = frame.drop(column).rename({"_track": column})
        if name == "extra_args":
            frame = frame.sort("row", "key", "value")
        if name == "threads":
            frame = frame.sort("track")
        tables[name] = frame
    return tables


def differences(before: ks.Trace, after: ks.Trace) -> list[str]:
    """The tables in which ``after`` differs from what it was written from, and how."""
    found: list[str] = []
    ours, theirs = comparable(before), comparable(after)
    for name, frame in ours.items():
        other = theirs[name]
        if name in ("threads", "metadata"):
            # Arrows, curves and what overlaps may need a row that no recorded event is on.
            other = other.filter(pl.col("track").is_in(ours["threads"]["track"].implode()))
        if frame.equals(other):
            continue
        if frame.height != other.height:
            found.append(f"{name}: {frame.height} rows became {other.height}")
            continue
        wrong = [c for c in frame.columns if not frame[c].equals(other[c])]
        for column in wrong:
            pairs = zip(frame[column].to_list(), other[column].to_list())
            first = next((pair for pair in pairs if pair[0] != pair[1]), None)
            found.append(f"{name}.{column}: {first}")
    return found
