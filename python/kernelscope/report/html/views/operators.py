"""What operators cost, on the host and on the device."""

import polars as pl

from kernelscope.analysis.ops.views import op_kernels
from kernelscope.report.html.charts import donut
from kernelscope.report.html.parts import Group, Part, View
from kernelscope.report.html.sources import Sources, with_share
from kernelscope.report.html.tables import Table

_FIGURES = (
    "calls", "device_self_ns", "share_pct", "device_total_ns", "host_self_ns", "host_total_ns",
    "tc_eligible", "tc_self_pct", "tc_total_pct", "cpu_memory_bytes", "cpu_self_memory_bytes",
    "device_memory_bytes", "device_self_memory_bytes",
)  # fmt: skip
_PIES = {
    "device_self_ns": ("Device self", "GPU time launched by the operator but by nothing that it calls."),
    "device_total_ns": ("Device total", "GPU time launched by the operator and by what it calls."),
    "host_self_ns": ("Host self", "Time on the host less operators and runtime calls inside."),
    "host_total_ns": ("Host total", "Wall time on the host, with what it calls."),
}


def view(sources: Sources) -> View:
    """The operators."""
    what = "What operators cost on the host and on the device. Open a row for its kernels, shapes and stacks."
    return View("operators", "Operators", what, _parts(sources))


def _parts(sources: Sources) -> list[Part]:
    ops = sources.ops["name"]
    if ops.is_empty():
        return [*sources.missing("operators")]
    pies: list[Part] = [
        donut(f"pie-{column}", title, what, ops, column)
        for column, (title, what) in _PIES.items()
        if (ops[column] > 0).any()
    ]
    lacks = sources.missing("kernels", "links", "input_shapes", "call_stacks")
    return [*pies, _tables(sources), _kernels(sources), *lacks]


def _tables(sources: Sources) -> Group:
    """The operators, and the same by shape, stack and module as far as these were recorded."""
    part = sources.window.part
    opens = (
        (f"GPU work{' in ' if part else ''}{part}", "op-kernels", "op", "name"),
        ("Input shapes", "ops-shape", "name", "name"),
        ("Call stacks", "ops-stack", "name", "name"),
        ("Modules", "ops-module", "name", "name"),
    )
    what = "Summed over the calls of one name."
    first = Table("ops", "Operators", what, _shared(sources.ops["name"]), ("name", *_FIGURES), opens)
    choices: list[tuple[str, Part]] = [("name", first)]
    for key, title, columns in _MORE:
        if key in sources.ops:
            what = f"Summed over the calls of one name that agree in their {title}."
            if key == "stack" and part:
                what += f" The trace is large, so these are the calls of {part}."
            table = _shared(sources.ops[key])
            shown = Table(f"ops-{key}", f"Operators by {title}", what, table, (*columns, *_FIGURES))
            choices.append((f"name and {title}", shown))
    return Group("grouping", "Group by", choices)


_MORE = (
    ("shape", "input shapes", ("name", "input_dims", "input_types")),
    ("stack", "call stack", ("name", "call_stack")),
    ("module", "module", ("name", "module")),
)


def _shared(table: pl.DataFrame) -> pl.DataFrame:
    of = "host_self_ns" if table["device_self_ns"].null_count() else "device_self_ns"
    return with_share(table, of)


def _kernels(sources: Sources) -> Table:
    window, stretch = sources.window
    table = op_kernels(window)
    known = table.filter(pl.col("op").is_in(sources.ops["name"]["name"].to_list()))
    columns = ("op", "name", "kind", "calls", "total_ns", "self_ns", "min_ns", "max_ns", "share")
    what = "GPU work by the operator around its launch, and by those around that."
    if stretch:
        what += f" The trace is large, so it is that of {stretch}."
    return Table("op-kernels", "GPU work by operator", what, known, columns, hidden=True)
