"""The gaps between the works of a GPU, and the call that launched the work after each."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.covering import gaps
from kernelscope.analysis.row_lookup import looked_up

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def work_gaps(trace: "Trace", *columns: str, per_stream: bool = False) -> pl.DataFrame:
    """The gaps between the works of each GPU, or of each stream.

    Columns: ``columns`` of the work that ends the gap, as in ``gpu_ops``; ``start_ns`` and ``dur_ns`` of
        the gap; ``launch_ns`` and ``track`` of the call that launched the work, null where it was not
        recorded.
    Units: ns on the trace's clock.
    Order: by device, then stream if asked for, then time.
    """
    end = pl.col("start_ns") + pl.col("dur_ns").fill_null(0).clip(lower_bound=0)
    work = trace.gpu_ops.select("device", "stream", "start_ns", end_ns=end)
    found = gaps(work, by=["device", "stream"] if per_stream else ["device"])
    at = found["at"]
    ends = trace.gpu_ops.select(pl.col(*columns, "start_ns").gather(at))
    launched = trace.gpu_ops["launch_row"].gather(at)
    calls = looked_up(launched, trace.launches, "start_ns", "track")
    return ends.with_columns(
        start_ns=found["before_ns"],
        dur_ns=pl.col("start_ns") - found["before_ns"],
        launch_ns=calls["start_ns"],
        track=calls["track"],
    )
