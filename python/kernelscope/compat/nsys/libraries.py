"""Calls and events of libraries other than CUDA, system calls, and network devices that wait to send."""

from collections.abc import Mapping
from functools import partial

import polars as pl

from kernelscope.compat.nsys.report import (
    HOST_BY,
    Question,
    Report,
    in_order,
    ordered_summary,
    parse_fields,
    selected,
    summary_headings,
)
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

# Ticks per ms above which a device counts as congested.
_TICKS = 10_000
_WAITS = "IB: Send waits"
_EVENTS = ("name", "category", "start_ns", "dur_ns")
_PAIRING = ("track", "correlation")


def _summary(
    name: str,
    doc: str,
    *sources: str,
    categories: Mapping[str, str],
    count: str = "Num Calls",
    kind: str = "",
    named: str = "Name",
    lasting: bool = False,
    until_last: str = "",
    paired: bool = False,
) -> Report:
    """A summary of the slices of some ``categories`` by their name.

    ``kind`` is the heading of a column with what each category is called, if the rows are by it, too.
    ``lasting`` leaves out names that took no time; a slice without an end lasts to the last moment of
    any whose category begins with ``until_last``. ``paired`` slices are calls, of which one opens what
    another one closes.
    """
    kinds = ("event_kind",) * bool(kind)
    columns = (*kinds, "name", "dur_ns")

    def sample(trace: Trace, question: Question) -> pl.DataFrame:
        spans = selected(trace, trace.spans, question.by, *_EVENTS, *_PAIRING)
        category = pl.col("category").cast(pl.String)
        if until_last:
            spans = _ended(spans, until_last)
        spans = spans.filter(category.is_in(list(categories)))
        if paired:
            spans = _paired(spans)
        # As everywhere a version of a function is no part of its name.
        plain = pl.col("name").cast(pl.String).str.replace(r"_v\d{4,}$", "")
        called = category.replace_strict(categories, default=None, return_dtype=pl.String)
        values = spans.with_columns(name=plain, event_kind=called).select(*question.by, *columns)
        return values.filter(pl.col("dur_ns").sum().over("name") > 0) if lasting else values

    def build(trace: Trace, question: Question) -> pl.DataFrame:
        return ordered_summary(sample(trace, question), question.by, *kinds, "name")

    return Report(
        name=name,
        doc=doc,
        fields=parse_fields(
            summary_headings(count), *(f"{kind}: {column}" for column in kinds), f"{named}: name"
        ),
        build=build,
        sample=sample,
        sample_columns=columns,
        sources=sources,
        tables={"spans": (*_EVENTS, *_PAIRING)},
        by=HOST_BY,
    )


def _ended(spans: pl.DataFrame, prefix: str) -> pl.DataFrame:
    """Gives slices without an end the last moment of all whose category begins with ``prefix``."""
    group = spans.filter(pl.col("category").cast(pl.String).str.starts_with(prefix))
    last = group.select((pl.col("start_ns") + pl.col("dur_ns").fill_null(0)).max()).item()
    return group.with_columns(pl.col("dur_ns").fill_null(pl.lit(last, pl.Int64) - pl.col("start_ns")))


def _paired(calls: pl.DataFrame) -> pl.DataFrame:
    """What lies between the calls that open, which have a name, and those that close, of the same number."""
    is_open = pl.col("name").is_not_null()
    closing = calls.filter(~is_open).select(*_PAIRING, pl.col("start_ns").alias("closed_ns"))
    found = calls.filter(is_open).join(closing, on=_PAIRING, how="inner", maintain_order="left")
    return found.with_columns(dur_ns=pl.col("closed_ns") - pl.col("start_ns") - pl.col("dur_ns"))


def _details(trace: Trace, spans: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Adds numbers that the recorder stored beside the columns; null where there is none."""
    known = trace.extra_args.select("row", pl.col("key", "value").cast(pl.String))
    known = known.filter(pl.col("row").is_in(spans["row"].implode()))
    for key in keys:
        found = known.filter(key=key).select("row", pl.col("value").cast(pl.Int64).alias(key))
        spans = spans.join(found, on="row", how="left", maintain_order="left")
    return spans


def _noted(trace: Trace, **columns: str) -> pl.DataFrame:
    """What metadata says of threads: the number named by each of ``columns``, by track."""
    notes = trace.metadata.select("track", pl.col("name", "value").cast(pl.String))
    table = notes.select("track").unique()
    for column, name in columns.items():
        found = notes.filter(name=name).unique("track", keep="first", maintain_order=True)
        found = found.select("track", pl.col("value").cast(pl.Int64, strict=False).alias(column))
        table = table.join(found, on="track", how="left")
    return table


def _of(trace: Trace, *categories: str) -> pl.DataFrame:
    spans = trace.spans.filter(pl.col("category").cast(pl.String).is_in(categories))
    return spans.sort("start_ns", "row")


def _mpi_trace(trace: Trace, question: Question) -> pl.DataFrame:
    del question
    spans = _details(
        trace, _of(trace, *_MPI), "tag", "peer_rank", "root_rank", "bytes", "sent_bytes", "received_bytes"
    )
    ranks = _noted(trace, mpi_rank="mpi_rank")
    spans = spans.join(ranks, on="track", how="left", maintain_order="left")
    return spans.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))


def _vulkan_trace(trace: Trace, question: Question) -> pl.DataFrame:
    del question
    calls = _details(trace, _of(trace, "vulkan_api"), "event_class", "context")
    noted = _noted(trace, priority="thread_priority")
    names = trace.threads.select("track", "thread_name")
    for frame in (noted, names):
        calls = calls.join(frame, on="track", how="left", maintain_order="left")
    return calls


def _congestion(trace: Trace, question: Question) -> pl.DataFrame:
    text = question.arguments.get("ticks_threshold", str(_TICKS))
    if not text.isdecimal():
        raise InvalidArgumentError(f"ticks_threshold={text} is not a whole number of at least 0")
    category = pl.col("category").cast(pl.String) == "network_metrics"
    waits = trace.counters.filter(category, pl.col("counter").cast(pl.String) == _WAITS)
    waits = waits.filter(pl.col("value") > int(text))
    # The reader calls a device by its name and GUID, and a switch by its kind and GUID.
    parts = pl.col("name").cast(pl.String).str.extract_groups(r"^(?<name>.*) (?<guid>0x[0-9a-f]+)$")
    name = parts.struct.field("name")
    waits = waits.select(
        "row",
        "start_ns",
        (pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns"),
        "dur_ns",
        pl.col("value").alias("ticks_per_ms"),
        parts.struct.field("guid").alias("guid"),
        pl.when(name != "switch").then(name).alias("device_name"),
    )
    return in_order(waits, ascending=["start_ns", "guid", "row"])


_MPI = {
    "mpi_p2p": "p2p",
    "mpi_start_wait": "start-wait",
    "mpi_other": "other",
    "mpi_collective": "collectives",
}
_MPI_TABLES = ("MPI_P2P_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS", "MPI_COLLECTIVES_EVENTS")
_VIDEO = {"nvvideo_encoder": "Encoder", "nvvideo_decoder": "Decoder", "nvvideo_jpeg": "JPEG"}

_ranges = partial(_summary, count="Instances", named="Range")

REPORTS = (
    _summary(
        "mpi_event_sum",
        "MPI events by kind and name",
        *_MPI_TABLES,
        categories=_MPI,
        count="Instances",
        kind="Source",
    ),
    Report(
        name="mpi_event_trace",
        doc="MPI events with ranks and sizes",
        fields=parse_fields(
            "Start (ns): start_ns, End (ns): end_ns, Duration (ns): dur_ns, Event: name, Pid: pid, Tid: tid",
            "Tag: tag, Rank: mpi_rank, PeerRank: peer_rank, RootRank: root_rank, Size (MB): bytes",
            "CollSendSize (MB): sent_bytes, CollRecvSize (MB): received_bytes",
        ),
        build=_mpi_trace,
        sources=_MPI_TABLES,
        tables={"spans": _EVENTS, "extra_args": (), "metadata": ()},
    ),
    _summary(
        "openmp_sum", "OpenMP events", "OPENMP_EVENT_KIND_*", categories={"openmp": "OpenMP"}, count="Count"
    ),
    _summary(
        "openacc_sum", "OpenACC events", "CUPTI_ACTIVITY_KIND_OPENACC_*", categories={"openacc": "OpenACC"}
    ),
    _summary("syscall_sum", "System calls", "SYSCALL", categories={"syscall": "System call"}),
    _summary(
        "nvvideo_api_sum",
        "Calls of NvVideo's encoder, decoder and JPEG",
        "NVVIDEO_ENCODER_API",
        "NVVIDEO_DECODER_API",
        "NVVIDEO_JPEG_API",
        categories=_VIDEO,
        kind="Event Type",
    ),
    _summary("vulkan_api_sum", "Vulkan calls", "VULKAN_API", categories={"vulkan_api": "Vulkan"}),
    Report(
        name="vulkan_api_trace",
        doc="Vulkan calls one by one",
        fields=parse_fields(
            "Start (ns): start_ns, Duration (ns): dur_ns, Name: name, Event Class: event_class",
            "Context: context, CorrID: correlation, Pid: pid, Tid: tid, T-Pri: priority",
            "Thread Name: thread_name",
        ),
        build=_vulkan_trace,
        sources=("VULKAN_API",),
        tables={"spans": (*_EVENTS, "correlation"), "extra_args": (), "metadata": (), "threads": ()},
    ),
    _ranges(
        "vulkan_marker_sum",
        "Vulkan labels on the host",
        "VULKAN_DEBUG_API",
        categories={"vulkan_marker": "Vulkan"},
        lasting=True,
        paired=True,
    ),
    _ranges(
        "vulkan_gpu_marker_sum",
        "Vulkan labels on the GPU",
        "VULKAN_WORKLOAD",
        categories={"vulkan_gpu_marker": "Vulkan"},
        lasting=True,
    ),
    _ranges(
        "opengl_khr_range_sum",
        "OpenGL KHR_debug groups on the host",
        "KHR_DEBUG_EVENTS",
        categories={"opengl_khr_range": "OpenGL"},
        lasting=True,
        until_last="opengl_khr",
    ),
    _ranges(
        "opengl_khr_gpu_range_sum",
        "OpenGL KHR_debug groups on the GPU",
        "KHR_DEBUG_EVENTS",
        categories={"opengl_khr_gpu_range": "OpenGL"},
        lasting=True,
        until_last="opengl_khr",
    ),
    Report(
        name="network_congestion",
        doc="Times when network devices wait to send",
        fields=parse_fields(
            "Start (ns): start_ns, End (ns): end_ns, Duration (ns): dur_ns",
            "Send wait rate: ticks_per_ms, GUID: guid, Name: device_name",
        ),
        build=_congestion,
        sources=("NET_NIC_METRIC", "NET_IB_SWITCH_METRIC"),
        tables={"counters": ("name", "category", "start_ns", "dur_ns", "counter", "value")},
        arguments=("ticks_threshold",),
    ),
)
