"""What the ranges of the host come to on the GPU."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.grouping import as_text, check_by

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_OWN = {
    "gpu_start_ns": "own_start_ns",
    "gpu_end_ns": "own_end_ns",
    "gpu_busy_ns": "own_busy_ns",
    "launches": "own_launches",
    "gpu_ops": "own_gpu_ops",
}
_KEPT = ("row", "name", "domain", "category", "kind", "pid", "tid", "start_ns", "dur_ns", "op_id", "sequence")


def nvtx_projection(trace: "Trace", *, innermost: bool = False, domain: str | None = None) -> pl.DataFrame:
    """What each NVTX range with GPU work under it comes to on the GPU.

    GPU work belongs to every range that encloses the call which launched it: a range of the same
    thread that starts no later and ends no earlier, of any domain and style, or a range of the same
    process that another thread ended. With ``innermost`` it belongs only to the one that starts
    last. ``domain`` looks at the ranges of one domain alone, as if there were no others; the default
    domain is ``""``. A trace without NVTX ranges is projected by the annotations of its profiler.

    Columns: ``row``, ``name``, ``domain``, ``category``, ``kind``, ``pid``, ``tid``, ``start_ns``,
        ``dur_ns``, ``op_id`` and ``sequence`` of the range; ``gpu_start_ns``, ``gpu_end_ns`` and
        ``gpu_span_ns``, from the start of its first to the end of its last GPU work;
        ``gpu_busy_ns``, the time in which any of it runs; ``gpu_exclusive_ns``, the same for the work
        of which this is the innermost range; ``launches``, the calls; ``gpu_ops``, what they
        launched; ``parent_row``, the shortest range around it on its thread; ``depth``, the number
        of ranges around it; ``children``, the ranges of which it is the parent.
    Units: ns on the trace's clock.
    Order: by start on the host, then as recorded.
    Source: ``nvtx_gpu_proj_trace`` of ``nsys stats``; docs/nsys.md has what differs.

    Example: ``nvtx_projection(trace, domain="NCCL").group_by("name").agg(pl.col("gpu_busy_ns").sum())``
    """
    ranges = host_ranges(trace, domain=domain)
    calls, work = _launching_calls(trace)
    table = _traceparse.project_ranges(
        _stream(_placed(trace, ranges)),
        _stream(_placed(trace, calls)),
        _stream(work),
    )
    found = pl.DataFrame(table) if len(table) else _nothing()
    if innermost:
        found = found.filter(pl.col("own_launches").is_not_null()).with_columns(
            **{name: pl.col(own) for name, own in _OWN.items()}
        )
    rows = ranges["row"]
    taken = ranges[found["range"]]
    return (
        as_text(taken.select(_KEPT))
        .with_columns(
            *(found[name] for name in ("gpu_start_ns", "gpu_end_ns")),
            gpu_span_ns=found["gpu_end_ns"] - found["gpu_start_ns"],
            gpu_busy_ns=found["gpu_busy_ns"],
            gpu_exclusive_ns=found["own_busy_ns"].fill_null(0),
            launches=found["launches"],
            gpu_ops=found["gpu_ops"],
            parent_row=rows.gather(found["parent"]),
            depth=found["depth"].cast(pl.Int64),
            children=found["children"].cast(pl.Int64),
        )
        .sort("start_ns", "row", maintain_order=True)
    )


def nvtx_table(
    trace: "Trace", by: str | list[str] | tuple[str, ...] = ("domain", "name"), *, domain: str | None = None
) -> pl.DataFrame:
    """What ranges come to on the GPU, summed over those that agree in the columns ``by``.

    Ranges of one name inside one another count their common work once each in ``gpu_span_ns`` and
    ``gpu_busy_ns``; ``gpu_exclusive_ns`` has every piece of work once.

    Columns: those of ``by`` (any of ``nvtx_projection``), ``ranges``, ``dur_ns`` (on the host),
        ``gpu_span_ns``, ``gpu_busy_ns``, ``gpu_exclusive_ns``, ``launches``, ``gpu_ops``.
    Units: ns.
    Order: by exclusive time, longest first, then by the columns ``by``.
    Raises: InvalidArgumentError: ``by`` names no such column.
    """
    projection = nvtx_projection(trace, domain=domain)
    columns = check_by(by, projection.columns)
    summed = ("dur_ns", "gpu_span_ns", "gpu_busy_ns", "gpu_exclusive_ns", "launches", "gpu_ops")
    kept = [pl.col(name).sum() for name in summed if name not in columns]
    table = projection.group_by(columns).agg(pl.len().cast(pl.Int64).alias("ranges"), *kept)
    order = ["gpu_exclusive_ns", *columns]
    return table.sort(order, descending=[True, *(False for _ in columns)], nulls_last=True)


def host_ranges(trace: "Trace", *, domain: str | None = None) -> pl.DataFrame:
    """NVTX ranges, marks aside, or the profiler's annotations where the trace has none.

    Columns: those of ``ranges``, and ``crosses_threads``: whether another thread ended the range.
    """
    if trace.ranges.height or trace.ops.is_empty():
        ranges = trace.ranges.filter((pl.col("kind") != "mark") & pl.col("dur_ns").is_not_null())
        found = ranges.with_columns(crosses_threads=pl.col("end_tid").is_not_null())
    else:
        annotations = trace.ops.filter(
            pl.col("category").cast(pl.String).is_in(["user_annotation", "UserAnnotation"])
            & pl.col("dur_ns").is_not_null()
        )
        none = {name: pl.lit(None, dtype) for name, dtype in trace.ranges.schema.items()}
        known = {name: pl.col(name) for name in none if name in annotations.columns}
        found = annotations.select(
            **{**none, **known, "kind": pl.lit("annotation"), "category": pl.col("category")},
            crosses_threads=pl.lit(False),
        )
    if domain is None:
        return found
    name = pl.col("domain").cast(pl.String)
    return found.filter(name.is_null() if domain == "" else name == domain)


def enclosing_pairs(trace: "Trace", ranges: pl.DataFrame) -> pl.DataFrame:
    """Every pair of a range and a call with GPU work that it encloses.

    Columns: ``range`` (position in ``ranges``, a frame of :func:`host_ranges`), ``launch_row`` and
        ``is_innermost``.
    """
    calls, _ = _launching_calls(trace)
    table = _traceparse.enclosing_ranges(_stream(_placed(trace, ranges)), _stream(_placed(trace, calls)))
    empty = {"range": pl.UInt32, "call": pl.UInt32, "is_innermost": pl.Boolean}
    pairs = pl.DataFrame(table) if len(table) else pl.DataFrame(schema=empty)
    return pairs.select("range", calls["row"].gather(pairs["call"]).alias("launch_row"), "is_innermost")


def _launching_calls(trace: "Trace") -> tuple[pl.DataFrame, pl.DataFrame]:
    """The calls that launched GPU work, and the work with the position of its call."""
    work = trace.gpu_ops.select("launch_row", "start_ns", "dur_ns").drop_nulls()
    calls = trace.launches.filter(pl.col("row").is_in(work["launch_row"].unique().implode()))
    calls = calls.select("row", "track", "pid", "start_ns", "dur_ns")
    position = calls.select(launch_row="row").with_row_index("call")
    linked = work.join(position, on="launch_row", maintain_order="left")
    return calls, linked.select("call", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))


def _placed(trace: "Trace", frame: pl.DataFrame) -> pl.DataFrame:
    """Extents, threads and processes as the projection takes them."""
    crosses = [pl.col("crosses_threads")] if "crosses_threads" in frame.columns else []
    # A process known by a text only has a number of its own: that of its first track.
    named = trace.threads.group_by("pid_text").agg(pl.col("track").min().cast(pl.Int64).alias("_named"))
    unnumbered = frame["pid"].null_count() > 0
    process = pl.col("pid").fill_null(-1)
    if unnumbered and named.height:
        of_track = trace.threads.join(named, on="pid_text", nulls_equal=True).select("track", "_named")
        frame = frame.join(of_track, on="track", how="left", maintain_order="left")
        process = pl.coalesce("pid", -2 - pl.col("_named"), pl.lit(-1))
    return frame.select(
        "start_ns",
        *crosses,
        end_ns=pl.col("start_ns") + pl.col("dur_ns").fill_null(0),
        thread=pl.col("track"),
        process=process.cast(pl.Int64),
    )


def _stream(frame: pl.DataFrame) -> bytes:
    return frame.write_ipc_stream(None).getvalue()


def _nothing() -> pl.DataFrame:
    numbers = ("gpu_start_ns", "gpu_end_ns", "gpu_busy_ns", "launches", "gpu_ops", *_OWN.values())
    indices = ("range", "parent", "depth", "children")
    return pl.DataFrame(schema={**dict.fromkeys(indices, pl.UInt32), **dict.fromkeys(numbers, pl.Int64)})
