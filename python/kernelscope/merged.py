"""Traces of several ranks in one file: one trace with a column ``rank``, and the trace of each rank."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from kernelscope.schema import TABLES
from kernelscope.trace import Trace

RENAMED = {"collectives": {"rank": "group_rank"}}
"""Columns that are renamed because the column of ranks uses their name, here and in a lake."""


def merge(ranks: Sequence[Trace]) -> Trace:
    """Merges several ``ranks`` into one trace, with them as its ``parts``.

    Its tables are the concatenated tables of the ranks, each with a column ``rank`` first, in the order of
    the file. Track numbers continue from rank to rank. ``diagnostics`` sums the counts of all ranks, and has
    no such column.
    """
    first = ranks[0].meta
    meta = replace(first, rank=None, **{
        name: sum(getattr(one.meta, name) for one in ranks) for name in ("seen", "kept", "dropped")
    })  # fmt: skip
    tables: dict[str, Any] = {name: _joined(name, ranks) for name in ranks[0].tables if name != "diagnostics"}
    found = pl.concat([one.diagnostics for one in ranks])
    what = [name for name in ("code", "severity", "source", "message") if name in found.columns]
    found = found.group_by(what, maintain_order=True).agg(pl.col("count").sum(), pl.exclude("count").first())
    return Trace(meta, **tables, diagnostics=found.select(ranks[0].diagnostics.columns), parts=tuple(ranks))


def _joined(name: str, ranks: Sequence[Trace]) -> pl.DataFrame:
    """A table of all ranks."""
    frames: list[pl.DataFrame] = []
    of_tracks = TABLES[name].of_role("track")
    tracks = 0
    for one in ranks:
        frame = one.tables[name].rename(RENAMED.get(name, {}))
        frame = frame.with_columns(pl.col(column) + tracks for column in of_tracks)
        frames.append(frame.select(pl.lit(one.meta.rank, pl.Int32()).alias("rank"), pl.all()))
        tracks += one.threads.height
    joined = pl.concat(frames)
    is_of_events = name not in ("steps", "gpu_steps") and "row" in joined.columns
    return joined.sort("row") if is_of_events else joined
