"""Writes a trace, or several ranks on one clock, as Chrome JSON for ui.perfetto.dev."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.ranks.cluster import Source, one_trace
from kernelscope.report.files import filled_file
from kernelscope.report.json_document import dump
from kernelscope.report.perfetto.added_events import added_events
from kernelscope.report.perfetto.chrome_events import event_tables
from kernelscope.report.perfetto.further_tracks import further_tracks, move
from kernelscope.report.perfetto.merging import Merging
from kernelscope.report.perfetto.path_events import path_events
from kernelscope.trace import Trace

_PART_ROWS = 50_000
# Fields of an event that stand in no column of a table, and are no arguments.
_FIELDS = ("id", "id2", "bind_id", "tts", "tdur", "cname")


def write_perfetto(source: Source, out: Path) -> None:
    """Writes every event of ``source`` to the file ``out``, with additional arrows and curves.

    Events that overlap others on their track without nesting are moved to an additional track.

    Events keep their order and arguments, including arguments without a column. Repaired events are valid,
    dropped events are missing. Added events have the category ``kernelscope``; see docs/convert.md. Memory
    use is that of one part of the trace, independent of its size, and of the graph of dependencies.

    Several ranks follow one another, on the clock of :func:`kernelscope.analysis.clock_offsets`. Of a lake,
    one rank is in memory at a time.

    Raises: OSError: the file cannot be written. InvalidArgumentError: two traces are of one rank, or there is
        none.
    """
    trace = one_trace(source)
    with filled_file(out) as path:
        if trace is None:
            merging = Merging.of(source)
            writer = _traceparse.JsonEventWriter(path, dump(merging.header()))
            for place, rank in merging.ranks():
                moved = further_tracks(rank)
                for frames, extras in _events(rank, moved):
                    writer.write([place.events(frame) for frame in frames], place.extras(extras))
                merging.note(place, rank, moved)
            added = merging.path_events()
        else:
            writer = _traceparse.JsonEventWriter(path, dump(dict(trace.meta.properties)))
            moved = further_tracks(trace)
            for frames, extras in _events(trace, moved):
                writer.write(frames, extras)
            added = path_events(trace, moved)
        for part in _parts_of(added):
            writer.write([part], _NO_EXTRAS)
        writer.finish()


def _events(trace: Trace, moved: pl.DataFrame) -> Iterator[tuple[list[pl.DataFrame], pl.DataFrame]]:
    """Parts of the events of a trace, then added ones, each with its arguments of no column."""
    extras = _extras(trace)
    for first, end, frames in _parts(trace):
        own, elsewhere = (
            of.filter(pl.col("row").is_between(first, end, closed="left")) for of in (extras, moved)
        )
        yield [move(events, elsewhere) for events in frames], own
    for part in _parts_of(added_events(trace, moved)):
        yield [part], _NO_EXTRAS


def _parts_of(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Parts of added events, whose rows count from 0."""
    for frame in frames:
        for part in frame.iter_slices(_PART_ROWS) if frame.height else ():
            yield part.with_columns(row=pl.int_range(part.height, dtype=pl.UInt32, eager=True))


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


_NO_EXTRAS = pl.DataFrame(
    schema={"row": pl.UInt32, "key": pl.String, "value": pl.String, "is_field": pl.Boolean}
)
