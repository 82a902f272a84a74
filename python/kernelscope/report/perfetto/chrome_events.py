"""Rows of every table as Chrome JSON events, with the arguments they were recorded with."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import polars as pl

from kernelscope.analysis.grouping import sizes_as_text
from kernelscope.analysis.ranges.beside_operators import ranges_beside_operators
from kernelscope.analysis.ranks.host_calls import runs_on_host
from kernelscope.trace import Trace

Selected = Callable[[pl.DataFrame], pl.DataFrame]

# What an argument is called: n a number or truth value, s a text, j JSON text.
_OP_ARGS = {
    "n:External id": "external_id",
    "n:Sequence number": "sequence",
    "n:Fwd thread id": "forward_thread",
    "j:Input Dims": "input_dims",
    "j:Input type": "input_types",
    "j:Input Strides": "input_strides",
    "j:Concrete Inputs": "concrete_inputs",
    "s:Call stack": "call_stack",
    "s:Module Hierarchy": "module_hierarchy",
    "n:Record function id": "record_function_id",
    "n:Ev Idx": "event_index",
    "n:finished": "finished",
}
_GPU_ARGS = {
    "s:mangled name": "mangled_name",
    "n:device": "device",
    "n:stream": "stream",
    "n:correlation": "correlation",
    "n:External id": "external_id",
    "n:context": "context",
    "n:queued": "queued_ns",
    "j:grid": "grid",
    "j:block": "block",
    "n:registers per thread": "registers",
    "n:shared memory": "shared_memory_bytes",
    "n:blocks per SM": "blocks_per_sm",
    "n:warps per SM": "warps_per_sm",
    "n:est. achieved occupancy %": "occupancy_pct",
    "n:bytes": "bytes",
    "n:memory bandwidth (GB/s)": "bandwidth_gb_per_s",
    "n:graph id": "graph_id",
    "n:graph node id": "graph_node_id",
    "n:priority": "priority",
    "n:channel": "channel",
    # Only databases have these.
    "j:cluster": "cluster",
    "s:copy kind": "copy_kind",
    "s:source memory": "source_memory",
    "s:destination memory": "destination_memory",
}
_COLLECTIVE_ARGS = {
    "s:Collective name": "name",
    "s:dtype": "dtype",
    "n:In msg nelems": "in_elements",
    "n:Out msg nelems": "out_elements",
    "s:In split size": "in_split",
    "s:Out split size": "out_split",
    "n:Group size": "group_size",
    "s:Process Group Name": "process_group",
    "s:Process Group Description": "process_group_description",
    "s:Process Group Ranks": "process_group_ranks",
    "n:Rank": "rank",
    "n:Src Rank": "source_rank",
    "n:Dst Rank": "destination_rank",
    "n:Seq": "sequence",
    "n:Comms Id": "comms_id",
    "n:Is asynchronized op": "is_async",
}
_SYNC_ARGS = {
    "n:device": "device",
    "n:stream": "stream",
    "n:correlation": "correlation",
    "n:External id": "external_id",
    "s:cuda_sync_kind": "kind",
    "n:wait_on_cuda_event_id": "event_id",
    "n:wait_on_stream": "wait_stream",
    "n:wait_on_cuda_event_record_corr_id": "wait_correlation",
}
_PYTHON_ARGS = {
    "n:Python id": "python_id",
    "n:Python parent id": "python_parent_id",
    "n:Python module id": "module_id",
    "s:Call stack": "call_stack",
    "n:Ev Idx": "event_index",
    "n:finished": "finished",
}
_MEMORY_ARGS = {
    "n:Addr": "address",
    "n:Bytes": "bytes",
    "n:Total Allocated": "total_allocated_bytes",
    "n:Total Reserved": "total_reserved_bytes",
    "n:Device Type": "device_type",
    "n:Device Id": "device_id",
    "s:Call stack": "call_stack",
    "n:Ev Idx": "event_index",
}
_IDS = {"n:correlation": "correlation", "n:External id": "external_id"}
_LAUNCH_ARGS = _IDS | {
    "s:kernel": "kernel",
    "j:grid": "grid",
    "j:block": "block",
    "n:shared memory": "shared_memory_bytes",
}
SYNC_ROWS = 1_000_000
"""Offset of synchronisations from their stream, whose operations they overlap, as profilers draw them."""
_CATEGORIES = {"kernel": "kernel", "graph": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}
_WHOLE = re.compile("-?(0|[1-9][0-9]*)")
_METADATA_KEYS = {
    "process_labels": "labels",
    "process_sort_index": "sort_index",
    "thread_sort_index": "sort_index",
}


def event_tables(trace: Trace) -> list[tuple[pl.DataFrame, Selected]]:
    """Returns every table of events in order of rows, with a function that creates the events of a part."""
    place = _placed(trace.threads)
    # What the host runs is found by its name when the file is read.
    collectives = trace.collectives.filter(~runs_on_host(pl.col("name")).fill_null(value=False))

    def with_collective(source: str, events: Selected) -> Selected:
        of = collectives.filter(pl.col("source") == source).select("row", **_collective())
        return (
            events
            if of.is_empty()
            else lambda part: events(part).join(of, on="row", how="left", maintain_order="left")
        )

    ranges = ranges_beside_operators(trace)
    # Operators of NVTX ranges have none.
    of_ops = _text("category").fill_null("cpu_op")
    tables: list[tuple[pl.DataFrame, Selected]] = [
        (trace.ops, with_collective("op", lambda part: place(part, _slices(_OP_ARGS, category=of_ops)))),
        (trace.launches, lambda part: place(sizes_as_text(part), _launch())),
        (trace.gpu_ops, with_collective("gpu_op", _gpu)),
        (trace.python, lambda part: place(part, _slices(_PYTHON_ARGS, category=pl.lit("python_function")))),
        (trace.gpu_annotations, _annotations),
        (trace.syncs, _syncs),
        (trace.memory, lambda part: place(part, _instants("cpu_instant_event", _MEMORY_ARGS))),
        (trace.instants, lambda part: place(part, _event("i", cat=_text("category"), s=_text("scope")))),
        (trace.flows, lambda part: place(part, _flows())),
        (trace.spans, lambda part: place(part, _slices(_IDS) | {"ph": _text("kind")})),
        (trace.metadata, lambda part: _metadata(place, part)),
        (trace.counters, lambda part: _counters(place, part, trace.extra_args)),
        (ranges.filter(pl.col("kind") == "push_pop"), lambda part: place(part, _range("X"))),
        (ranges.filter(pl.col("kind") == "mark"), lambda part: place(part, _instants("nvtx", {}))),
        (ranges.filter(pl.col("kind") == "start_end"), lambda part: place(part, _range("b"))),
        (ranges.filter(pl.col("kind") == "start_end"), lambda part: place(part, _range("e"))),
    ]
    return [
        (frame if frame["row"].is_sorted() else frame.sort("row"), events)
        for frame, events in tables
        if frame.height
    ]


def slices_of(trace: Trace) -> tuple[list[pl.DataFrame], list[pl.DataFrame]]:
    """Returns the events with an end, which viewers nest, on tracks and on GPUs.

    Columns: at least ``row``, ``start_ns``, ``dur_ns``, and ``track``; or ``pid`` and ``tid``.
    """
    ranges = ranges_beside_operators(trace).filter(pl.col("kind") == "push_pop")
    spans = trace.spans.filter(pl.col("kind") == "X")
    counters = trace.counters.filter(pl.col("dur_ns").is_not_null()).unique("row")
    on_gpu = [
        frame.with_columns(pid="device", tid="stream") for frame in (trace.gpu_ops, trace.gpu_annotations)
    ]
    syncs = trace.syncs.with_columns(pid="device", tid=pl.col("stream").fill_null(0) + SYNC_ROWS)
    on_threads = [trace.ops, trace.launches, trace.python, spans, counters, ranges]
    return on_threads, [*on_gpu, syncs]


def _text(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.String)


def _args(columns: Mapping[str, str]) -> dict[str, pl.Expr]:
    return {key: pl.col(column) if key.startswith("n:") else _text(column) for key, column in columns.items()}


def _event(phase: str, **fields: pl.Expr) -> dict[str, pl.Expr]:
    return {"ph": pl.lit(phase), "name": _text("name"), "ts": pl.col("start_ns"), **fields}


def _slices(args: Mapping[str, str], *, category: pl.Expr | None = None) -> dict[str, pl.Expr]:
    category = _text("category") if category is None else category
    return _event("X", cat=category, dur=pl.col("dur_ns")) | _args(args)


def _instants(category: str, args: Mapping[str, str]) -> dict[str, pl.Expr]:
    return _event("i", cat=pl.lit(category), s=pl.lit("t")) | _args(args)


def _launch() -> dict[str, pl.Expr]:
    is_hip = _text("name").str.starts_with("hip").fill_null(value=False)
    return _slices(_LAUNCH_ARGS) | {
        "n:cbid": pl.when(~is_hip).then("callback_id"),
        "n:cid": pl.when(is_hip).then("callback_id"),
    }


def _flows() -> dict[str, pl.Expr]:
    ends = pl.when(_text("kind") == "f").then(pl.lit("e"))
    return _event("s", cat=_text("category"), id=pl.col("id"), bp=ends) | {"ph": _text("kind")}


def _range(phase: str) -> dict[str, pl.Expr]:
    fields = _event(phase, cat=pl.lit("nvtx")) | _args(
        {"s:domain": "domain", "s:category": "category", "s:sizes": "sizes"}
    )
    if phase == "X":
        return fields | {"dur": pl.col("dur_ns")}
    end = pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    return fields | {"id": pl.col("row"), "ts": pl.col("start_ns") if phase == "b" else end}


def _collective() -> dict[str, pl.Expr]:
    named = _args(_COLLECTIVE_ARGS)
    # A collective of which nothing is known but that it is one.
    unnamed = pl.col("name").is_null() & pl.col("process_group").is_null() & pl.col("comms_id").is_null()
    named["s:Collective name"] = pl.when(unnamed).then(pl.lit("")).otherwise(_text("name"))
    return named


def first_free_id(trace: Trace) -> int:
    """Returns the first id of added arrows; ids beyond 2^62 are far from those that follow the others."""
    recorded = cast("int | None", trace.flows["id"].filter(trace.flows["id"] < 2**62).max())
    return (recorded or 0) + 1


def places_of_tracks(threads: pl.DataFrame) -> pl.DataFrame:
    """Returns the location of the events of each track.

    Its columns are ``track``, ``pid``, ``tid``, ``pid_text`` and ``tid_text``.
    """
    return threads.select("track", "pid", "tid", _text("pid_text"), _text("tid_text"))


def _placed(threads: pl.DataFrame) -> Callable[[pl.DataFrame, dict[str, pl.Expr]], pl.DataFrame]:
    """What makes events of rows that are drawn on a track."""
    tracks = places_of_tracks(threads).select("track", pl.exclude("track").name.prefix("_"))

    def place(part: pl.DataFrame, columns: dict[str, pl.Expr]) -> pl.DataFrame:
        joined = part.join(tracks, on="track", how="left", maintain_order="left")
        return joined.select(
            "row", **columns, pid="_pid", tid="_tid", pid_text="_pid_text", tid_text="_tid_text"
        )

    return place


def _gpu(part: pl.DataFrame) -> pl.DataFrame:
    default = _text("kind").replace_strict(_CATEGORIES, default=None, return_dtype=pl.String)
    part = sizes_as_text(part)
    events = _slices(_GPU_ARGS, category=pl.coalesce(_text("category"), default))
    return part.select("row", **events, pid="device", tid="stream")


def _annotations(part: pl.DataFrame) -> pl.DataFrame:
    args = {"n:device": "device", "n:stream": "stream", "n:External id": "external_id"}
    return part.select(
        "row", **_slices(args, category=pl.lit("gpu_user_annotation")), pid="device", tid="stream"
    )


def _syncs(part: pl.DataFrame) -> pl.DataFrame:
    events = _slices(_SYNC_ARGS, category=_text("category").fill_null("cuda_sync"))
    return part.select("row", **events, pid="device", tid=pl.col("stream").fill_null(0) + SYNC_ROWS)


def _metadata(place: Callable[..., pl.DataFrame], part: pl.DataFrame) -> pl.DataFrame:
    def member(name: str | None, value: str | None) -> str | None:
        if value is None:
            return None
        key = _METADATA_KEYS.get(name or "", "name")
        is_number = key == "sort_index" and _WHOLE.fullmatch(value)
        return f"{json.dumps(key)}:{value if is_number else json.dumps(value)}"

    pairs = part.select(_text("name"), _text("value")).rows()
    members = pl.Series([member(name, value) for name, value in pairs], dtype=pl.String)
    return place(part.with_columns(members=members), _event("M") | {"members": pl.col("members")})


def _counters(
    place: Callable[..., pl.DataFrame], part: pl.DataFrame, extra_args: pl.DataFrame
) -> pl.DataFrame:
    """One event for all values of a row."""
    # What was no number is kept as an argument, and stands where it stood.
    kept = extra_args.select("row", counter=_text("key"), _kept=_text("value"))
    values = part.select("row", _text("counter"), "value").join(
        kept, on=["row", "counter"], how="left", maintain_order="left"
    )
    members: dict[int, list[str]] = {}
    for row, counter, value, text in values.rows():
        own = members.setdefault(row, [])
        # An event without values has a row for none.
        if counter or value is not None or text is not None:
            own.append(f"{json.dumps(counter)}:{json.dumps(value) if text is None else text}")
    first = part.unique("row", keep="first", maintain_order=True)
    texts = pl.Series([",".join(members[row]) for row in first["row"]], dtype=pl.String)
    is_slice = pl.col("dur_ns").is_not_null()
    events: dict[str, Any] = _event("C", cat=_text("category"), dur=pl.col("dur_ns")) | {
        "ph": pl.when(is_slice).then(pl.lit("X")).otherwise(pl.lit("C")),
        "members": pl.col("members"),
    }
    return place(first.with_columns(members=texts), events)
