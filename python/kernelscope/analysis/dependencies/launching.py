"""Changes of launches: several kernels become one, or one call launches all of a part of the program."""

import polars as pl

from kernelscope.analysis.dependencies.graph import Dependencies, dependencies
from kernelscope.analysis.grouping import positions
from kernelscope.memo import per_trace
from kernelscope.trace import Trace


def launching(trace: Trace, gone: pl.Series, *, operators: bool = True) -> pl.Series:
    """Returns which events of the host launch nothing but GPU operations that are ``gone``.

    Events inside these belong to them. ``gone`` has positions in ``dependencies(trace).events``. Without
    ``operators``, only calls of the API count.
    """
    graph = dependencies(trace)
    count = graph.events.height
    is_gone = _marked(count, gone).tail(trace.gpu_ops.height)
    only = _marked(count, None)
    known = [launches_of_works(trace), *([_ops_of_works(trace)] if operators else [])]
    for of_works in known:
        only |= _marked(count, of_works.filter(is_gone)) & ~_marked(count, of_works.filter(~is_gone))
    return graph.within(only) & (graph.events["table"] != "gpu_ops")


@per_trace
def launches_of_works(trace: Trace) -> pl.Series:
    """Returns the event of the call that launched each GPU operation; null if unknown."""
    return _events_of(trace, "launch_row")


@per_trace
def _ops_of_works(trace: Trace) -> pl.Series:
    """The event of the operator that launched each GPU operation; null if unknown."""
    return _events_of(trace, "op_row")


def _events_of(trace: Trace, column: str) -> pl.Series:
    works, rows = trace.gpu_ops, dependencies(trace).events["row"]
    return positions(rows.head(rows.len() - works.height), works[column])


def _marked(count: int, events: pl.Series | None) -> pl.Series:
    nothing = pl.repeat(value=False, n=count, eager=True)
    return nothing if events is None else nothing.scatter(events.drop_nulls(), values=True)


def fused(trace: Trace, graph: Dependencies, calls: pl.Series, factor: float) -> pl.DataFrame:
    """Returns the factors of events if the kernels of each call became one on each stream.

    It takes ``factor`` of their time and starts as the first. Nothing launches the others, so that calls and
    operators that do nothing else take no time. At most, these operators take as long as recorded. Kernels
    before and after a wait of the host stay apart.

    ``calls`` has the event of the host around the launch of each event, or null for others.

    Columns: ``FACTORS`` of ``changes``.
    """
    works = trace.gpu_ops.select("pid", "device", "stream", "start_ns")
    works = works.with_row_index("at", offset=graph.events.height - works.height)
    works = works.with_columns(calls.tail(works.height).alias("call"), last_waits(trace))
    works = works.filter(trace.gpu_ops["kind"] == "kernel").drop_nulls("call").sort("start_ns", "at")
    place = pl.int_range(pl.len()).over("call", "after", "pid", "device", "stream")
    others = works.filter(place > 0)["at"]
    one = pl.repeat(1.0, graph.events.height, eager=True)
    # They run one after the other without a pause.
    own, without = one.clone().scatter(works["at"], factor), one.clone().scatter(others, 0.0)
    return pl.select(
        own=own * _if(~launching(trace, others)),
        waiting=without,
        gap=without,
        most_own=own * _if(~launching(trace, others, operators=False)),
        most_gap=without,
    )


def captured(trace: Trace, graph: Dependencies, parts: pl.Series, factor: float) -> pl.DataFrame:
    """Returns the factors of events if one call launched the GPU operations of each part, as a graph does.

    After a wait of the host there is another one. All else on the host takes ``factor`` of its time but for
    data loading, communication and waits. At most, threads spend as long as recorded outside of any event,
    and on handing work to another thread.

    ``parts`` has a number for each event, or null for others.

    Columns: ``FACTORS`` of ``changes``.
    """
    is_host = graph.events["table"] != "gpu_ops"
    changes = parts.is_not_null() & (~is_host | graph.events["class"].is_in(["host", "launch"]))
    works = trace.gpu_ops.select(call=launches_of_works(trace))
    works = works.with_row_index("at", offset=graph.events.height - works.height)
    works = works.with_columns(parts.tail(works.height).alias("part"), last_waits(trace))
    works = works.drop_nulls(["part", "call"])
    at_ns = graph.times["start_ns"].gather(works["call"])
    first = works.sort(at_ns).unique(["part", "after"], keep="first")["call"]
    launched = works.filter(pl.col("call").is_in(first.implode()))["at"]
    changes = changes.scatter(first, values=False).scatter(launched, values=False)
    by = _if(~changes) + factor * _if(changes)
    one = pl.repeat(1.0, graph.events.height, eager=True)
    on_host = by.zip_with(is_host, one)
    return pl.select(
        own=on_host, waiting=by.zip_with(~is_host, one), gap=on_host, most_own=on_host, most_gap=one
    )


def last_waits(trace: Trace) -> pl.Series:
    """Returns the last wait of the host before each GPU operation's launch: ``after``, an event or null."""
    graph = dependencies(trace)
    events = graph.events.select("track", "class", graph.times["start_ns"]).with_row_index("after")
    waits = events.filter(pl.col("class") == "synchronisation", pl.col("track").is_not_null())
    launches = events.select("track", "start_ns")[launches_of_works(trace)].with_row_index("at")
    known = (
        launches.drop_nulls()
        .sort("start_ns")
        .join_asof(waits.sort("start_ns"), on="start_ns", by="track", check_sortedness=False)
    )
    return launches.join(known, on="at", how="left", maintain_order="left")["after"]


def _if(which: pl.Series) -> pl.Series:
    """1 where it is so, or 0."""
    return which.cast(pl.Float64)


def steps_of_events(trace: Trace, graph: Dependencies) -> pl.Series:
    """Returns the step of each event: of GPU operations, and of threads that launch them or wait for these.

    Null for no step. A step without a number is -1.
    """
    number = pl.col("step").fill_null(-1).cast(pl.Int64)
    steps = trace.steps.select(number, "host_start_ns", until=pl.col("host_start_ns") + pl.col("host_dur_ns"))
    calls = launches_of_works(trace).drop_nulls().unique()
    tracks = graph.events["track"].gather(calls).unique()
    pairs = trace.ops.select(pl.col("track", "caller_track").cast(pl.Int64)).drop_nulls().unique()
    callers = pairs.filter(pl.col("track").is_in(tracks.implode()))["caller_track"]
    tracks = pl.concat([tracks, callers])
    of_gpu = trace.gpu_ops.select(number)["step"]
    of_gpu = of_gpu.zip_with(of_gpu.is_in(steps["step"].implode()), pl.Series([None], dtype=pl.Int64))
    host = graph.events.select("track", at_ns=graph.times["start_ns"]).head(
        graph.events.height - of_gpu.len()
    )
    host = host.with_row_index("event").sort("at_ns")
    host = host.join_asof(steps.sort("host_start_ns"), left_on="at_ns", right_on="host_start_ns")
    is_inside = (pl.col("at_ns") < pl.col("until")) & pl.col("track").is_in(tracks.implode())
    of_host = host.select("event", step=pl.when(is_inside).then("step")).sort("event")["step"]
    return pl.concat([of_host, of_gpu])
