"""The views beyond the report's own tables, as frames by the names of their files."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope import analysis

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def view_frames(trace: "Trace") -> dict[str, pl.DataFrame]:
    """The overview, modules, memory, launch sizes, and what is missing."""
    return {
        "overview": analysis.overview(trace),
        "modules": analysis.module_table(trace),
        "memory": analysis.memory_summary(trace),
        "memory_peak": analysis.memory_peak(trace),
        "memory_by_op": analysis.memory_table(trace),
        "kernels_by_launch": analysis.kernels_by_launch(trace),
        "op_kernels": analysis.op_kernels(trace),
        "gpu_timeline": analysis.gpu_timeline(trace),
        "missing_views": analysis.missing_views(trace),
    }
