"""What the modules of the network cost, where they stand in it."""

import polars as pl

from kernelscope.analysis.modules.tree import module_table
from kernelscope.report.html.cells import label
from kernelscope.report.html.charts import ICICLE_LAYOUT, icicle
from kernelscope.report.html.parts import Figure, Part, View
from kernelscope.report.html.sources import Sources
from kernelscope.report.html.tables import Table

_COLUMNS = (
    "tree", "class", "calls", "operators", "device_total_ns", "device_self_ns", "backward_device_ns",
    "host_total_ns", "host_self_ns", "backward_host_ns", "flops", "backward_flops", "cpu_memory_bytes",
    "device_memory_bytes", "path",
)  # fmt: skip
_MOST_SLICES = 800


def view(sources: Sources) -> View:
    """The modules."""
    what = "What each nn.Module cost where it stands in the network, with what is inside it and without."
    return View("modules", "Modules", what, _parts(sources))


def _parts(sources: Sources) -> list[Part]:
    notes = sources.missing("modules")
    if notes:
        return [*notes]
    table = module_table(sources.trace, costs=True)
    indented = pl.lit("\u2003").repeat_by(pl.col("depth").clip(upper_bound=40)).list.join("") + pl.col(
        "module"
    )
    what = (
        "The tree of modules: each before those inside it, in the order of their first calls. Backward is the"
        " time of the gradients of what ran in a module."
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
    what = f"Time {where} of each module with what is inside it, outermost on top. Click one to enlarge it."
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
