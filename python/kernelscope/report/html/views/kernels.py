"""What kernels cost, how they were launched and how near they come to the roofs."""

from typing import cast

import polars as pl

from kernelscope.analysis.grouping import sizes_as_text
from kernelscope.analysis.launches.table import kernels_by_launch
from kernelscope.report.html.charts import donut, donut_height, donut_layout, slice_trace
from kernelscope.report.html.parts import Figure, Group, Part, View
from kernelscope.report.html.sources import Sources, with_share
from kernelscope.report.html.tables import Table
from kernelscope.units import format_ns

_LAUNCH = ("name", "op", "grid", "block", "registers", "shared_memory_bytes")
_LIMITS = (
    "limited_by", "theoretical_occupancy_pct", "resident_blocks", "waves", "tail_pct", "op_tc_eligible",
    "device",
)  # fmt: skip
_FIGURES = (
    "calls", "total_ns", "share_pct", "mean_ns", "median_ns", "min_ns", "max_ns", "std_ns",
    "blocks_per_sm", "occupancy_pct", "tensor_cores", "intensity", "flops_per_s", "attained_pct", "bound",
)  # fmt: skip


def view(sources: Sources) -> View:
    """The kernels."""
    what = "What ran on the GPU, how full each launch made it, and how near to the roofs it came."
    return View("kernels", "Kernels", what, _parts(sources))


def _parts(sources: Sources) -> list[Part]:
    kernels = sources.kernels
    if kernels.is_empty():
        return [*sources.missing("kernels")]
    parts: list[Part] = [
        donut("pie-kernels", "Time by kernel", "Summed durations of kernels by name.", kernels, "total_ns"),
        _tensor_cores(kernels),
    ]
    roofs = sources.roofline("kernel").select("kernel", "intensity", "flops_per_s", "attained_pct", "bound")
    named = with_share(kernels, "total_ns").join(roofs, left_on="name", right_on="kernel", how="left")
    opens = (("Launches", "launches", "name", "name"),)
    what = "Summed over the launches of one name."
    by_launch = with_share(sizes_as_text(kernels_by_launch(sources.trace)), "total_ns")
    choices: list[tuple[str, Part]] = [
        ("name", Table("kernels", "Kernels", what, named, ("name", *_FIGURES), opens)),
        (
            "name, operator and launch size",
            Table(
                "launches",
                "Kernels by operator and launch size",
                "Summed over the launches that agree in name, operator, grid, block, registers and memory.",
                by_launch,
                (*_LAUNCH, *_FIGURES, *_LIMITS),
            ),
        ),
    ]
    lacks = sources.missing("launch_sizes", "gpu_limits")
    return [*parts, Group("grouping", "Group by", choices), *lacks]


def _tensor_cores(kernels: pl.DataFrame) -> Figure:
    sums = {
        name: cast("int | None", kernels.filter(condition)["total_ns"].sum()) or 0
        for name, condition in (
            ("on tensor cores", pl.col("tensor_cores")),
            ("without", ~pl.col("tensor_cores")),
            ("not known", pl.col("tensor_cores").is_null()),
        )
    }
    known = {name: value for name, value in sums.items() if value}
    colors = {"on tensor cores": "--kernel", "without": "--rest", "not known": "--other"}
    slices = slice_trace(list(known), list(known.values()), [colors[name] for name in known])
    layout = donut_layout(format_ns(sum(known.values())))
    what = "Kernel time on tensor cores, as the names of the kernels tell."
    return Figure(
        "pie-tensor-cores", "Tensor cores", what, [slices], layout, height=donut_height(9), narrow=True
    )
