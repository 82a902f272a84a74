"""GPU operations: summaries of kernels, copies, memsets and graphs, and one row for each."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import polars as pl

from kernelscope.analysis.grouping import sizes_as_text
from kernelscope.compat.nsys.names import (
    kernel_name_columns,
    with_kernel_names,
    with_range_in_name,
    with_range_keys,
)
from kernelscope.compat.nsys.report import (
    GPU_BY,
    GRAPH,
    HOST_BY,
    KERNEL,
    MEMORY,
    RUNTIME,
    Question,
    Report,
    distribution_headings,
    in_order,
    ordered_parts,
    ordered_summary,
    parse_fields,
    selected,
    share,
    spread,
    summary,
    summary_headings,
    sums_by_text,
)
from kernelscope.trace import Trace

_CATEGORIES = {
    "kernel": "CUDA_KERNEL",
    "memcpy": "MEMORY_OPER",
    "memset": "MEMORY_OPER",
    "graph": "CUDA_GRAPH",
    "api": "CUDA_API",
}


def _work(
    trace: Trace, question: Question, kinds: tuple[str, ...], *columns: str, ranged: bool = True
) -> pl.DataFrame:
    """GPU work of some kinds with the columns that are needed, kernels by the name that is asked for.

    With ``nvtx-name`` the name has the range in front, or the column ``range_row`` if not ``ranged``.
    """
    chosen = ("range_row", *columns) if question.has("nvtx-name") else columns
    frame = selected(trace, trace.gpu_ops, question.by, "kind", *chosen, *kernel_name_columns(question))
    is_of_kind = frame.select(pl.col("kind").is_in(kinds)).to_series()
    # As a rule nothing else was read, and a filter copies what it keeps.
    frame = frame if is_of_kind.all() else frame.filter(is_of_kind)
    return with_kernel_names(frame, trace, question, ranged=ranged) if "name" in columns else frame


def _kernel_sum(trace: Trace, question: Question) -> pl.DataFrame | Iterator[pl.DataFrame]:
    if question.has("nvtx-name"):
        return _kernel_sum_by_range(trace, question)
    frame = _work(trace, question, ("kernel",), "dur_ns", "name")
    return ordered_summary(frame, question.by, "name", tied=["instances"])


def _kernel_sum_by_range(trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
    frame = _work(trace, question, ("kernel",), "dur_ns", "name", ranged=False)
    frame, keys = with_range_keys(trace, frame)
    del trace
    keys = [*question.by, "name", *keys]
    tied = ["instances", "name", *question.by]
    yield from sums_by_text(frame.select("dur_ns", *keys), keys, "dur_ns", with_range_in_name, ascending=tied)


def _kernel_times(trace: Trace, question: Question) -> pl.DataFrame:
    return _work(trace, question, ("kernel",), "dur_ns", "name").select(*question.by, "name", "dur_ns")


def _copy_times(trace: Trace, question: Question) -> pl.DataFrame:
    return _work(trace, question, _COPIES, "dur_ns", "name").drop("kind")


def _copy_sizes(trace: Trace, question: Question) -> pl.DataFrame:
    return _work(trace, question, _COPIES, "bytes", "name").drop("kind")


def _kernel_gb_sum(trace: Trace, question: Question) -> pl.DataFrame:
    frame = _work(trace, question, ("kernel",), "dur_ns", "name", "grid", "block")
    table = sizes_as_text(summary(frame, [*question.by, "grid", "block", "name"]))
    return in_order(table, "total_ns", ascending=["instances", "name", "grid", "block", *question.by])


def _memory_time_sum(trace: Trace, question: Question) -> pl.DataFrame:
    return ordered_summary(_copy_times(trace, question), question.by, "name")


def _memory_size_sum(trace: Trace, question: Question) -> pl.DataFrame:
    table = spread(_copy_sizes(trace, question), [*question.by, "name"], "bytes", "bytes")
    return in_order(table, "total_bytes", ascending=["name", *question.by])


def _work_by_kind(trace: Trace, question: Question) -> pl.DataFrame:
    rows = _work(trace, question, tuple(_CATEGORIES), "dur_ns", "name")
    return summary(rows, [*question.by, "kind", "name"])


def _gpu_sum(trace: Trace, question: Question) -> pl.DataFrame:
    return _by_category(_work_by_kind(trace, question), question)


def _api_gpu_sum(trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
    work = _work_by_kind(trace, question)
    calls = summary(selected(trace, trace.launches, question.by, "dur_ns", "name"), [*question.by, "name"])
    del trace
    texts = pl.col("kind", "name").cast(pl.String)
    parts = [part.with_columns(texts) for part in (calls.with_columns(kind=pl.lit("api")), work)]
    yield _by_category(pl.concat(parts, how="diagonal").with_columns(time_pct=share("total_ns")), question)


def _by_category(table: pl.DataFrame, question: Question) -> pl.DataFrame:
    kind = pl.col("kind").cast(pl.String)
    category = kind.replace_strict(_CATEGORIES, default=None, return_dtype=pl.String)
    ties = ["instances", "name", "kind", *question.by]
    return in_order(table.with_columns(category=category), "total_ns", ascending=ties)


_COPIES = ("memcpy", "memset")
_GPU = {"gpu_ops": ("kind", "dur_ns", "name")}


_TRACE_COLUMNS = (
    "kind", "start_ns", "dur_ns", "correlation", "grid", "block", "registers",
    "static_shared_memory_bytes", "dynamic_shared_memory_bytes", "bytes", "source_memory",
    "destination_memory", "device", "context", "green_context", "stream", "name",
)  # fmt: skip


def _gpu_trace(trace: Trace, question: Question) -> Iterator[pl.DataFrame]:
    named = ("range_row",) if question.has("nvtx-name") else ()
    work = trace.gpu_ops.select(*_TRACE_COLUMNS, *named, *kernel_name_columns(question))
    devices = _device_names(trace)
    # Texts of ranges are all that names need of the trace; the rest goes.
    trace = replace(trace, gpu_ops=trace.gpu_ops.clear())
    for chosen in ordered_parts(work["start_ns"]):
        part = with_kernel_names(work[chosen], trace, question)
        part = part.join(devices, on="device", how="left", maintain_order="left")
        # nsys shows the memory that a memset writes as that of a source.
        is_memset = pl.col("kind") == "memset"
        yield part.with_columns(
            *(
                pl.col(size).arr.get(at).alias(f"{size}_{axis}")
                for size in ("grid", "block")
                for at, axis in enumerate("xyz")
            ),
            bytes_per_s=pl.when(pl.col("dur_ns") > 0).then(pl.col("bytes") * 1e9 / pl.col("dur_ns")),
            source_memory=pl.when(is_memset).then("destination_memory").otherwise("source_memory"),
            destination_memory=pl.when(~is_memset).then("destination_memory"),
        )


def _device_names(trace: Trace) -> pl.DataFrame:
    """Each GPU as ``name (number)``, or the number alone where the recording has no name."""
    names = trace.devices.select("device", text=pl.col("name").cast(pl.String)).unique("device", keep="first")
    number = pl.format("({})", "device")
    return names.select("device", device_name=pl.coalesce(pl.col("text") + " " + number, number))


_named_report = partial(Report, arguments=("base", "mangled", "nvtx-name"))
_kernel_report = partial(_named_report, sources=(KERNEL,), by=GPU_BY)
_copy_report = partial(Report, sources=MEMORY, by=GPU_BY)

REPORTS = (
    _kernel_report(
        name="cuda_gpu_kern_sum",
        doc="CUDA GPU kernel summary",
        fields=parse_fields(summary_headings("Instances"), "Name: name"),
        build=_kernel_sum,
        sample=_kernel_times,
        tables=_GPU,
    ),
    _kernel_report(
        name="cuda_gpu_kern_gb_sum",
        doc="CUDA GPU kernel summary by grid and block",
        fields=parse_fields(summary_headings("Instances"), "GridXYZ: grid, BlockXYZ: block, Name: name"),
        build=_kernel_gb_sum,
        tables={"gpu_ops": (*_GPU["gpu_ops"], "grid", "block")},
    ),
    _copy_report(
        name="cuda_gpu_mem_time_sum",
        doc="CUDA GPU copies and memsets by time",
        fields=parse_fields(summary_headings("Count"), "Operation: name"),
        build=_memory_time_sum,
        sample=_copy_times,
        tables=_GPU,
    ),
    _copy_report(
        name="cuda_gpu_mem_size_sum",
        doc="CUDA GPU copies and memsets by size",
        fields=parse_fields(
            "Total (MB): total_bytes, Count: instances",
            distribution_headings("bytes", unit="MB"),
            "Operation: name",
        ),
        build=_memory_size_sum,
        sample=_copy_sizes,
        sample_columns=("name", "bytes"),
        tables={"gpu_ops": ("kind", "name", "bytes")},
    ),
    _named_report(
        name="cuda_gpu_sum",
        doc="CUDA GPU summary: kernels, copies, memsets and graphs",
        fields=parse_fields(summary_headings("Instances"), "Category: category, Operation: name"),
        build=_gpu_sum,
        sources=(KERNEL, *MEMORY, GRAPH),
        tables=_GPU,
        by=GPU_BY,
    ),
    _named_report(
        name="cuda_api_gpu_sum",
        doc="CUDA API and GPU summary in one",
        fields=parse_fields(summary_headings("Instances"), "Category: category, Operation: name"),
        build=_api_gpu_sum,
        sources=(RUNTIME, KERNEL, *MEMORY, GRAPH),
        tables={"launches": ("name", "dur_ns"), **_GPU},
        linked=False,
        by=HOST_BY,
    ),
    Report(
        name="cuda_gpu_trace",
        doc="CUDA GPU trace: each kernel, copy, memset and graph",
        fields=parse_fields(
            "Start (ns): start_ns, Duration (ns): dur_ns, CorrId: correlation",
            "GrdX: grid_x, GrdY: grid_y, GrdZ: grid_z, BlkX: block_x, BlkY: block_y, BlkZ: block_z",
            "Reg/Trd: registers, StcSMem (MB): static_shared_memory_bytes",
            "DymSMem (MB): dynamic_shared_memory_bytes, Bytes (MB): bytes, Throughput (MB/s): bytes_per_s",
            "SrcMemKd: source_memory, DstMemKd: destination_memory, Device: device_name, Ctx: context",
            "GreenCtx: green_context, Strm: stream, Name: name",
        ),
        build=_gpu_trace,
        sources=(KERNEL, *MEMORY, GRAPH),
        tables={"gpu_ops": _TRACE_COLUMNS, "devices": ()},
        arguments=("base", "mangled", "nvtx-name"),
    ),
)
