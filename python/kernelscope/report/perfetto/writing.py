"""Writes a trace as Chrome JSON for ui.perfetto.dev."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import polars as pl

from kernelscope import _traceparse
from kernelscope.report.files import filled_file
from kernelscope.report.json_document import dump
from kernelscope.report.perfetto.added_events import added_events
from kernelscope.report.perfetto.chrome_events import event_tables
from kernelscope.report.perfetto.further_tracks import further_tracks, move
from kernelscope.trace import Trace

_PART_ROWS = 50_000
# Fields of an event that stand in no column of a table, and are no arguments.
_FIELDS = ("id", "id2", "bind_id", "tts", "tdur", "cname")


def write_perfetto(trace: Trace, out: Path) -> None:
    """Writes every event of ``trace`` to the file ``out``, with additional arrows and curves.

    Events that overlap others on their track without nesting are moved to an additional track.

    Events keep their order and arguments, including arguments without a column. Repaired events are valid,
    dropped events are missing. Added events have the category ``kernelscope``; see docs/convert.md. Memory
    use is that of one part of the trace, independent of its size, and of the graph of dependencies.

    Raises: OSError: the file cannot be written.
    """
    with filled_file(out) as path:
        writer = _traceparse.JsonEventWriter(path, dump(dict(trace.meta.properties)))
        extras = _extras(trace)
        moved = further_tracks(trace)
        for first, end, frames in _parts(trace):
            own, elsewhere = (
                of.filter(pl.col("row").is_between(first, end, closed="left")) for of in (extras, moved)
            )
            writer.write([move(events, elsewhere) for events in frames], own)
        for added in added_events(trace, moved):
            for part in added.iter_slices(_PART_ROWS) if added.height else ():
                rows = pl.int_range(part.height, dtype=pl.UInt32, eager=True)
                writer.write([part.with_columns(row=rows)], extras.clear())
        writer.finish()


def _parts(trace: Trace) -> Iterator[tuple[int, int, list[pl.DataFrame]]]:
    """Parts of the trace by row: the first row, the row behind the last, and the events of each table."""
    tables = event_tables(trace)
    behind = 1 + max((cast("int", frame["row"][-1]) for frame, _ in tables), default=-1)
    for first in range(0, behind, _PART_ROWS):
        end = min(first + _PART_ROWS, behind)
        frames: list[pl.DataFrame] = []
        for frame, events in tables:
            start, stop = (frame["row"].search_sorted(row) for row in (first, end))
            if stop > start:
                frames.append(events(frame.slice(start, stop - start)))
        yield first, end, frames


def _extras(trace: Trace) -> pl.DataFrame:
    """Arguments of no column; some were fields of the event itself."""
    spans = trace.spans.filter(pl.col("kind").cast(pl.String) != "X")["row"]
    key = pl.col("key").cast(pl.String)
    is_field = key.is_in(_FIELDS) & pl.col("row").is_in(spans.implode())
    # Those of counters stand with their values.
    counted = trace.counters.select("row", key="counter")
    rest = trace.extra_args.join(counted, on=["row", "key"], how="anti", maintain_order="left")
    return rest.select("row", key, pl.col("value").cast(pl.String), is_field=is_field).sort(
        "row", maintain_order=True
    )
