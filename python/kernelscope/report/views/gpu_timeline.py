"""Activity of each GPU over time."""

import polars as pl

from kernelscope import analysis
from kernelscope.trace import Trace

ORDER = 120
TABLES = ("ops", "launches", "gpu_ops", "ranges", "spans", "devices")


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {"gpu_timeline": analysis.gpu_timeline(trace)}
