"""Every piece of GPU work."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from kernelscope.compat.nsys.gpu_sums import GRAPH, KERNEL, MEMORY
from kernelscope.compat.nsys.ordering import ordered_parts
from kernelscope.compat.nsys.report import Field, Figure, Question, Report

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_AXES = ("x", "y", "z")
_COLUMNS = (
    "kind", "start_ns", "dur_ns", "correlation", "grid", "block", "registers",
    "static_shared_memory_bytes", "dynamic_shared_memory_bytes", "bytes", "source_memory",
    "destination_memory", "device", "context", "green_context", "stream", "name",
)  # fmt: skip


def _split(column: pl.Series) -> pl.DataFrame:
    """The three numbers of each distinct grid or block."""
    known = pl.DataFrame({column.name: column.unique().drop_nulls()})
    parts = pl.col(column.name).cast(pl.String).str.strip_chars("[]").str.split_exact(", ", 2).struct
    numbers = {f"{column.name}_{axis}": parts[at].cast(pl.Int32) for at, axis in enumerate(_AXES)}
    return known.with_columns(**numbers)


def _gpu_trace(trace: "Trace", question: Question) -> Iterator[pl.DataFrame]:
    del question
    work = trace.gpu_ops.select(_COLUMNS)
    devices = _device_names(trace)
    del trace
    for chosen in ordered_parts(work["start_ns"]):
        part = work[chosen]
        of_part = ((_split(part["grid"]), "grid"), (_split(part["block"]), "block"), (devices, "device"))
        for numbers, column in of_part:
            part = part.join(numbers, on=column, how="left", maintain_order="left")
        # nsys shows the memory that a memset writes as that of a source.
        is_memset = pl.col("kind") == "memset"
        yield part.with_columns(
            bytes_per_s=pl.when(pl.col("dur_ns") > 0).then(pl.col("bytes") * 1e9 / pl.col("dur_ns")),
            source_memory=pl.when(is_memset).then("destination_memory").otherwise("source_memory"),
            destination_memory=pl.when(~is_memset).then("destination_memory"),
        )


def _device_names(trace: "Trace") -> pl.DataFrame:
    """Each GPU as ``name (number)``, or the number alone where the recording has no name."""
    names = trace.devices.select("device", text=pl.col("name").cast(pl.String)).unique("device", keep="first")
    number = pl.format("({})", "device")
    return names.select("device", device_name=pl.coalesce(pl.col("text") + " " + number, number))


REPORTS = (
    Report(
        name="cuda_gpu_trace",
        doc="CUDA GPU trace: every kernel, copy, memset and graph execution",
        fields=(
            Field("Start (ns)", "start_ns"),
            Field("Duration (ns)", "dur_ns"),
            Field("CorrId", "correlation"),
            *(Field(f"Grd{axis.upper()}", f"grid_{axis}") for axis in _AXES),
            *(Field(f"Blk{axis.upper()}", f"block_{axis}") for axis in _AXES),
            Field("Reg/Trd", "registers"),
            Field("StcSMem (MB)", "static_shared_memory_bytes", Figure.MEGABYTES),
            Field("DymSMem (MB)", "dynamic_shared_memory_bytes", Figure.MEGABYTES),
            Field("Bytes (MB)", "bytes", Figure.MEGABYTES),
            Field("Throughput (MB/s)", "bytes_per_s", Figure.MEGABYTES),
            Field("SrcMemKd", "source_memory"),
            Field("DstMemKd", "destination_memory"),
            Field("Device", "device_name"),
            Field("Ctx", "context"),
            Field("GreenCtx", "green_context"),
            Field("Strm", "stream"),
            Field("Name", "name"),
        ),
        build=_gpu_trace,
        sources=(KERNEL, *MEMORY, GRAPH),
        tables={
            "gpu_ops": _COLUMNS,
            "devices": (),
        },
    ),
)  # fmt: skip
