"""Questions about a trace: frames in, frames out.

Every function takes a :class:`kernelscope.Trace` and gives a ``polars.DataFrame`` whose columns its
documentation names with their units. Unknown is null, never 0.
"""

from kernelscope.analysis.averages import key_averages
from kernelscope.analysis.costs import costs
from kernelscope.analysis.counters import counters_with_operators
from kernelscope.analysis.coverage import cost_coverage
from kernelscope.analysis.efficiency import efficiency
from kernelscope.analysis.gpus import gpu_summary
from kernelscope.analysis.kernels import kernel_table
from kernelscope.analysis.nsys import nsys_report
from kernelscope.analysis.nvtx_projection import nvtx_projection, nvtx_table
from kernelscope.analysis.ops import op_calls, op_table
from kernelscope.analysis.roofline import roofline
from kernelscope.analysis.steps import CATEGORIES, step_breakdown

__all__ = [
    "CATEGORIES",
    "cost_coverage",
    "costs",
    "counters_with_operators",
    "efficiency",
    "gpu_summary",
    "kernel_table",
    "key_averages",
    "nsys_report",
    "nvtx_projection",
    "nvtx_table",
    "op_calls",
    "op_table",
    "roofline",
    "step_breakdown",
]
