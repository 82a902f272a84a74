"""Writes a trace, or several ranks on one clock, for ui.perfetto.dev."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.ranks.cluster import Source, one_trace
from kernelscope.report.files import filled_file
from kernelscope.report.json_document import dump
from kernelscope.report.perfetto.added_events import added_events
from kernelscope.report.perfetto.chrome_events import event_tables
from kernelscope.report.perfetto.further_tracks import further_tracks, move
from kernelscope.report.perfetto.merging import AS_RECORDED, Merging, Place
from kernelscope.report.perfetto.path_events import path_events
from kernelscope.report.perfetto.track_names import names_of_tracks
from kernelscope.trace import Trace

PROTOBUF = (".pftrace", ".perfetto-trace")
"""How names of files end that are Perfetto's protobuf and not JSON."""

_PART_ROWS = 50_000
# Fields of an event that stand in no column of a table, and are no arguments.
_FIELDS = ("id", "id2", "bind_id", "tts", "tdur", "cname")


def write_perfetto(source: Source, out: Path) -> None:
    """Writes every event of ``source`` to the file ``out``, with additional arrows and curves.

    Events that overlap others on their track without nesting are moved to an additional track.

    Events keep their order and arguments, including arguments without a column. Repaired events are valid,
    dropped events are missing. Added events have the category ``kernelscope``; see docs/convert.md. Parts of
    the trace are in memory one at a time, beside the graph of dependencies.

    With a name that ends in ``.pftrace`` or ``.perfetto-trace``, also before ``.gz``, the file is a protobuf,
    whose events are in the order of their starts. Names and orders of tracks are no events there.

    Several ranks follow one another, on the clock of :func:`kernelscope.analysis.clock_offsets`. Of a lake,
    one rank is in memory at a time.

    Raises: OSError: the file cannot be written. InvalidArgumentError: two traces are of one rank, or there is
        none.
    """
    trace = one_trace(source)
    is_protobuf = out.name.removesuffix(".gz").endswith(PROTOBUF)
    with filled_file(out) as path:

        def begin(header: Mapping[str, Any]) -> _traceparse.TraceEventWriter:
            return _traceparse.TraceEventWriter(path, None if is_protobuf else dump(header))

        # Slices of a protobuf must come in the order of their starts.
        by = "start_ns" if is_protobuf else "row"
        if trace is None:
            merging = Merging.of(source)
            writer = begin(merging.header())
            for place, rank in merging.ranks():
                merging.note(place, rank, _write(writer, rank, by, place))
            added = merging.path_events()
        else:
            writer = begin(dict(trace.meta.properties))
            added = path_events(trace, _write(writer, trace, by, AS_RECORDED))
        for part in _parts_of(added):
            writer.write([part], _NO_EXTRAS)
        writer.finish()


def _write(writer: _traceparse.TraceEventWriter, trace: Trace, by: str, place: Place) -> pl.DataFrame:
    """Writes the events of a trace, then added ones, at a place; gives those that are drawn elsewhere."""
    moved = further_tracks(trace)
    extras = _extras(trace)
    names = names_of_tracks(trace, moved)
    writer.name(place.events(names))
    for is_inside, frames in _parts(trace, by):
        own, elsewhere = (of.filter(is_inside) for of in (extras, moved))
        writer.write([place.events(move(events, elsewhere)) for events in frames], place.extras(own))
    for part in _parts_of(added_events(trace, moved)):
        writer.write([place.events(part)], _NO_EXTRAS)
    return moved


def _parts_of(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Parts of added events, whose rows count from 0."""
    for frame in frames:
        for part in frame.iter_slices(_PART_ROWS) if frame.height else ():
            yield part.with_columns(row=pl.int_range(part.height, dtype=pl.UInt32, eager=True))


def _parts(trace: Trace, by: str) -> Iterator[tuple[pl.Expr, list[pl.DataFrame]]]:
    """Parts of the trace by row or start: which rows are in it, and the events of each table."""
    tables = event_tables(trace)
    if not tables:
        return
    if by == "row":
        keys = [frame["row"] for frame, _ in tables]
        cuts = list(range(0, max(key[-1] for key in keys) + 1, _PART_ROWS))
    else:
        tables = [(frame.sort(by), events) for frame, events in tables]
        keys = [frame[by].fill_null(0) for frame, _ in tables]
        cuts = pl.concat(keys).sort().gather_every(_PART_ROWS).unique(maintain_order=True).to_list()
    for first, end in zip(cuts, [*cuts[1:], None], strict=True):
        frames: list[pl.DataFrame] = []
        rows: list[pl.Series] = []
        for (frame, events), key in zip(tables, keys, strict=True):
            start = key.search_sorted(first)
            stop = key.len() if end is None else key.search_sorted(end)
            if stop > start:
                part = frame.slice(start, stop - start)
                frames.append(events(part))
                rows.append(part["row"])
        if not rows:
            continue
        of_part = pl.concat(rows)
        is_inside = pl.col("row").is_between(of_part.min(), of_part.max())
        yield is_inside if by == "row" else pl.col("row").is_in(of_part.implode()), frames


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
