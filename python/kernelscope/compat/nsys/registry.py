"""Every report by its name."""

from collections.abc import Mapping
from types import MappingProxyType

from kernelscope.compat.nsys import (
    calls,
    gpu_sums,
    gpu_trace,
    kernel_launches,
    nvtx_gpu,
    nvtx_ranges,
    rules,
    unified_memory,
)
from kernelscope.compat.nsys.report import Report

_MODULES = (gpu_sums, gpu_trace, calls, kernel_launches, nvtx_ranges, nvtx_gpu, unified_memory, rules)

REPORTS: Mapping[str, Report] = MappingProxyType(
    {report.name: report for module in _MODULES for report in module.REPORTS}
)
"""Every report by its name."""
