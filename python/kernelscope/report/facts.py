"""What a report says of the file itself."""

from typing import TYPE_CHECKING

import polars as pl
from rich.console import Group, RenderableType
from rich.table import Table

from kernelscope.report.cells import Shape, plain
from kernelscope.report.names import safe
from kernelscope.units import format_bytes, format_count

if TYPE_CHECKING:
    from kernelscope.meta import TraceMeta
    from kernelscope.trace import Trace


_ABBREVIATED = ("cuda", "hip", "nccl", "cupti")


def header(trace: "Trace", shape: Shape) -> RenderableType:
    """The file, what recorded it, and the machine."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim" if shape.color else "")
    grid.add_column(overflow="fold")
    for name, value in trace_facts(trace).items():
        if value:
            grid.add_row(f"  {name}", plain(safe(value), shape))
    path = plain(safe(trace.meta.path), shape)
    path.stylize("bold")
    path.no_wrap, path.overflow = False, "fold"
    return Group(path, grid)


def trace_facts(trace: "Trace") -> dict[str, str]:
    """What is known of the file, by name; an empty text is not known."""
    meta = trace.meta
    events = f"{format_count(meta.kept)} of {format_count(meta.seen)} read"
    return {
        "format": format_text(meta),
        "events": events + (f", {format_count(meta.dropped)} dropped" if meta.dropped else ""),
        "recorder": meta.recorder or "",
        "rank": "" if meta.rank is None else f"{meta.rank} of {meta.world_size or '?'}",
        "host": meta.host or "",
        "GPUs": _gpus(trace),
        "versions": versions_text(meta),
    }


def format_text(meta: "TraceMeta") -> str:
    """The format of the file and its size, as read and as stored."""
    size = format_bytes(meta.content_bytes)
    if meta.compression != "none":
        size += f" ({format_bytes(meta.file_bytes)} of {meta.compression})"
    return f"{meta.format}, {size}"


def versions_text(meta: "TraceMeta") -> str:
    """The versions that the recorder noted, in a row."""
    return ", ".join(_version(key, str(value)) for key, value in meta.versions.items())


def _version(key: str, value: str) -> str:
    """A version as people write it; CUDA's 12090 is 12.9 and HIP's 60443483 is 6.4.43483."""
    name = key.removesuffix("_version").replace("_", " ")
    if value.isdecimal() and key.startswith("cuda_"):
        value = f"{int(value) // 1000}.{int(value) % 1000 // 10}"
    elif value.isdecimal() and key.startswith("hip_"):
        value = f"{int(value) // 10**7}.{int(value) // 10**5 % 100}.{int(value) % 10**5}"
    vendor, gap, rest = name.partition(" ")
    return f"{vendor.upper() if vendor in _ABBREVIATED else vendor}{gap}{rest} {value}"


def _gpus(trace: "Trace") -> str:
    """The GPUs that worked, those of one name counted together."""
    used = trace.gpu_ops.select(pl.col("device").drop_nulls().unique())
    named = used.join(trace.devices.select("device", pl.col("name").cast(pl.String)), on="device", how="left")
    kinds = (
        named.group_by(pl.col("name").fill_null("unnamed GPU"))
        .agg(pl.len(), pl.col("device").min())
        .sort("device")
    )
    found = ", ".join(f"{number} x {name}" for name, number, _ in kinds.iter_rows())
    described = trace.devices["name"].drop_nulls().len()
    return found + (f" (of {described} in the machine)" if found and described > used.height else "")
