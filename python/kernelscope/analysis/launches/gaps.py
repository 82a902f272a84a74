"""The gaps between the works of a GPU, and the call that launched the work after each."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.gpu.work import GpuWork

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def work_gaps(trace: "Trace", work: GpuWork, *columns: str, per_stream: bool = False) -> pl.DataFrame:
    """The gaps between the works of each GPU, or of each stream.

    Columns: ``at`` (position in ``gpu_ops`` of the work that ends the gap); ``columns`` of that work, as in
        ``gpu_ops``; ``dur_ns`` of the gap; ``is_late`` (the work was launched in it, null where its launch
        was not recorded).
    Units: ns.
    Order: by device, then stream if asked for, then time.
    """
    found = work.on_streams.gaps(work.calls, trace.launches) if per_stream else work.gaps
    return found.hstack(trace.gpu_ops.select(pl.col(columns).gather(found["at"])))


def with_launches(trace: "Trace", work: GpuWork, gaps: pl.DataFrame) -> pl.DataFrame:
    """Adds when each gap begins, and the call that launched the work after it.

    Columns: of ``gaps``, needs ``at`` and ``dur_ns``; adds ``start_ns``, and ``launch_ns`` and ``track`` of
        the call, null where it was not recorded.
    Units: ns on the trace's clock.
    """
    starts = trace.gpu_ops["start_ns"].gather(gaps["at"]) - gaps["dur_ns"]
    calls = trace.launches.select(launch_ns="start_ns", track="track")[work.calls.gather(gaps["at"])]
    return gaps.with_columns(starts).hstack(calls)
