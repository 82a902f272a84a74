"""Questions about a trace: frames in, frames out.

Every function takes a :class:`kernelscope.Trace` and gives a ``polars.DataFrame`` whose columns its
documentation names with their units. Unknown is null, never 0.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelscope.analysis.advice import recommendations as recommendations
    from kernelscope.analysis.averages.key_averages_table import KeyAverages as KeyAverages
    from kernelscope.analysis.averages.key_averages_table import key_averages as key_averages
    from kernelscope.analysis.cluster.clocks import clock_offsets as clock_offsets
    from kernelscope.analysis.cluster.collectives import collective_instances as collective_instances
    from kernelscope.analysis.cluster.collectives import communication as communication
    from kernelscope.analysis.cluster.collectives import late_ranks as late_ranks
    from kernelscope.analysis.cluster.collectives import rank_calls as rank_calls
    from kernelscope.analysis.cluster.findings import cluster_findings as cluster_findings
    from kernelscope.analysis.cluster.frames import cluster_of as cluster_of
    from kernelscope.analysis.cluster.lateness import rank_steps as rank_steps
    from kernelscope.analysis.cluster.lateness import straggler_ranks as straggler_ranks
    from kernelscope.analysis.cluster.lateness import stragglers as stragglers
    from kernelscope.analysis.cluster.rank_time import rank_gpu_time as rank_gpu_time
    from kernelscope.analysis.cluster.rank_views import rank_groups as rank_groups
    from kernelscope.analysis.cluster.rank_views import rank_heatmap as rank_heatmap
    from kernelscope.analysis.cluster.rank_views import rank_quantiles as rank_quantiles
    from kernelscope.analysis.cluster.rank_views import run_difference as run_difference
    from kernelscope.analysis.cluster.rank_views import step_pace as step_pace
    from kernelscope.analysis.cluster.rank_views import table_quantiles as table_quantiles
    from kernelscope.analysis.comparing.differences import diff as diff
    from kernelscope.analysis.comparing.differences import diff_steps as diff_steps
    from kernelscope.analysis.comparing.paired_tables import diff_kernels as diff_kernels
    from kernelscope.analysis.comparing.paired_tables import diff_operators as diff_operators
    from kernelscope.analysis.copy_bandwidth import memory_bandwidth as memory_bandwidth
    from kernelscope.analysis.copy_bandwidth import memory_bandwidth_summary as memory_bandwidth_summary
    from kernelscope.analysis.costing.achieved import efficiency as efficiency
    from kernelscope.analysis.costing.attainable import roofline as roofline
    from kernelscope.analysis.costing.counters import counters_with_operators as counters_with_operators
    from kernelscope.analysis.costing.coverage import cost_coverage as cost_coverage
    from kernelscope.analysis.costing.table import costs as costs
    from kernelscope.analysis.flame import folded_stacks as folded_stacks
    from kernelscope.analysis.gpu_load import gpu_timeline as gpu_timeline
    from kernelscope.analysis.gpu_time import comm_comp_overlap as comm_comp_overlap
    from kernelscope.analysis.gpu_time import temporal_breakdown as temporal_breakdown
    from kernelscope.analysis.gpus import gpu_summary as gpu_summary
    from kernelscope.analysis.kernels import kernel_table as kernel_table
    from kernelscope.analysis.launching.calls import launch_stats as launch_stats
    from kernelscope.analysis.launching.calls import launch_summary as launch_summary
    from kernelscope.analysis.launching.delays import op_launch_delay as op_launch_delay
    from kernelscope.analysis.launching.idle import idle_gaps as idle_gaps
    from kernelscope.analysis.launching.idle import idle_time as idle_time
    from kernelscope.analysis.launching.queueing import queue_blocked as queue_blocked
    from kernelscope.analysis.launching.queueing import queue_length as queue_length
    from kernelscope.analysis.launching.queueing import queue_summary as queue_summary
    from kernelscope.analysis.launching.table import kernel_launches as kernel_launches
    from kernelscope.analysis.memory.curve import memory_summary as memory_summary
    from kernelscope.analysis.memory.curve import memory_timeline as memory_timeline
    from kernelscope.analysis.memory.lifetimes import memory_allocations as memory_allocations
    from kernelscope.analysis.memory.lifetimes import memory_peak as memory_peak
    from kernelscope.analysis.memory.operators import memory_table as memory_table
    from kernelscope.analysis.missing_views import missing as missing
    from kernelscope.analysis.network.tree import module_table as module_table
    from kernelscope.analysis.nsys import nsys_report as nsys_report
    from kernelscope.analysis.op_views import op_kernels as op_kernels
    from kernelscope.analysis.op_views import op_shares as op_shares
    from kernelscope.analysis.ops import op_calls as op_calls
    from kernelscope.analysis.ops import op_table as op_table
    from kernelscope.analysis.overview_figures import overview as overview
    from kernelscope.analysis.range_projection import nvtx_projection as nvtx_projection
    from kernelscope.analysis.range_projection import nvtx_table as nvtx_table
    from kernelscope.analysis.sequences import kernel_sequences as kernel_sequences
    from kernelscope.analysis.steps import CATEGORIES as CATEGORIES
    from kernelscope.analysis.steps import step_breakdown as step_breakdown
    from kernelscope.analysis.trace_view import timeline as timeline

# Each question is imported when it is first asked: the cost models alone take longer to import than a small
# trace takes to read. No module is called like a question: importing it would take the question's place.
_MODULE_OF = {
    "CATEGORIES": "steps",
    "KeyAverages": "averages.key_averages_table",
    "clock_offsets": "cluster.clocks",
    "cluster_findings": "cluster.findings",
    "cluster_of": "cluster.frames",
    "collective_instances": "cluster.collectives",
    "comm_comp_overlap": "gpu_time",
    "communication": "cluster.collectives",
    "cost_coverage": "costing.coverage",
    "costs": "costing.table",
    "counters_with_operators": "costing.counters",
    "diff": "comparing.differences",
    "diff_kernels": "comparing.paired_tables",
    "diff_operators": "comparing.paired_tables",
    "diff_steps": "comparing.differences",
    "efficiency": "costing.achieved",
    "folded_stacks": "flame",
    "gpu_summary": "gpus",
    "gpu_timeline": "gpu_load",
    "idle_gaps": "launching.idle",
    "idle_time": "launching.idle",
    "kernel_launches": "launching.table",
    "kernel_sequences": "sequences",
    "kernel_table": "kernels",
    "key_averages": "averages.key_averages_table",
    "late_ranks": "cluster.collectives",
    "launch_stats": "launching.calls",
    "launch_summary": "launching.calls",
    "memory_allocations": "memory.lifetimes",
    "memory_bandwidth": "copy_bandwidth",
    "memory_bandwidth_summary": "copy_bandwidth",
    "memory_peak": "memory.lifetimes",
    "memory_summary": "memory.curve",
    "memory_table": "memory.operators",
    "memory_timeline": "memory.curve",
    "missing": "missing_views",
    "module_table": "network.tree",
    "nsys_report": "nsys",
    "nvtx_projection": "range_projection",
    "nvtx_table": "range_projection",
    "op_calls": "ops",
    "op_kernels": "op_views",
    "op_launch_delay": "launching.delays",
    "op_shares": "op_views",
    "op_table": "ops",
    "overview": "overview_figures",
    "queue_blocked": "launching.queueing",
    "queue_length": "launching.queueing",
    "queue_summary": "launching.queueing",
    "rank_calls": "cluster.collectives",
    "rank_gpu_time": "cluster.rank_time",
    "rank_groups": "cluster.rank_views",
    "rank_heatmap": "cluster.rank_views",
    "rank_quantiles": "cluster.rank_views",
    "rank_steps": "cluster.lateness",
    "recommendations": "advice",
    "roofline": "costing.attainable",
    "run_difference": "cluster.rank_views",
    "step_breakdown": "steps",
    "step_pace": "cluster.rank_views",
    "straggler_ranks": "cluster.lateness",
    "stragglers": "cluster.lateness",
    "table_quantiles": "cluster.rank_views",
    "temporal_breakdown": "gpu_time",
    "timeline": "trace_view",
}

__all__ = [
    "CATEGORIES",
    "KeyAverages",
    "clock_offsets",
    "cluster_findings",
    "cluster_of",
    "collective_instances",
    "comm_comp_overlap",
    "communication",
    "cost_coverage",
    "costs",
    "counters_with_operators",
    "diff",
    "diff_kernels",
    "diff_operators",
    "diff_steps",
    "efficiency",
    "folded_stacks",
    "gpu_summary",
    "gpu_timeline",
    "idle_gaps",
    "idle_time",
    "kernel_launches",
    "kernel_sequences",
    "kernel_table",
    "key_averages",
    "late_ranks",
    "launch_stats",
    "launch_summary",
    "memory_allocations",
    "memory_bandwidth",
    "memory_bandwidth_summary",
    "memory_peak",
    "memory_summary",
    "memory_table",
    "memory_timeline",
    "missing",
    "module_table",
    "nsys_report",
    "nvtx_projection",
    "nvtx_table",
    "op_calls",
    "op_kernels",
    "op_launch_delay",
    "op_shares",
    "op_table",
    "overview",
    "queue_blocked",
    "queue_length",
    "queue_summary",
    "rank_calls",
    "rank_gpu_time",
    "rank_groups",
    "rank_heatmap",
    "rank_quantiles",
    "rank_steps",
    "recommendations",
    "roofline",
    "run_difference",
    "step_breakdown",
    "step_pace",
    "straggler_ranks",
    "stragglers",
    "table_quantiles",
    "temporal_breakdown",
    "timeline",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'kernelscope.analysis' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kernelscope.analysis.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
