"""Launches by call, queues and copies, which only a folder of files has."""

import polars as pl

from kernelscope import analysis
from kernelscope.trace import Trace

ORDER = 75
TABLES = ("launches", "gpu_ops")


def more_frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames that only a folder of files has."""
    return {
        "launches_by_call": analysis.launch_summary(trace),
        "queues": analysis.queue_summary(trace),
        "copies": analysis.memory_bandwidth_summary(trace),
    }
