"""Timeline of streams and threads, per pixel instead of per event."""

from collections.abc import Callable, Sequence

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.grouping import as_text
from kernelscope.analysis.ranges.beside_operators import ranges_beside_operators
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

KINDS = ("stream", "thread", "python")
"""Kinds of tracks in display order."""

_MOST_PIXELS = 1 << 20
_TRACKS = ("track", "track_kind", "label", "device", "stream", "pid", "tid")
_MARKS = ("lane", "start_ns", "end_ns", "busy_ns", "busy_share", "events")
_NAMES = ("name", "category", "row", "name_ns", "longest_name", "longest_row", "longest_ns")
_OF_STREAM = ("device", "stream", "pid")
_OF_THREAD = ("track",)
_KEYS = ("track_kind", *_OF_STREAM, "_thread")


class TimelineView:
    """Timeline of a trace, built once for any number of views.

    Example: ``view = TimelineView(trace); levels = [view.show(pixels=1000 * 4**n) for n in range(4)]``
    """

    def __init__(self, trace: Trace, *, kinds: Sequence[str] = ("stream", "thread")) -> None:
        unknown = [kind for kind in kinds if kind not in KINDS]
        if unknown or not kinds:
            raise InvalidArgumentError(f"kinds= takes some of {', '.join(KINDS)}, not {unknown or 'nothing'}")
        sources = [source for kind in kinds for source in _sources(trace, kind)]
        self._sources = [source for source in sources if source.frame.height] or sources
        self._index = _traceparse.TimelineIndex()
        for source in self._sources:
            self._index.add(source.events(), KINDS.index(source.kind), source.keys)
        found = pl.DataFrame(self._index.tracks())
        first = self._gathered(found["event"], lambda source: source.places)
        ordered = _ordered(first.with_columns(_first=found["start_ns"]))
        self.tracks = _tracks(ordered, trace.threads)
        self._keys = ordered.select("track", *_KEYS).with_columns(pl.col("track_kind").cast(pl.String))
        numbers = ordered["_at"].arg_sort()
        extent = self._index.build(numbers.to_list())
        self.start_ns, self.end_ns = (0, 1) if extent is None else (extent[0], max(extent[1], extent[0] + 1))

    def _gathered(self, events: pl.Series, columns: Callable[["_Source"], list[pl.Expr]]) -> pl.DataFrame:
        """Columns of the events with these numbers, which count through the sources."""
        parts: list[pl.DataFrame] = []
        places: list[pl.Series] = []
        first = 0
        for source in self._sources:
            until = first + source.frame.height
            here = ((events >= first) & (events < until)).arg_true()
            rows = source.frame[source.needed][events[here] - first]
            parts.append(rows.select_seq(columns(source)))
            places.append(here)
            first = until
        return pl.concat(parts)[pl.concat(places).arg_sort()]

    def tracks_of(self, events: pl.DataFrame) -> pl.Series:
        """Returns the track of each event, null for one without.

        Columns: ``events`` has ``track_kind``, and ``device``, ``stream`` and ``pid``, or ``track``.
        """
        thread = pl.col("track") if "track" in events.columns else pl.lit(None)
        known = [pl.col(name) if name in events.columns else pl.lit(None).alias(name) for name in _OF_STREAM]
        keys = events.select(
            "track_kind", *(key.cast(pl.Int64) for key in known), _thread=thread.cast(pl.UInt32)
        )
        return keys.join(self._keys, on=_KEYS, how="left", nulls_equal=True, maintain_order="left")["track"]

    def show(
        self,
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
        pixels: int = 2000,
        only: Sequence[int] | None = None,
    ) -> pl.DataFrame:
        """Returns the visible rows of ``[start_ns, end_ns)``, optionally ``only`` of some tracks; see
        :func:`timeline`."""
        numbers = None if only is None else list(only)
        return self._labelled(self._index.show(*self._range(start_ns, end_ns, pixels), pixels, numbers))

    def show_at_most(
        self,
        most: int,
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
        pixels: int = 2000,
        only: Sequence[int] | None = None,
    ) -> pl.DataFrame | None:
        """Like ``show``, but returns None if there are more than ``most`` rows, without building them."""
        numbers = None if only is None else list(only)
        marks = self._index.show(*self._range(start_ns, end_ns, pixels), pixels, numbers, most)
        return None if marks is None else self._labelled(marks)

    def _range(self, start_ns: int | None, end_ns: int | None, pixels: int) -> tuple[int, int]:
        start = self.start_ns if start_ns is None else start_ns
        end = self.end_ns if end_ns is None else end_ns
        if not start < end or not 0 < pixels <= _MOST_PIXELS:
            raise InvalidArgumentError(
                f"a view needs an end after its start and 1 to {_MOST_PIXELS:,} pixels, not [{start}, "
                f"{end}) on {pixels}"
            )
        return start, end

    def _labelled(self, found: _traceparse.ArrowTable) -> pl.DataFrame:
        """Marks with their names, and their tracks in front."""
        marks = pl.DataFrame(found)
        both = pl.concat([marks["dominant"], marks["longest"]])
        names = self._gathered(both, lambda source: source.names)
        longest = names.tail(marks.height)
        marks = marks.with_columns(
            names.head(marks.height).get_columns(),
            longest_name=longest["name"],
            longest_row=longest["row"],
            name_ns="dominant_ns",
            busy_share=(pl.col("busy_ns") / (pl.col("end_ns") - pl.col("start_ns"))).fill_nan(None),
        )
        # A track stands where its number says.
        tracks = self.tracks[marks["track"]]
        return as_text(tracks.hstack(marks[[*_MARKS, *_NAMES]]))


def timeline(
    trace: Trace,
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
    pixels: int = 2000,
    kinds: Sequence[str] = ("stream", "thread"),
) -> pl.DataFrame:
    """Timeline of ``[start_ns, end_ns)`` (default: the whole trace) for a screen of ``pixels`` pixels.

    A track is a GPU stream, or a thread with its operators, annotations, NVTX ranges and API calls. With
    ``python`` among ``kinds``, Python frames of a thread are tracks, too. The events of a track are in lanes
    as in a call stack. No two events of a lane overlap, and lanes are the same in every view. An event at
    least one pixel wide has its own row, with its own start and end even outside the view. All narrower
    events of a lane in one pixel share a row. So a lane has at most about two rows per pixel, independent of
    the size of the trace. :class:`kernelscope.analysis.timeline.TimelineView` answers several views of one
    trace without sorting its events again.

    Columns: ``track`` (number, in display order), ``track_kind`` (stream, thread or python), ``label``,
        ``device``, ``stream``, ``pid``, ``tid``; ``lane`` (number of enclosing events), ``start_ns``,
        ``end_ns``, ``busy_ns``, ``busy_share`` (of the time between start and end; null if that is 0),
        ``events`` (number that start here); for the name with most of the time ``name``, ``category``
        (kernel, memcpy, memset, graph, communication; operator, annotation, range, launch; python), ``row``
        (of its longest event) and ``name_ns``; ``longest_name``, ``longest_row`` and ``longest_ns`` (whole
        duration) of the longest event.
    Units: ns on the trace's clock.
    Order: by track, lane and start.
    Raises: InvalidArgumentError: the range is empty, ``pixels`` is not 1 to 1,048,576, or a kind is unknown.

    Example: ``timeline(trace, start_ns=step_start, end_ns=step_end, pixels=1600)``
    """
    return TimelineView(trace, kinds=kinds).show(start_ns=start_ns, end_ns=end_ns, pixels=pixels)


class _Source:
    """A table whose events lie on tracks of one kind."""

    def __init__(self, frame: pl.DataFrame, kind: str, keys: Sequence[str], category: pl.Expr) -> None:
        self.frame = frame
        self.kind = kind
        known = [name for name in keys if name in frame.columns]
        # What no event has tells no tracks apart.
        self.keys = [name for name in known if frame[name].null_count() < frame.height]
        is_stream = kind == "stream"
        nothing = pl.lit(None, pl.Int64)
        place = [
            pl.col(name).cast(pl.Int64) if is_stream and name in frame.columns else nothing.alias(name)
            for name in _OF_STREAM
        ]
        thread = pl.lit(None, pl.UInt32) if is_stream else pl.col("track")
        self.places = [*place, thread.alias("_thread"), pl.lit(kind, pl.Enum(KINDS)).alias("track_kind")]
        self.names = [pl.col("name"), category.cast(pl.Categorical).alias("category"), pl.col("row")]
        used = (
            *(_OF_STREAM if is_stream else _OF_THREAD),
            "name",
            "row",
            "kind",
            "is_annotation",
            "is_communication",
        )
        self.needed = [name for name in used if name in frame.columns]

    def events(self) -> pl.DataFrame:
        """What is laid out."""
        return self.frame.select("start_ns", "dur_ns", *self.keys, name=pl.col("name").to_physical())


def _sources(trace: Trace, kind: str) -> list[_Source]:
    """The tables whose events lie on tracks of a kind."""
    if kind == "stream":
        communicates = pl.col("is_communication")
        work = pl.col("kind").cast(pl.String)
        category = pl.when(communicates).then(pl.lit("communication")).otherwise(work)
        return [_Source(trace.gpu_ops, kind, _OF_STREAM, category)]
    if kind == "python":
        return [_Source(trace.python, kind, _OF_THREAD, pl.lit("python"))]
    op = pl.when("is_annotation").then(pl.lit("annotation")).otherwise(pl.lit("operator"))
    ranges = ranges_beside_operators(trace)
    is_pushed = ranges["kind"] == "push_pop"
    ranges = ranges if is_pushed.all(ignore_nulls=False) else ranges.filter(is_pushed)
    return [
        _Source(trace.ops, kind, _OF_THREAD, op),
        _Source(ranges, kind, _OF_THREAD, pl.lit("range")),
        _Source(trace.launches, kind, _OF_THREAD, pl.lit("launch")),
    ]


def thread_labels(threads: pl.DataFrame) -> pl.DataFrame:
    """Returns the threads with their names, or otherwise their numbers.

    The columns are ``track``, ``pid``, ``tid`` and ``label``.

    Columns: ``threads`` has those of the table of the trace.
    """
    tid = pl.coalesce(pl.col("tid").cast(pl.String), pl.col("tid_text").cast(pl.String), pl.lit("?"))
    label = pl.coalesce(pl.col("thread_name").cast(pl.String), pl.format("thread {}", tid))
    return threads.select("track", "pid", "tid", label=label)


def _ordered(found: pl.DataFrame) -> pl.DataFrame:
    """The tracks in the order to show, each with where it stands in ``found``.

    Streams come by device, then threads by what happens on them first.
    """
    keys = ["track_kind", "device", "stream", "_first", "_thread", "pid"]
    return found.with_row_index("_at").sort(keys, nulls_last=True).with_row_index("track")


def _tracks(ordered: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """The tracks with their names."""
    named = thread_labels(threads).select(_thread="track", _pid="pid", _tid="tid", _label="label")
    stream = pl.format(
        "GPU {} stream {}",
        pl.col("device").cast(pl.String).fill_null("?"),
        pl.col("stream").cast(pl.String).fill_null("?"),
    )
    return (
        ordered.join(named, on="_thread", how="left", maintain_order="left")
        .with_columns(pid=pl.coalesce("pid", "_pid"), tid="_tid")
        .with_columns(label=pl.when(track_kind="stream").then(stream).otherwise("_label"))
        .select(_TRACKS)
    )
