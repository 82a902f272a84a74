"""What operators cost, on the host and on the device."""

import polars as pl

from kernelscope import analysis
from kernelscope.report.html.charts import donut
from kernelscope.report.html.parts import Group, Note, Part, View
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
    ops = sources.ops
    if ops.is_empty():
        text = (
            "The trace has no operators: record them with ProfilerActivity.CPU among the activities,"
            " or for Nsight Systems with torch.autograd.profiler.emit_nvtx()."
        )
        return [Note(text, missing=True)]
    pies: list[Part] = [
        donut(f"pie-{column}", title, what, ops, column)
        for column, (title, what) in _PIES.items()
        if (ops[column] > 0).any()
    ]
    return [*pies, _tables(sources, ops), _kernels(sources)]


def _tables(sources: Sources, ops: pl.DataFrame) -> Group:
    """The operators, and the same by shape, stack and module as far as these were recorded."""
    opens = (
        ("Kernels", "op-kernels", "op", "name"),
        ("Input shapes", "ops-shape", "name", "name"),
        ("Call stacks", "ops-stack", "name", "name"),
        ("Modules", "ops-module", "name", "name"),
    )
    what = "Summed over the calls of one name."
    choices: list[tuple[str, Part]] = [
        ("name", Table("ops", "Operators", what, _shared(ops), ("name", *_FIGURES), opens))
    ]
    recorded = {
        "shape": ("input_dims", "input shapes", "input_types"),
        "stack": ("call_stack", "call stack", None),
        "module": ("module", "module", None),
    }
    for suffix, (column, title, more) in recorded.items():
        if sources.trace.ops[column].null_count() == sources.trace.ops.height:
            continue
        by = ("name", column, *([more] if more else ()))
        table = analysis.op_table(sources.trace, by=by)
        what = f"Summed over the calls of one name that agree in their {title}."
        shown = Table(f"ops-{suffix}", f"Operators by {title}", what, _shared(table), (*by, *_FIGURES))
        choices.append((f"name and {title}", shown))
    return Group("grouping", "Group by", choices)


def _shared(table: pl.DataFrame) -> pl.DataFrame:
    of = "host_self_ns" if table["device_self_ns"].null_count() else "device_self_ns"
    return with_share(table, of)


def _kernels(sources: Sources) -> Table:
    table = analysis.kernel_table(sources.trace, by=("op", "name")).filter(pl.col("op").is_not_null())
    columns = ("op", "name", "calls", "total_ns", "mean_ns", "occupancy_pct", "tensor_cores")
    what = "Kernels by the operator that launched them."
    return Table("op-kernels", "Kernels by operator", what, table, columns, hidden=True)
