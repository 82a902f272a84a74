"""Builds the graph of dependencies between the events of a trace."""

from typing import NamedTuple

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.grouping import Classes, by_name, classes_of, gather_rows, positions, taken
from kernelscope.analysis.ranges.beside_operators import ranges_beside_operators
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

BOUNDS = (
    "host", "data loading", "communication", "launch", "synchronisation", "compute", "copy", "queue",
    "unknown",
)  # fmt: skip
"""Activities of events, and reasons why a moment is on a critical path."""

TIMED = ("ops", "launches", "python", "ranges", "gpu_ops")
"""Tables with the events of the graph."""

_CLASS = pl.Enum(BOUNDS)
_TABLE = pl.Enum(TIMED)
_KIND = pl.Enum(
    ["operator", "annotation", "call", "frame", "range", "kernel", "memcpy", "memset", "graph"]
)  # fmt: skip
# By number. An event of the host of class 0 does what the event around it does.
_ACTIVITIES = {"data_loading": 1, "communication": 2, "launch": 3, "wait": 4}
_WAITS = ("call", "process", "on", "until", "stream", "only_waits")
_ALLOCATES = "(?i)alloc|free|register"
_EVENTS = {"records": "EventRecord", "awaits": "StreamWaitEvent"}
_HOST_WAITS = ("stream sync", "event sync", "context sync")


class Dependencies(NamedTuple):
    """The graph of a trace, its replay without changes, and its events by position.

    Columns: ``events`` has ``row``, ``table``, ``kind``, ``name``, ``class`` (its activity, one of
        ``BOUNDS``) and ``track`` (its thread; null on a GPU). Events of the host come first, then
        ``gpu_ops`` in order.
    """

    graph: _traceparse.DependencyGraph
    replay: _traceparse.Replay
    events: pl.DataFrame

    @property
    def times(self) -> pl.DataFrame:
        """Returns ``start_ns`` and ``end_ns`` of the events, as recorded; a null duration counts as 0."""
        return pl.DataFrame(self.replay.times())

    def replayed(self) -> _traceparse.Replay:
        """Replays the graph with factors that change nothing, where ``replay`` has the recorded times."""
        ones = pl.repeat(1.0, self.events.height, eager=True)
        return self.graph.replay(pl.DataFrame({"own": ones, "waiting": ones}))

    def enclosing(self, marked: pl.Series, *, outermost: bool = False) -> pl.Series:
        """Returns the position of the innermost marked event of the host around each event or its launch.

        With ``outermost``, it is the outermost one. A marked event lies in itself; null for none.
        """
        return taken(self.graph.enclosing(marked.to_frame("marked"), outermost), "event")

    def within(self, marked: pl.Series) -> pl.Series:
        """Returns which events are marked, lie inside such events, or were launched there."""
        return self.enclosing(marked).is_not_null()


@per_trace
def dependencies(trace: Trace) -> Dependencies:
    """Returns the graph of operators, API calls, Python frames, NVTX ranges and GPU operations."""
    # A call that allocates memory waits for the GPU, but not only.
    allocates = pl.col("text").str.contains(_ALLOCATES).fill_null(value=False)
    does = {
        name: pl.col("text").str.contains(names).fill_null(value=False) for name, names in _EVENTS.items()
    }
    calls = by_name(trace.launches, only_waits=~allocates, **does)
    host, gpu = _host_events(trace, calls), _gpu_events(trace)
    places = pl.int_range(trace.ops.height, trace.ops.height + calls.height, dtype=pl.UInt32, eager=True)
    launched = places.gather(positions(calls["row"], trace.gpu_ops["launch_row"]))
    streams = _streams(trace)
    callers = gather_rows(trace.gpu_ops["launch_row"], calls, "pid")["pid"]
    of_streams = pl.DataFrame({"stream": streams.of, "pid": callers}).group_by("stream")
    pids = of_streams.agg(pl.col("pid").drop_nulls().first()).sort("stream")["pid"]
    pids = pl.select(pl.coalesce(streams.keys["pid"], pids)).to_series()
    processes = classes_of(pl.concat([pids, calls["pid"]]).to_frame("pid")).of
    of_stream, of_call = processes.head(pids.len()), processes.tail(calls.height)
    numbered = streams.keys.with_row_index("number").with_columns(process=of_stream)
    waits = _waits(trace, calls, numbered, of_call)
    graph = _traceparse.DependencyGraph(
        host.select("row", "track", "start_ns", "dur_ns", "class", "is_operator"),
        _callers(trace),
        gpu.select(
            "row",
            "start_ns",
            "dur_ns",
            stream=streams.of,
            process=of_stream.gather(streams.of),
            launch=launched,
            is_copy=pl.col("kind") == "memcpy",
        ),
        waits,
        _events(calls.with_columns(call=places), waits),
        _handed(trace),
    )
    columns = ("row", "table", "kind", "name", "class", "track")
    of_host = pl.Series(BOUNDS, dtype=_CLASS).gather(taken(graph.classes(), "class"))
    host = host.with_columns(of_host.alias("class"))
    return Dependencies(graph, graph.replay(), pl.concat([host.select(columns), gpu.select(columns)]))


def _host_events(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """Operators, API calls, Python frames and NVTX ranges, in this order."""
    # An API call belongs to the thread of its operator, also if the profiler numbers threads differently.
    owner = gather_rows(trace.launches["op_row"], trace.ops, "track")["track"]
    is_annotation = pl.col("is_annotation").fill_null(value=False)
    kind = pl.when(is_annotation).then(_kind("annotation")).otherwise(_kind("operator"))
    ranges = ranges_beside_operators(trace)
    parts = [
        _slices(trace.ops, "ops", kind),
        _slices(
            calls.with_columns(track=pl.coalesce(owner, "track")),
            "launches",
            _kind("call"),
            activity=pl.when((pl.col("activity") != "wait") | pl.col("only_waits")).then("activity"),
        ),
        _slices(trace.python, "python", _kind("frame"), activity=pl.lit(None, pl.String)),
        _slices(ranges.filter(pl.col("kind") == "push_pop"), "ranges", _kind("range")),
    ]
    return pl.concat(parts)


def _callers(trace: Trace) -> pl.DataFrame:
    """The operators of autograd, with the thread that waits for each: ``event``, ``track``."""
    callers = trace.ops.select("caller_track").with_row_index("event").drop_nulls()
    return callers.select("event", track=pl.col("caller_track").cast(pl.Int64))


def _slices(frame: pl.DataFrame, table: str, kind: pl.Expr, activity: pl.Expr | None = None) -> pl.DataFrame:
    doing = pl.col("activity") if activity is None else activity
    return frame.select(
        "row",
        "name",
        "start_ns",
        pl.col("track").cast(pl.Int64),
        pl.col("dur_ns").fill_null(0),
        pl.lit(table, _TABLE).alias("table"),
        kind.alias("kind"),
        ((kind == _kind("operator")) & doing.is_null()).alias("is_operator"),
        pl.coalesce(*(pl.when(doing == name).then(pl.lit(number)) for name, number in _ACTIVITIES.items()), 0)
        .cast(pl.UInt8)
        .alias("class"),
    )


def _kind(name: str) -> pl.Expr:
    return pl.lit(name, _KIND)


def _gpu_events(trace: Trace) -> pl.DataFrame:
    return trace.gpu_ops.select(
        "row",
        "name",
        "start_ns",
        pl.col("dur_ns").fill_null(0),
        pl.lit("gpu_ops", _TABLE).alias("table"),
        pl.col("kind").cast(_KIND),
        pl.when(pl.col("is_communication").fill_null(value=False))
        .then(pl.lit("communication", _CLASS))
        .when((pl.col("kind") == "memcpy") | (pl.col("kind") == "memset"))
        .then(pl.lit("copy", _CLASS))
        .otherwise(pl.lit("compute", _CLASS))
        .alias("class"),
        track=pl.lit(None, pl.Int64),
    )


def _streams(trace: Trace) -> Classes:
    """The stream of each GPU operation."""
    of, keys = classes_of(trace.gpu_ops.select("pid", "device", "stream", "context"))
    # Replayed operations have no context on ROCm.
    known = pl.col("context").drop_nulls().first().over("pid", "device", "stream")
    streams = classes_of(keys.with_columns(pl.col("context").fill_null(known)))
    return Classes(streams.of.gather(of), streams.keys)


def _waits(trace: Trace, calls: pl.DataFrame, streams: pl.DataFrame, processes: pl.Series) -> pl.DataFrame:
    """Calls that wait for GPU operations, and streams that wait for events of others.

    Columns: see ``DependencyGraph``.
    """
    first = trace.ops.height
    calls = calls.with_row_index("call", offset=first).with_columns(process=processes)
    known = _recorded_waits(trace, streams, calls)
    others = calls.filter((pl.col("activity") == "wait") & ~pl.col("call").is_in(known["call"].implode()))
    nothing = pl.lit(None, pl.UInt32)
    others = others.select("call", "process", "only_waits", on=nothing, until=nothing, stream=nothing)
    return pl.concat([known.select(_WAITS), others.select(_WAITS)])


def _events(calls: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """Calls that record an event, or let a stream wait for an unknown one: ``call``, ``is_wait``."""
    known = waits.drop_nulls("stream")["call"].implode()
    events = calls.filter(pl.col("records") | (pl.col("awaits") & ~pl.col("call").is_in(known)))
    return events.select("call", is_wait="awaits")


def _handed(trace: Trace) -> pl.DataFrame:
    """Communication on other threads, and the calls that handed it to these: ``event``, ``call``."""
    told = trace.collectives.select("row", "call_row").drop_nulls()
    event, call = (positions(trace.ops["row"], told[column]) for column in ("row", "call_row"))
    return pl.DataFrame({"event": event, "call": call}).unique("event").drop_nulls().sort("event")


def _recorded_waits(trace: Trace, streams: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """The waits that ``syncs`` describes."""
    syncs = trace.syncs.with_columns(pl.col("kind").cast(pl.String).str.to_lowercase())
    marks = syncs.filter(pl.col("kind") == "event record").drop_nulls("event_id").sort("start_ns")
    marks = marks.select("pid", "event_id", "start_ns", of_record="stream", by_record="correlation")
    of_calls = calls.select("process", "call", launch_row="row")
    is_stream = pl.col("kind").str.starts_with("stream wait")
    waits = syncs.filter(is_stream | pl.col("kind").is_in(_HOST_WAITS))
    waits = waits.join(of_calls, on="launch_row", how="inner").sort("start_ns")
    # An event is recorded again and again; the last record before the wait counts.
    waits = waits.join_asof(
        marks, on="start_ns", by=["pid", "event_id"], strategy="backward", check_sortedness=False
    )
    waits = waits.with_columns(
        awaited=pl.when(pl.col("kind") == "stream sync")
        .then("stream")
        .otherwise(pl.coalesce("wait_stream", "of_record")),
        correlation=pl.coalesce("wait_correlation", "by_record"),
        waiting=pl.when(is_stream).then("stream"),
        only_waits=pl.lit(value=True),
    )
    # What waits for an unknown event may have waited for any stream; a stream that does may wait for none.
    waits = waits.filter(~is_stream | (pl.col("awaited").is_not_null() & pl.col("waiting").is_not_null()))
    ids = ["process", "correlation"]
    until = calls.drop_nulls("correlation").unique(ids, keep="last").select(*ids, until="call")
    waits = waits.join(until, on=ids, how="left")
    on, stream = (_stream_numbers(waits, streams, name) for name in ("awaited", "waiting"))
    return waits.with_columns(on.alias("on"), stream.alias("stream")).sort("call", "on", nulls_last=True)


def _stream_numbers(waits: pl.DataFrame, streams: pl.DataFrame, column: str) -> pl.Series:
    """The number of the stream with the id in ``column``; null for none.

    Without a recorded device, it is the only stream of the process with this id.
    """
    found: list[pl.Series] = []
    for keys in (["process", "device", "stream"], ["process", "stream"]):
        wanted = waits.select("process", "device", stream=column)
        of = streams.unique(keys, keep="none").select(*keys, "number")
        found.append(wanted.join(of, on=keys, how="left", maintain_order="left")["number"])
    # Nothing ran on a stream that is not among them.
    return waits.select(
        pl.when(pl.col(column).is_not_null()).then(pl.coalesce(*found).fill_null(streams.height))
    ).to_series()
