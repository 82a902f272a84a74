"""Every piece of GPU work."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.nsys.gpu_sums import GRAPH, KERNEL, MEMORY
from kernelscope.analysis.nsys.report import Field, Figure, Question, Report

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_AXES = ("x", "y", "z")
_COLUMNS = (
    "kind", "start_ns", "dur_ns", "correlation", "grid", "block", "registers",
    "static_shared_memory_bytes", "dynamic_shared_memory_bytes", "bytes", "source_memory",
    "destination_memory", "device", "context", "green_context", "stream", "name",
)  # fmt: skip


def triples(column: str, prefix: str) -> pl.Expr:
    """The three numbers of a grid or block as a struct."""
    numbers = pl.col("_text").str.strip_chars("[]").str.split_exact(", ", 2)
    return numbers.struct.rename_fields([f"{prefix}_{axis}" for axis in _AXES]).alias(column)


def _split(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """Replaces a grid or block by its three numbers; each distinct one is taken apart once."""
    known = frame.select(column).unique().drop_nulls().with_columns(_text=pl.col(column).cast(pl.String))
    numbers = known.with_columns(triples("_numbers", column)).unnest("_numbers")
    names = [f"{column}_{axis}" for axis in _AXES]
    numbers = numbers.select(column, *(pl.col(name).cast(pl.Int32) for name in names))
    return frame.join(numbers, on=column, how="left", maintain_order="left").drop(column)


def _gpu_trace(trace: "Trace", question: Question) -> pl.DataFrame:
    del question
    work = trace.gpu_ops.select("row", *_COLUMNS).sort("start_ns", "row")
    work = _split(_split(work, "grid"), "block")
    # nsys shows the memory that a memset writes as that of a source.
    is_memset = pl.col("kind") == "memset"
    source = pl.when(is_memset).then(pl.col("destination_memory")).otherwise(pl.col("source_memory"))
    target = pl.when(~is_memset).then(pl.col("destination_memory"))
    work = work.with_columns(source_memory=source, destination_memory=target)
    rate = pl.when(pl.col("dur_ns") > 0).then(pl.col("bytes") * 1e9 / pl.col("dur_ns"))
    return work.with_columns(bytes_per_s=rate, device_name=_device_name(trace, work)).drop("row", "kind")


def _device_name(trace: "Trace", work: pl.DataFrame) -> pl.Series:
    """The GPU as ``name (number)``, or the number alone where the recording has no name."""
    names = trace.devices.select("device", text=pl.col("name").cast(pl.String)).unique("device", keep="first")
    number = pl.format("({})", "device")
    shown = names.select(
        "device", shown=pl.coalesce(pl.col("text") + " " + number, number).cast(pl.Categorical)
    )
    return work.select("device").join(shown, on="device", how="left", maintain_order="left")["shown"]


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
