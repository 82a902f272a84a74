"""Costs of operators on the host and on the device."""

from typing import cast

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.analysis.ops.table import OWN_TIMES, op_tables
from kernelscope.report.parts import Group, Page, Part
from kernelscope.report.parts.charts import donut
from kernelscope.report.parts.columns import COLUMNS
from kernelscope.report.parts.tables import Table, with_share
from kernelscope.report.parts.window import window_of
from kernelscope.report.text.cells import Field, Shape, count, heading, note, ns, share, top_table
from kernelscope.report.views import missing
from kernelscope.trace import Trace

ORDER = 20
TABLES = missing.TABLES
PAGE = Page(
    "operators",
    "Operators",
    "Costs of operators on the host and on the device. Open a row for its kernels, shapes and stacks.",
)
_FIGURES = (
    "calls", "device_self_ns", "share_pct", "device_total_ns", "host_self_ns", "host_total_ns",
    "tc_eligible", "tc_self_pct", "tc_total_pct", "cpu_memory_bytes", "cpu_self_memory_bytes",
    "device_memory_bytes", "device_self_memory_bytes",
)  # fmt: skip
_MORE = {
    "shape": ("input shapes", ("name", "input_dims", "input_types")),
    "stack": ("call stack", ("name", "call_stack")),
    "module": ("module", ("name", "module")),
}


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {"ops": analysis.op_table(trace)}


def more_frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames that only a folder of files has."""
    return {"ops_by_shape": analysis.op_table(trace, by=("name", "input_dims", "input_types"))}


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the operators with the highest cost: by device self time, and by host self time."""
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


def page(trace: Trace) -> list[Part]:
    """The operators."""
    tables = _groupings(trace)
    ops = tables["name"]
    if ops.is_empty():
        return [*missing.notes(trace, "operators")]
    # Not of totals, which overlap.
    pies: list[Part] = [
        donut(f"pie-{column}", COLUMNS[column].title, COLUMNS[column].what, ops, column)
        for column in OWN_TIMES
        if (ops[column] > 0).any()
    ]
    lacks = missing.notes(trace, "kernels", "links", "input_shapes", "call_stacks")
    return [*pies, _tables(trace, tables), _kernels(trace, ops["name"]), *lacks]


def _groupings(trace: Trace) -> dict[str, pl.DataFrame]:
    """The operators by name, and by what else was recorded."""
    ops = trace.ops
    recorded = {key: by for key, (_, by) in _MORE.items() if ops[by[1]].null_count() < ops.height}
    # All at once, but for stacks: those that are put together from Python frames take their time.
    at_once = {"name": ("name",), **recorded}
    at_once.pop("stack", None)
    found = dict(zip(at_once, op_tables(trace, tuple(at_once.values())), strict=True))
    if not missing.notes(trace, "call_stacks"):
        found["stack"] = analysis.op_table(window_of(trace).trace, by=_MORE["stack"][1])
    return found


def _tables(trace: Trace, tables: dict[str, pl.DataFrame]) -> Group:
    """The operators, and the same by shape, stack and module as far as these were recorded."""
    part = window_of(trace).part
    opens = (
        (f"GPU operations{' in ' if part else ''}{part}", "op-kernels", "op", "name"),
        ("Input shapes", "ops-shape", "name", "name"),
        ("Call stacks", "ops-stack", "name", "name"),
        ("Modules", "ops-module", "name", "name"),
    )
    what = "Summed over the calls of one name."
    first = Table("ops", "Operators", what, _shared(tables["name"]), ("name", *_FIGURES), opens)
    choices: list[tuple[str, Part]] = [("name", first)]
    for key, (title, by) in _MORE.items():
        if key in tables:
            what = f"Summed over the calls with equal name and {title}."
            if key == "stack" and part:
                what += f" The trace is large, so these are the calls of {part}."
            table = _shared(tables[key])
            shown = Table(f"ops-{key}", f"Operators by {title}", what, table, (*by, *_FIGURES))
            choices.append((f"name and {title}", shown))
    return Group("grouping", "Group by", choices)


def _shared(table: pl.DataFrame) -> pl.DataFrame:
    of = "host_self_ns" if table["device_self_ns"].null_count() else "device_self_ns"
    return with_share(table, of)


def _kernels(trace: Trace, names: pl.Series) -> Table:
    window, stretch = window_of(trace)
    table = analysis.op_kernels(window)
    known = table.filter(pl.col("op").is_in(names.to_list()))
    columns = ("op", "name", "kind", "calls", "total_ns", "self_ns", "min_ns", "max_ns", "share")
    what = "GPU time by the operator around its launch, and by the operators around that."
    if stretch:
        what += f" The trace is large, so this covers {stretch}."
    return Table("op-kernels", "GPU time by operator", what, known, columns, hidden=True)
