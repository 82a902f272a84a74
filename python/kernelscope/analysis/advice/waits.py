"""What GPUs waited for in each gap between their works."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.advice.names import matching

if TYPE_CHECKING:
    from kernelscope.trace import Trace

BLOCKING = (
    r"^(?:cuda|hip|mu|sycl|cu)\w*Synchronize|^(?:cuda|hip)Memcpy(?:[23]D)?$"
    r"|^(?:cuda|hip|cu)(?:Malloc|Free|MemAlloc|MemFree)(?:Host)?(?:_v2)?$"
)
"""The names of calls in which the host waits until the GPU has done its work."""

LONGEST_LAUNCH_NS = 1_000_000
"""A host that only launches is never later than this: operators take microseconds to launch a kernel."""

DATA_LOADING = r"^enumerate\(DataLoader\)#.*\.__next__$|^enumerate\(DataPipe\)#"
"""The names of annotations in which the host waits for data."""


def classified_gaps(trace: "Trace") -> pl.DataFrame:
    """Each gap in which a GPU idled between two works, and what it waited for.

    ``data``: the work after the gap was launched in it, and loading data took most of the time until then.
    ``sync``: it was launched in it after the host had waited for the GPU to be done. ``launch``: it was
    launched in it, as the host was late; ``host``: the same, but so late that the host must have done
    something else than to launch. ``queue``: it had been launched before, and waited for an event, a copy,
    another stream, or only for its turn. Null where the launch was not recorded.

    Columns: ``row`` (of the work after the gap in ``gpu_ops``), ``device``, ``step``, ``start_ns``,
        ``dur_ns``, ``cause``, ``sync_row`` (of the call in ``launches``, for ``sync``), ``data_row`` (of
        the annotation in ``ops``, for ``data``) and ``op_row`` (that launched the work).
    Units: ns.
    """
    gaps = _gaps(trace)
    gaps = _with_data(gaps, trace)
    gaps = _with_syncs(gaps, trace)
    late = pl.col("launch_ns") > pl.col("start_ns")
    cause = (
        pl.when(pl.col("launch_ns").is_null())
        .then(None)
        .when(~late)
        .then(pl.lit("queue"))
        .when(pl.col("data_row").is_not_null())
        .then(pl.lit("data"))
        .when(pl.col("sync_row").is_not_null())
        .then(pl.lit("sync"))
        .when(pl.col("dur_ns") > LONGEST_LAUNCH_NS)
        .then(pl.lit("host"))
        .otherwise(pl.lit("launch"))
    )
    return gaps.with_columns(cause=cause).select(
        "row", "device", "step", "start_ns", "dur_ns", "cause", "sync_row", "data_row", "op_row"
    )


def _gaps(trace: "Trace") -> pl.DataFrame:
    work = trace.gpu_ops.select("row", "launch_row", "op_row", "device", "step", "start_ns", "dur_ns")
    end = pl.col("start_ns") + pl.col("dur_ns").fill_null(0).clip(lower_bound=0)
    work = work.sort("device", "start_ns", "row").with_columns(_before=end.cum_max().shift(1).over("device"))
    gaps = work.filter(pl.col("start_ns") > pl.col("_before"))
    calls = trace.launches.select(launch_row="row", launch_ns="start_ns")
    return (
        gaps.join(calls, on="launch_row", how="left", maintain_order="left")
        .select(
            "row",
            "device",
            "step",
            "op_row",
            "launch_ns",
            dur_ns=pl.col("start_ns") - pl.col("_before"),
            start_ns="_before",
        )
        .sort("start_ns")
    )


def _with_data(gaps: pl.DataFrame, trace: "Trace") -> pl.DataFrame:
    """Adds the call that loaded data in the gap, if that took more than half of the time until the launch."""
    loads = matching(trace.ops.select("row", "name", "start_ns", "dur_ns"), DATA_LOADING)
    if loads.is_empty():
        return gaps.with_columns(data_row=pl.lit(None, pl.UInt32))
    loads = loads.select(
        data_row="row", _load="start_ns", _load_end=pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    ).sort("_load")
    # The last that began before the launch.
    found = gaps.filter(pl.col("launch_ns").is_not_null()).sort("launch_ns")
    found = found.join_asof(loads, left_on="launch_ns", right_on="_load", strategy="backward")
    shared = pl.min_horizontal("_load_end", "launch_ns") - pl.max_horizontal("_load", "start_ns")
    mostly = 2 * shared > pl.col("launch_ns") - pl.col("start_ns")
    found = found.filter(mostly).select("row", "data_row")
    return gaps.join(found, on="row", how="left", maintain_order="left")


def _with_syncs(gaps: pl.DataFrame, trace: "Trace") -> pl.DataFrame:
    """Adds the blocking call that began before the gap and ended in it, before the launch."""
    calls = matching(trace.launches.select("row", "name", "start_ns", "dur_ns"), BLOCKING)
    if calls.is_empty():
        return gaps.with_columns(sync_row=pl.lit(None, pl.UInt32))
    calls = calls.select(
        sync_row="row", _sync="start_ns", _sync_end=pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    ).sort("_sync_end")
    # The first that ended after the GPU had run empty.
    found = gaps.sort("start_ns").join_asof(
        calls, left_on="start_ns", right_on="_sync_end", strategy="forward"
    )
    waited = (pl.col("_sync") <= pl.col("start_ns")) & (pl.col("_sync_end") <= pl.col("launch_ns"))
    found = found.filter(waited).select("row", "sync_row")
    return gaps.join(found, on="row", how="left", maintain_order="left")
