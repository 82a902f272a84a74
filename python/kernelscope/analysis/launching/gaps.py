"""The gaps between the works of a GPU, and the call that launched the work after each."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.covering import Intervals
from kernelscope.analysis.gpu_work import GpuWork

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def work_gaps(
    trace: "Trace", *columns: str, per_stream: bool = False, work: GpuWork | None = None
) -> pl.DataFrame:
    """The gaps between the works of each GPU, or of each stream.

    ``work`` takes what other questions asked, too.

    Columns: ``columns`` of the work that ends the gap, as in ``gpu_ops``; ``start_ns`` and ``dur_ns`` of
        the gap; ``launch_ns`` and ``track`` of the call that launched the work, null where it was not
        recorded.
    Units: ns on the trace's clock.
    Order: by device, then stream if asked for, then time.
    """
    if per_stream:
        times = trace.gpu_ops.select("device", "stream", "start_ns", "dur_ns")
        found = Intervals(times, by=["device", "stream"]).gaps(trace.gpu_ops["launch_row"], trace.launches)
    else:
        found = (GpuWork(trace) if work is None else work).gaps
    ends = trace.gpu_ops.select(pl.col(columns).gather(found["at"]))
    return ends.hstack(found.drop("at"))
