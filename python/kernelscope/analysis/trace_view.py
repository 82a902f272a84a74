"""What a screen can show of a trace: its streams and threads, per pixel instead of per event."""

import io
from typing import TYPE_CHECKING

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.grouping import as_text
from kernelscope.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelscope.trace import Trace

KINDS = ("stream", "thread", "python")
"""Kinds of tracks, in the order in which they are shown."""

_PART_ROWS = 1 << 17
_MOST_PIXELS = 1 << 20
_KEYS = ("track_kind", "device", "stream", "pid", "tid", "_thread")
_TRACKS = ("track", "track_kind", "label", "device", "stream", "pid", "tid")
_MARKS = ("lane", "start_ns", "end_ns", "busy_ns", "busy_share", "events")
_NAMES = ("name", "category", "row", "name_ns", "longest_name", "longest_row", "longest_ns")


class TimelineView:
    """The timeline of a trace, built once and shown in as many views as are wanted.

    Example: ``view = TimelineView(trace); levels = [view.show(pixels=1000 * 4**n) for n in range(4)]``
    """

    def __init__(self, trace: "Trace", *, kinds: "Sequence[str]" = ("stream", "thread")) -> None:
        unknown = [kind for kind in kinds if kind not in KINDS]
        if unknown or not kinds:
            raise InvalidArgumentError(f"kinds= takes some of {', '.join(KINDS)}, not {unknown or 'nothing'}")
        events = pl.concat([frame for kind in kinds for frame in _events(trace, kind)], how="vertical")
        self.tracks = _tracks(events, trace.threads)
        self._events = events.select("name", "category", "row")
        self._index = _traceparse.TimelineIndex()
        keyed = events.join(
            self.tracks.select("track", *_KEYS), on=_KEYS, how="left", nulls_equal=True, maintain_order="left"
        )
        for part in keyed.with_row_index("id").iter_slices(_PART_ROWS):
            buffer = io.BytesIO()
            part.select(
                "track",
                "id",
                "start_ns",
                "end_ns",
                pl.col("name").to_physical().cast(pl.UInt32).fill_null(2**32 - 1),
            ).write_ipc_stream(buffer, compat_level=pl.CompatLevel.oldest())
            self._index.add(buffer.getvalue())
        self._index.build()
        self.start_ns, self.end_ns = _extent(events)

    def show(
        self, *, start_ns: int | None = None, end_ns: int | None = None, pixels: int = 2000
    ) -> pl.DataFrame:
        """What is seen of ``[start_ns, end_ns)``; see :func:`timeline`."""
        start = self.start_ns if start_ns is None else start_ns
        end = self.end_ns if end_ns is None else end_ns
        if not start < end or not 0 < pixels <= _MOST_PIXELS:
            raise InvalidArgumentError(
                f"a view needs an end behind its start and 1 to {_MOST_PIXELS:,} pixels,"
                f" not [{start}, {end}) on {pixels}"
            )
        marks = pl.DataFrame(self._index.show(start, end, pixels))
        names, longest = self._events[marks["dominant"]], self._events[marks["longest"]]
        marks = marks.with_columns(
            names.get_columns(),
            longest_name=longest["name"],
            longest_row=longest["row"],
            name_ns="dominant_ns",
            busy_share=(pl.col("busy_ns") / (pl.col("end_ns") - pl.col("start_ns"))).fill_nan(None),
        )
        tracks = self.tracks.drop("_thread")
        return as_text(
            marks.join(tracks, on="track", how="left", maintain_order="left").select(
                *_TRACKS, *_MARKS, *_NAMES
            )
        )


def timeline(
    trace: "Trace",
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
    pixels: int = 2000,
    kinds: "Sequence[str]" = ("stream", "thread"),
) -> pl.DataFrame:
    """What a screen of ``pixels`` pixels can show of ``[start_ns, end_ns)``, the whole trace if not said.

    A track is a GPU stream, or a thread with its operators, annotations, NVTX ranges and API calls; with
    ``python`` among ``kinds`` also the Python frames of a thread. The events of a track lie in lanes as in
    a call stack, so no two of a lane overlap, and lanes are the same in every view. An event at least a
    pixel wide is a row of its own, with its own start and end even where they lie outside the view. All
    narrower events of a lane in one pixel are one row. So a lane has at most about two rows per pixel,
    however large the trace is; :class:`kernelscope.analysis.trace_view.TimelineView` answers several views
    of one trace without sorting its events anew.

    Columns: ``track`` (number, in the order to show), ``track_kind`` (stream, thread or python), ``label``,
        ``device``, ``stream``, ``pid``, ``tid``; ``lane`` (events around it), ``start_ns``, ``end_ns``,
        ``busy_ns``, ``busy_share`` (of the time between the two; null where that is none), ``events`` (that
        start here); of the name that takes most of the time ``name``, ``category`` (kernel, memcpy, memset,
        graph, communication; operator, annotation, range, launch; python), ``row`` (of its longest event)
        and ``name_ns``; ``longest_name``, ``longest_row`` and ``longest_ns`` (whole duration) of the longest
        event.
    Units: ns on the trace's clock.
    Order: by track, lane and start.
    Raises: InvalidArgumentError: the range is empty, ``pixels`` is not 1 to 1,048,576, or a kind is unknown.

    Example: ``timeline(trace, start_ns=step_start, end_ns=step_end, pixels=1600)``
    """
    return TimelineView(trace, kinds=kinds).show(start_ns=start_ns, end_ns=end_ns, pixels=pixels)


def _events(trace: "Trace", kind: str) -> list[pl.DataFrame]:
    """Events of one kind of tracks: keys of the track, name, category, row, start and end."""
    if kind == "stream":
        category = (
            pl.when(pl.col("is_communication"))
            .then(pl.lit("communication"))
            .otherwise(pl.col("kind").cast(pl.String))
        )
        return [_selected(trace.gpu_ops, kind, category, pl.lit(None, pl.UInt32))]
    thread = pl.col("track")
    if kind == "python":
        return [_selected(trace.python, kind, pl.lit("python"), thread)]
    annotation = pl.col("category").cast(pl.String) == "user_annotation"
    op = pl.when(annotation).then(pl.lit("annotation")).otherwise(pl.lit("operator"))
    ranges = trace.ranges.filter(pl.col("kind") == "push_pop")
    return [
        _selected(trace.ops, kind, op, thread),
        _selected(ranges, kind, pl.lit("range"), thread),
        _selected(trace.launches, kind, pl.lit("launch"), thread),
    ]


def _selected(frame: pl.DataFrame, kind: str, category: pl.Expr, thread: pl.Expr) -> pl.DataFrame:
    place = [
        pl.col(name).cast(pl.Int64) if name in frame.columns else pl.lit(None, pl.Int64).alias(name)
        for name in ("device", "stream", "pid", "tid")
    ]
    return frame.select(
        *place,
        "name",
        "row",
        "start_ns",
        track_kind=pl.lit(kind, pl.Enum(KINDS)),
        _thread=thread,
        category=category.cast(pl.Categorical),
        end_ns=pl.col("start_ns") + pl.col("dur_ns").fill_null(0).clip(lower_bound=0),
    )


def _tracks(events: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """The tracks in the order to show: streams by device, then threads by what happens on them first."""
    first = events.group_by(_KEYS).agg(pl.col("start_ns").min().alias("_first"))
    ordered = first.sort("track_kind", "device", "stream", "_first", "_thread", "pid", nulls_last=True)
    named = threads.select(
        _thread="track", _name=pl.col("thread_name").cast(pl.String), _text=pl.col("tid_text").cast(pl.String)
    )
    number = pl.format("thread {}", pl.coalesce(pl.col("tid").cast(pl.String), "_text", pl.lit("?")))
    stream = pl.format(
        "GPU {} stream {}",
        pl.col("device").cast(pl.String).fill_null("?"),
        pl.col("stream").cast(pl.String).fill_null("?"),
    )
    return (
        ordered.join(named, on="_thread", how="left", maintain_order="left")
        .with_columns(label=pl.when(track_kind="stream").then(stream).otherwise(pl.coalesce("_name", number)))
        .drop("_first", "_name", "_text")
        .with_row_index("track")
    )


def _extent(events: pl.DataFrame) -> tuple[int, int]:
    """First start and last end; one ns where there is nothing, so that a view can be asked for."""
    start, end = events["start_ns"].min(), events["end_ns"].max()
    if not isinstance(start, int) or not isinstance(end, int):
        return 0, 1
    return start, max(end, start + 1)
