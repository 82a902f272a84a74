"""The launches of collectives on the host."""

import polars as pl

from kernelscope.analysis.grouping import gather_rows
from kernelscope.trace import Trace


def issued(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """Returns calls of ``rank_calls`` with their times in a trace, and the thread and time of their launch.

    Columns: ``calls`` needs ``row``, ``device``, and no times. The result has its columns and ``start_ns``,
        ``dur_ns``, ``track`` and ``issued_ns`` (the start if the launch is unknown).
    """
    on_gpu = calls.filter(pl.col("device").is_not_null())
    work = gather_rows(on_gpu["row"], trace.gpu_ops, "start_ns", "dur_ns", "launch_row")
    launch = gather_rows(work["launch_row"], trace.launches, "track", "start_ns")
    on_gpu = on_gpu.hstack(work.drop("launch_row")).hstack(launch.rename({"start_ns": "issued_ns"}))
    on_host = calls.filter(pl.col("device").is_null())
    run = gather_rows(on_host["row"], trace.ops, "start_ns", "dur_ns")
    callers = trace.collectives.filter(pl.col("source") == "op").select("row", "call_row").unique("row")
    caller = on_host.select("row").join(callers, on="row", how="left", maintain_order="left")["call_row"]
    launch = gather_rows(caller, trace.ops, "track", "start_ns").rename({"start_ns": "issued_ns"})
    found = pl.concat([on_gpu, on_host.hstack(run).hstack(launch)])
    return found.with_columns(pl.col("dur_ns").fill_null(0), pl.coalesce("issued_ns", "start_ns"))
