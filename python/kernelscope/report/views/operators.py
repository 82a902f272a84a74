"""The operators that cost most."""

from typing import TYPE_CHECKING, cast

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.report.cells import Field, Shape, count, heading, note, ns, share, top_table

if TYPE_CHECKING:
    from kernelscope.trace import Trace

ORDER = 20


def frames(trace: "Trace") -> dict[str, pl.DataFrame]:
    """The frames of the view, by the names of their files."""
    return {"ops": analysis.op_table(trace)}


def more_frames(trace: "Trace") -> dict[str, pl.DataFrame]:
    """What only a folder of files has."""
    return {"ops_by_shape": analysis.op_table(trace, by=("name", "input_dims", "input_types"))}


def text(trace: "Trace", shape: Shape) -> list[RenderableType]:
    """The operators that cost most: by device self time, and by host self time."""
    ops = analysis.op_table(trace)
    found: list[RenderableType] = []
    if ops.is_empty():
        return [heading("Operators"), note("The trace has no operators.", shape)]
    device = (
        cast("int | None", ops["device_self_ns"].sum()) if ops["device_self_ns"].null_count() == 0 else None
    )
    host = cast(int, ops["host_self_ns"].sum())
    if device:
        fields = [
            Field("device self", ns("device_self_ns")),
            Field("share", share("device_self_ns", device)),
            Field("calls", count("calls")),
            Field("device total", ns("device_total_ns")),
            Field("host self", ns("host_self_ns")),
            Field("host total", ns("host_total_ns")),
        ]
        found += top_table(ops, "device_self_ns", "Operators by their own time on the device", fields, shape)
    fields = [
        Field("host self", ns("host_self_ns")),
        Field("share", share("host_self_ns", host)),
        Field("calls", count("calls")),
        Field("host total", ns("host_total_ns")),
    ]
    if device:
        fields += [Field("device self", ns("device_self_ns")), Field("device total", ns("device_total_ns"))]
    return found + top_table(ops, "host_self_ns", "Operators by their own time on the host", fields, shape)
