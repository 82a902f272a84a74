"""Added events that make a trace easier to read in a viewer: arrows, and curves of utilisation and memory."""

from collections.abc import Iterator
from typing import cast

import polars as pl

from kernelscope.analysis.call_tree import DEVICE_TYPES
from kernelscope.report.perfetto.chrome_events import first_free_id, places_of_tracks
from kernelscope.trace import Trace

CATEGORY = "kernelscope"
"""Category of every added event."""

_LAUNCH_FLOWS = ("ac2g", "async", "async_gpu", "async_cpu_to_gpu")
_GRADIENT_FLOWS = ("fwdbwd", "forward_backward")
_BUCKETS = 2000


def added_events(trace: Trace, moved: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Returns arrows that were not recorded, curves of utilisation and memory, and names of tracks.

    ``moved`` are the events drawn on additional tracks; see ``further_tracks``.

    Arrows lead from launches to GPU operations and from operators to gradients. The curves are the share of
    time in which each GPU runs kernels, and the memory of each device.

    Columns: the columns of an event, without ``row``. Order: arrows, then curves, each by time, then names;
    one frame per kind.
    """
    tids = moved.select("row", "tid")
    yield _launch_arrows(trace, tids)
    yield _gradient_arrows(trace, tids)
    for make in (_utilisation, _memory, _names):
        yield make(trace)
    yield _names_of_further(moved)


def _launch_arrows(trace: Trace, tids: pl.DataFrame) -> pl.DataFrame:
    flows = trace.flows.filter(pl.col("category").cast(pl.String).is_in(_LAUNCH_FLOWS))
    ends = flows.group_by("id").agg(pl.col("kind").cast(pl.String).unique())
    both = ends.filter(pl.col("kind").list.contains("s") & pl.col("kind").list.contains("f"))
    work = trace.gpu_ops.filter(pl.col("launch_row").is_not_null()).select(
        "row", "launch_row", "device", "stream", "correlation", gpu_ns="start_ns"
    )
    # An arrow has one end: the others of a graph's kernels have none.
    alone = pl.len().over("correlation") == 1
    drawn = work.filter(alone).join(both, left_on="correlation", right_on="id", how="semi")
    work = work.join(drawn.select("row"), on="row", how="anti")
    calls = trace.launches.select(from_row="row", start_ns="start_ns", track="track")
    pairs = work.rename({"launch_row": "from_row"}).join(calls, on="from_row", how="inner")
    return _arrows(trace, pairs, tids, "launch", to_gpu=True)


def _gradient_arrows(trace: Trace, tids: pl.DataFrame) -> pl.DataFrame:
    if trace.flows.filter(pl.col("category").cast(pl.String).is_in(_GRADIENT_FLOWS)).height:
        return pl.DataFrame()
    gradients = trace.ops.filter(pl.col("forward_row").is_not_null())
    above = trace.ops.select(parent_row="row", _above="forward_row")
    outermost = gradients.join(above, on="parent_row", how="left").filter(
        pl.col("_above").is_null() | (pl.col("_above") != pl.col("forward_row"))
    )
    ends = outermost.select("row", from_row="forward_row", _track="track", gpu_ns="start_ns")
    forward = trace.ops.select(from_row="row", start_ns="start_ns", track="track")
    pairs = ends.join(forward, on="from_row", how="inner")
    return _arrows(trace, pairs, tids, "gradient", to_gpu=False)


def _arrows(
    trace: Trace, pairs: pl.DataFrame, tids: pl.DataFrame, name: str, *, to_gpu: bool
) -> pl.DataFrame:
    """Two ends for each pair, with ids that no recorded arrow has.

    Columns: of ``pairs``, needs ``from_row``, ``track`` and ``start_ns``; ``row`` and ``gpu_ns``; ``device``
        and ``stream``, or ``_track``. Of ``tids``, ``row`` and ``tid`` of events that are drawn elsewhere.
    """
    if pairs.is_empty():
        return pl.DataFrame()
    tracks = places_of_tracks(trace.threads)
    first = first_free_id(trace)
    # Each kind has ids of its own.
    pairs = pairs.sort("gpu_ns", "row").with_columns(
        id=pl.int_range(pl.len(), dtype=pl.Int64) * 2 + first + (0 if to_gpu else 1)
    )
    for row, tid in (("from_row", "from_tid"), ("row", "to_tid")):
        elsewhere = tids.rename({"row": row, "tid": tid})
        pairs = pairs.join(elsewhere, on=row, how="left", maintain_order="left")
    event = {"cat": pl.lit(CATEGORY), "name": pl.lit(name), "id": pl.col("id")}
    start = pairs.join(tracks, on="track", how="left").select(
        **event, ph=pl.lit("s"), ts="start_ns", **_placed("from_tid")
    )
    ends = {"ph": pl.lit("f"), "bp": pl.lit("e"), "ts": pl.col("gpu_ns")}
    if to_gpu:
        tid = pl.coalesce("to_tid", pl.col("stream").cast(pl.Int64))
        end = pairs.select(**event, **ends, pid=pl.col("device").cast(pl.Int64), tid=tid)
    else:
        placed = pairs.drop("track").join(tracks, left_on="_track", right_on="track", how="left")
        end = placed.select(**event, **ends, **_placed("to_tid"))
    return pl.concat([start, end], how="diagonal")


def _placed(tid: str) -> dict[str, pl.Expr]:
    """The place of an end of an arrow: its track, unless its event is drawn elsewhere."""
    return {
        "pid": pl.col("pid"),
        "tid": pl.coalesce(tid, "tid"),
        "pid_text": pl.col("pid_text"),
        "tid_text": pl.when(pl.col(tid).is_null()).then("tid_text"),
    }


def _utilisation(trace: Trace) -> pl.DataFrame:
    """The share of each of equal spans of time in which a GPU runs a kernel."""
    kernels = trace.gpu_ops.filter(pl.col("kind").cast(pl.String).is_in(["kernel", "graph"]))
    timed = kernels.select("device", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns").fill_null(0))
    timed = timed.filter(pl.col("end_ns") > pl.col("start_ns"))
    if timed.is_empty():
        return pl.DataFrame()
    start, end = cast("int", timed["start_ns"].min()), cast("int", timed["end_ns"].max())
    span = max(1, -(-(end - start) // _BUCKETS))
    edges = pl.Series("ts", range(start, end + span, span), dtype=pl.Int64)
    curves: list[pl.DataFrame] = []
    for (device,), own in timed.group_by("device", maintain_order=True):
        if device is None:
            continue
        busy = _busy_until(own, edges).diff().shift(-1).fill_null(0)
        curve = pl.DataFrame({"ts": edges, "n:percent": 100.0 * busy / span})
        changed = (pl.col("n:percent") != pl.col("n:percent").shift(1)).fill_null(value=True)
        pid, tid = cast("int", device), _existing_tid(trace.threads, cast("int", device))
        curves.append(
            curve.filter(changed).select(
                *_counter(f"GPU {device} utilization"),
                "ts",
                "n:percent",
                pid=pl.lit(pid, pl.Int64),
                tid=pl.lit(tid, pl.Int64),
            )
        )
    return pl.concat(curves) if curves else pl.DataFrame()


def _busy_until(work: pl.DataFrame, edges: pl.Series) -> pl.Series:
    """The time before each edge in which any of the work runs."""
    merged = work.sort("start_ns").with_columns(_reach=pl.col("end_ns").cum_max().shift(1))
    merged = merged.with_columns(
        _group=(pl.col("start_ns") > pl.col("_reach")).fill_null(value=True).cum_sum()
    )
    parts = merged.group_by("_group", maintain_order=True).agg(
        pl.col("start_ns").min(), pl.col("end_ns").max()
    )
    before = pl.concat([pl.Series([0], dtype=pl.Int64), (parts["end_ns"] - parts["start_ns"]).cum_sum()])
    at = parts["start_ns"].search_sorted(edges, side="right")
    ends = pl.concat([pl.Series([edges.min()], dtype=pl.Int64), parts["end_ns"]])
    # What of the last part that has begun lies behind the edge does not count.
    return before.gather(at) - (ends.gather(at) - edges).clip(lower_bound=0)


def _memory(trace: Trace) -> pl.DataFrame:
    known = trace.memory.filter(pl.col("total_allocated_bytes").is_not_null())
    if known.is_empty():
        return pl.DataFrame()
    is_gpu = pl.col("device_type").is_in(DEVICE_TYPES)
    name = pl.when(is_gpu).then(pl.format("GPU {} memory", "device_id")).otherwise(pl.lit("CPU memory"))
    tracks = places_of_tracks(trace.threads).rename({"pid": "_pid", "tid": "_tid"})
    return (
        known.sort("start_ns")
        .join(tracks, on="track", how="left", maintain_order="left")
        .select(
            ph=pl.lit("C"),
            cat=pl.lit(CATEGORY),
            name=name.fill_null("memory"),
            ts="start_ns",
            pid="_pid",
            tid="_tid",
            pid_text="pid_text",
            tid_text="tid_text",
            **{
                "n:allocated bytes": pl.col("total_allocated_bytes"),
                "n:reserved bytes": pl.col("total_reserved_bytes"),
            },
        )
    )


def _counter(name: str) -> list[pl.Expr]:
    return [pl.lit("C").alias("ph"), pl.lit(CATEGORY).alias("cat"), pl.lit(name).alias("name")]


def _existing_tid(threads: pl.DataFrame, device: int) -> int | None:
    """A row of the GPU that the trace already has, so that a curve adds none."""
    tids = threads.filter((pl.col("pid") == device) & pl.col("tid").is_not_null())["tid"]
    return cast("int | None", tids.min())


def _names(trace: Trace) -> pl.DataFrame:
    """The names of processes and threads, where the source has them elsewhere than in events."""
    if trace.metadata.height:
        return pl.DataFrame()
    text = {"process_name": "process_name", "thread_name": "thread_name"}
    named = [
        trace.threads.filter(pl.col(column).is_not_null()).select(
            ph=pl.lit("M"),
            name=pl.lit(event),
            pid="pid",
            tid="tid",
            pid_text=pl.col("pid_text").cast(pl.String),
            tid_text=pl.col("tid_text").cast(pl.String),
            **{"s:name": pl.col(column).cast(pl.String)},
        )
        for event, column in text.items()
    ]
    return pl.concat(named)


def _names_of_further(moved: pl.DataFrame) -> pl.DataFrame:
    """The names of further tracks."""
    tracks = moved.unique(["pid", "pid_text", "tid"], keep="first", maintain_order=True)
    return tracks.select(
        ph=pl.lit("M"),
        cat=pl.lit(CATEGORY),
        name=pl.lit("thread_name"),
        pid="pid",
        tid="tid",
        pid_text="pid_text",
        **{"s:name": pl.col("name")},
    )
