"""Costs of the modules of the network, by their position in it."""

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.report.parts import Figure, Page, Part
from kernelscope.report.parts.cells import label
from kernelscope.report.parts.charts import ICICLE_LAYOUT, icicle
from kernelscope.report.parts.tables import Table
from kernelscope.report.text.cells import Field, Shape, count, heading, lacking, named_table, note, ns
from kernelscope.report.views import missing
from kernelscope.trace import Trace

_INDENT = "  "
ORDER = 90
TABLES = missing.TABLES
PAGE_ORDER = 40
PAGE = Page(
    "modules",
    "Modules",
    "Cost of each nn.Module at its place in the network, with and without the modules inside it.",
)
ON_REQUEST = True
_COLUMNS = (
    "tree", "class", "calls", "operators", "device_total_ns", "device_self_ns", "backward_device_ns",
    "host_total_ns", "host_self_ns", "backward_host_ns", "flops", "backward_flops", "cpu_memory_bytes",
    "device_memory_bytes", "path",
)  # fmt: skip
_MOST_SLICES = 800


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {"modules": analysis.module_table(trace)}


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the modules with the longest time, each below the one that calls it."""
    table = analysis.module_table(trace)
    if table.is_empty():
        return lacking(trace, "modules", "Modules", shape)
    by = "host_total_ns" if table["device_total_ns"].null_count() else "device_total_ns"
    shown = table.with_row_index("_order").sort(by, "_order", descending=[True, False]).head(2 * shape.top)
    rows = [
        {**row, "name": _INDENT * row["depth"] + (row["module"] or "")}
        for row in shown.sort("_order").iter_rows(named=True)
    ]
    fields = [
        Field("device total", ns("device_total_ns")),
        Field("device self", ns("device_self_ns")),
        Field("calls", count("calls")),
        Field("host total", ns("host_total_ns")),
        Field("host self", ns("host_self_ns")),
        Field("backward", ns("backward_device_ns")),
    ]
    found: list[RenderableType] = [heading("Modules"), named_table(rows, "module", fields, shape)]
    if table.height > len(rows):
        found.append(note(f"and {table.height - len(rows):,} more", shape))
    return found


def page(trace: Trace) -> list[Part]:
    """The modules."""
    notes = missing.notes(trace, "modules")
    if notes:
        return [*notes]
    table = analysis.module_table(trace, costs=True)
    indented = pl.lit("\u2003").repeat_by(pl.col("depth").clip(upper_bound=40)).list.join("") + pl.col(
        "module"
    )
    what = (
        "The tree of modules: each before those inside it, in the order of their first calls. "
        "Backward is the time of the gradients of its forward operators."
    )
    shown = table.with_columns(tree=indented)
    return [_figure(table), Table("modules", "Modules", what, shown, _COLUMNS)]


def _figure(table: pl.DataFrame) -> Figure:
    on_gpu = bool((table["device_total_ns"].fill_null(0) > 0).any())
    column = "device_total_ns" if on_gpu else "host_total_ns"
    rows = table.filter(pl.col(column) > 0).with_row_index("_at")
    if rows.height > _MOST_SLICES:
        rows = rows.top_k(_MOST_SLICES, by=column).sort("_at")
    places: dict[str, int] = {}
    names: list[str] = []
    parents: list[int] = []
    values: list[int] = []
    for path, parent, name, value in rows.select("path", "parent_path", "module", column).iter_rows():
        # A module stands behind the one that it is in; without that it cannot be drawn.
        if parent is not None and parent not in places:
            continue
        places[path] = len(names)
        names.append(label(name, 40))
        parents.append(-1 if parent is None else places[parent])
        values.append(value)
    where = "on the GPU" if on_gpu else "on the host"
    what = (
        f"Time {where} of each module including the modules inside it, outermost at the top. Click one to "
        "enlarge it."
    )
    trace = icicle(names, parents, _nested(parents, values))
    return Figure("module-icicle", f"Modules by time {where}", what, [trace], ICICLE_LAYOUT, height=380)


def _nested(parents: list[int], values: list[int]) -> list[int]:
    """``values`` where none is below the sum of those inside, as overlapping work can make it."""
    inside = [0] * len(values)
    grown = list(values)
    for index in range(len(values) - 1, -1, -1):
        grown[index] = max(values[index], inside[index])
        if parents[index] >= 0:
            inside[parents[index]] += grown[index]
    return grown
