"""Unified memory: transfers, and the page faults that caused them."""

from dataclasses import replace
from functools import partial

import polars as pl

from kernelscope.compat.nsys.report import MEMORY, Question, Report, in_order, parse_fields
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

_CPU_FAULTS = "CUDA_UM_CPU_PAGE_FAULT_EVENTS"
_GPU_FAULTS = "CUDA_UM_GPU_PAGE_FAULT_EVENTS"
_MOST_ADDRESSES = 10
_DIRECTIONS = {"Unified Host-to-Device": "to_device_bytes", "Unified Device-to-Host": "to_host_bytes"}


def _argument(trace: Trace, frame: pl.DataFrame, key: str) -> pl.DataFrame:
    """Adds a number that the recorder stored beside the columns."""
    values = trace.extra_args.filter(pl.col("key").cast(pl.String) == key)
    numbers = values.select("row", pl.col("value").cast(pl.String).cast(pl.Int64).alias(key))
    return frame.join(numbers, on="row", how="left", maintain_order="left")


def _migrations(trace: Trace) -> pl.DataFrame:
    """Bytes and time of migrations between host and device, by address."""
    kind = pl.col("copy_kind").cast(pl.String)
    moved = trace.gpu_ops.filter(kind.is_in(list(_DIRECTIONS)))
    moved = _argument(trace, moved.select("row", "bytes", "dur_ns", kind), "virtual_address")
    sums = [
        pl.col("bytes").filter(pl.col("copy_kind") == direction).sum().alias(column)
        for direction, column in _DIRECTIONS.items()
    ]
    return moved.group_by("virtual_address").agg(*sums, pl.col("bytes").sum(), pl.col("dur_ns").sum())


def _faults(trace: Trace, category: str, column: str) -> pl.DataFrame:
    """Page faults by address; a GPU counts several in one event."""
    events = trace.spans.filter(pl.col("category").cast(pl.String) == category).select("row", "name")
    events = _argument(trace, _argument(trace, events, "virtual_address"), "page_faults")
    return events.group_by("virtual_address").agg(pl.col("page_faults").fill_null(1).sum().alias(column))


def _by_address(trace: Trace) -> pl.DataFrame:
    table = _migrations(trace)
    for category, column in (("um_cpu_page_fault", "cpu_faults"), ("um_gpu_page_fault", "gpu_faults")):
        faults = _faults(trace, category, column)
        table = table.join(faults, on="virtual_address", how="full", coalesce=True, nulls_equal=True)
    return table.with_columns(
        pl.col(*_DIRECTIONS.values(), "bytes", "dur_ns", "cpu_faults", "gpu_faults").fill_null(0)
    )


def _sum(trace: Trace, question: Question) -> pl.DataFrame:
    text = question.arguments.get("rows", str(_MOST_ADDRESSES))
    if not text.isdecimal():
        raise InvalidArgumentError(f"rows={text} is not a whole number of at least 0")
    rate = pl.when(pl.col("dur_ns") > 0).then(pl.col("bytes") * 1e9 / pl.col("dur_ns"))
    table = _by_address(trace).filter(pl.col("bytes") > 0).with_columns(bytes_per_s=rate)
    return in_order(table, "bytes_per_s", ascending=["virtual_address"]).head(int(text))


def _total_sum(trace: Trace, question: Question) -> pl.DataFrame:
    del question
    address = pl.col("virtual_address")
    table = _by_address(trace)
    sums = pl.col(*_DIRECTIONS.values(), "cpu_faults", "gpu_faults").sum()
    return table.select(sums, least=address.min(), greatest=address.max()).filter(pl.lit(table.height > 0))


def _cpu_faults(trace: Trace, question: Question) -> pl.DataFrame:
    del question
    faults = trace.spans.filter(pl.col("category").cast(pl.String) == "um_cpu_page_fault")
    table = faults.group_by("name").agg(pl.len().cast(pl.Int64).alias("faults"))
    return in_order(table, "faults", ascending=["name"])


_TABLES = {
    "gpu_ops": ("kind", "copy_kind", "bytes", "start_ns", "dur_ns"),
    "spans": ("name", "category", "start_ns", "dur_ns"),
    "extra_args": (),
}
_MOVED = parse_fields(
    "HtoD Migration Size (MB): to_device_bytes, DtoH Migration Size (MB): to_host_bytes",
    "CPU Page Faults: cpu_faults, GPU PageFaults: gpu_faults",
)

_migration_report = partial(Report, sources=(MEMORY[0], _CPU_FAULTS, _GPU_FAULTS), tables=_TABLES)

REPORTS = (
    _migration_report(
        name="um_sum",
        doc="Unified memory by address: the ten fastest",
        fields=(
            *parse_fields("Virtual Address: virtual_address"),
            *_MOVED,
            *parse_fields("Migration Throughput (MB/s): bytes_per_s"),
        ),
        build=_sum,
        arguments=("rows",),
    ),
    _migration_report(
        name="um_total_sum",
        doc="Unified memory in total",
        fields=(
            *(replace(field, heading=f"Total {field.heading}") for field in _MOVED),
            *parse_fields("Minimum Virtual Address: least, Maximum Virtual Address: greatest"),
        ),
        build=_total_sum,
    ),
    Report(
        name="um_cpu_page_faults_sum",
        doc="Page faults of the host, by instruction",
        fields=parse_fields("CPU Page Faults: faults, CPU Instruction Address: name"),
        build=_cpu_faults,
        sources=(_CPU_FAULTS,),
        tables={"spans": ("name", "category")},
    ),
)
