"""GPU time of host ranges."""

from collections.abc import Mapping, Sequence

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.grouping import as_text, check_by, gather_rows
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

_OWN = {
    "gpu_start_ns": "own_start_ns",
    "gpu_end_ns": "own_end_ns",
    "gpu_busy_ns": "own_busy_ns",
    "launches": "own_launches",
    "gpu_ops": "own_gpu_ops",
}
_PART_ROWS = 1 << 17
_PLACE = ("row", "kind", "pid", "tid", "start_ns", "dur_ns")
_SUMMED = ("gpu_span_ns", "gpu_busy_ns", "gpu_exclusive_ns", "other_thread_ns", "launches", "gpu_ops")
_OF_RANGES = ("name", "domain", "category", "op_id", "sequence")
_ON_GPU = (
    "gpu_start_ns", "gpu_end_ns", "gpu_span_ns", "gpu_busy_ns", "gpu_exclusive_ns", "other_thread_ns",
    "launches", "gpu_ops", "parent_row", "depth", "children",
)  # fmt: skip


def nvtx_projection(trace: Trace, *, innermost: bool = False, domain: str | None = None) -> pl.DataFrame:
    """GPU time of each NVTX range with GPU operations.

    A GPU operation belongs to every range that encloses its launching call: a range of the same thread that
    starts no later and ends no earlier, of any domain and style, or a range of the same process that another
    thread ended or that has no thread, as in nvprof. Operations that an autograd thread launches also belong
    to the ranges that are open on the thread that called ``backward``. With ``innermost``, an operation
    belongs only to the range of its thread that starts last. If its thread has none, it belongs to that of
    the calling thread, otherwise to that of its process. ``domain`` considers only the ranges of one domain;
    the default domain is ``""``. A trace without NVTX ranges is projected by the annotations of its profiler.

    Columns: ``row``, ``kind``, ``pid``, ``tid``, ``start_ns``, ``dur_ns``, ``name``, ``domain``,
        ``category``, ``op_id`` and ``sequence`` of the range; ``gpu_start_ns``, ``gpu_end_ns`` and
        ``gpu_span_ns``, from the start of its first to the end of its last GPU operation; ``gpu_busy_ns``,
        the time with any of them running; ``gpu_exclusive_ns``, the same for operations whose innermost range
        this is; ``other_thread_ns``, the summed durations of operations that other threads launched;
        ``launches``, the calls; ``gpu_ops``, the number of operations they launched; ``parent_row``, the
        shortest enclosing range on its thread; ``depth``, the number of ancestors; ``children``, the number
        of ranges whose parent it is.
    Units: ns on the trace's clock.
    Order: by start on the host, then as recorded.
    Source: ``nvtx_gpu_proj_trace`` of ``nsys stats``; docs/nsys.md lists the differences.

    Example: ``nvtx_projection(trace, domain="NCCL").group_by("name").agg(pl.col("gpu_busy_ns").sum())``
    """
    ranges = host_ranges(trace, *_OF_RANGES, domain=domain)
    projection = project(trace, ranges, innermost=innermost)
    return as_text(projection.select(*_PLACE, *_OF_RANGES, *_ON_GPU)).sort(
        "start_ns", "row", maintain_order=True
    )


def nvtx_table(
    trace: Trace, by: str | list[str] | tuple[str, ...] = ("domain", "name"), *, domain: str | None = None
) -> pl.DataFrame:
    """GPU time of ranges, summed over ranges with equal columns ``by``.

    Nested ranges of one name each count their common operations in ``gpu_span_ns`` and ``gpu_busy_ns``.
    ``gpu_exclusive_ns`` counts every operation once.

    Columns: the columns of ``by`` (any of ``nvtx_projection``), ``ranges``, ``dur_ns`` (on the host),
        ``gpu_span_ns``, ``gpu_busy_ns``, ``gpu_exclusive_ns``, ``other_thread_ns``, ``launches``,
        ``gpu_ops``.
    Units: ns.
    Order: by exclusive time, longest first, then by the columns ``by``.
    Raises: InvalidArgumentError: ``by`` contains an unknown column.
    """
    columns = check_by(by, (*_PLACE, *_OF_RANGES, *_ON_GPU))
    kept = [name for name in ("dur_ns", *_SUMMED) if name not in columns]
    if set(columns).isdisjoint(_ON_GPU):
        sums = range_sums(trace, columns, domain=domain).filter(pl.col("projected") > 0)
        own = {"ranges": pl.col("projected"), "dur_ns": pl.col("projected_host_ns")}
        table = sums.select(
            *columns, *(own.get(name, pl.col(name)).alias(name) for name in ("ranges", *kept))
        )
    else:
        projection = project(trace, host_ranges(trace, *_OF_RANGES, domain=domain))
        count = pl.len().cast(pl.Int64).alias("ranges")
        table = projection.group_by(columns).agg(count, *(pl.col(name).sum() for name in kept))
    order = ["gpu_exclusive_ns", *columns]
    return as_text(table).sort(order, descending=[True, *(False for _ in columns)], nulls_last=True)


def range_sums(trace: Trace, by: Sequence[str], *, domain: str | None = None) -> pl.DataFrame:
    """Returns ranges with equal columns ``by``, with their time on the host and on the GPU.

    Columns: the columns of ``by`` (any of ``ranges``, as recorded); over all ranges except marks ``ranges``
        and ``host_ns``; over ranges with GPU operations ``projected``, ``projected_host_ns``,
        ``gpu_span_ns``, ``gpu_busy_ns``, ``gpu_exclusive_ns``, ``launches`` and ``gpu_ops``, as in
        :func:`nvtx_table`.
    Units: ns. Order: by the first range of each.
    """
    ranges = _recorded_ranges(trace, ("track", "pid", "start_ns", "dur_ns", *by), domain)
    # A column that is null in all rows need not be looked at.
    varying = [name for name in by if ranges[name].null_count() < ranges.height]
    codes = {f"by_{name}": pl.col(name).to_physical() for name in varying}
    sums = pl.DataFrame(_projector(trace, ranges, codes).sums())
    return pl.concat([ranges.select(by)[sums["first"]], sums.drop("first")], how="horizontal")


def host_ranges(trace: Trace, *columns: str, domain: str | None = None) -> pl.DataFrame:
    """Returns NVTX ranges without marks, or the profiler's annotations if the trace has no ranges.

    Columns: ``row``, ``kind``, ``track``, ``pid``, ``tid``, ``start_ns``, ``dur_ns`` and ``columns`` of
        ``ranges``, and ``crosses_threads``: whether another thread ended the range.
    """
    found = _recorded_ranges(trace, ("track", *_PLACE, *columns), domain)
    return found.drop_nulls("dur_ns") if found["dur_ns"].null_count() else found


def _recorded_ranges(trace: Trace, columns: Sequence[str], domain: str | None) -> pl.DataFrame:
    """The columns of :func:`host_ranges`, also of ranges whose end was not recorded."""
    wanted = tuple(dict.fromkeys((*columns, "kind", "domain", "tid", "end_tid")))
    if trace.ranges.height or trace.ops.is_empty():
        found = trace.ranges.select(wanted)
        is_range = found["kind"] != "mark"
        found = found if is_range.all(ignore_nulls=False) else found.filter(is_range)
    else:
        annotations = recorded_annotations(trace)
        none = {name: pl.lit(None, trace.ranges.schema[name]) for name in wanted}
        known = {name: pl.col(name) for name in wanted if name in annotations.columns}
        kind = {"kind": pl.lit("annotation", pl.Categorical)}
        found = annotations.select(**{**none, **known, **kind})
    if domain is not None:
        name = pl.col("domain").cast(pl.String)
        found = found.filter(name.is_null() if domain == "" else name == domain)
    of_no_thread = (pl.col("kind") == "start_end") & pl.col("tid").is_null()
    found = found.with_columns(crosses_threads=pl.col("end_tid").is_not_null() | of_no_thread)
    return found.drop([name for name in wanted if name not in columns])


def recorded_annotations(trace: Trace) -> pl.DataFrame:
    """Returns the rows of ``ops`` that are annotations with a known end.

    ``crosses_threads`` is always false.
    """
    known = trace.ops.filter(pl.col("is_annotation") & pl.col("dur_ns").is_not_null())
    return known.with_columns(crosses_threads=pl.lit(value=False))


def project(
    trace: Trace, ranges: pl.DataFrame, *, innermost: bool = False, callers: bool = True
) -> pl.DataFrame:
    """Adds to each of ``ranges``, a frame from :func:`host_ranges`, its times on the GPU.

    Without ``callers``, a range has only operations that its own thread launched, as in ``nsys stats``.
    Ranges without GPU operations are left out; the others stay in order. :func:`nvtx_projection` documents
    the added columns.
    """
    found = times_on_gpu(trace, ranges, callers=callers)
    if innermost:
        found = found.filter(pl.col("own_launches").is_not_null()).with_columns(
            **{name: pl.col(own) for name, own in _OWN.items()}
        )
    taken = ranges[found["range"]].drop("track", "crosses_threads")
    return taken.with_columns(
        found["gpu_start_ns"],
        found["gpu_end_ns"],
        (found["gpu_end_ns"] - found["gpu_start_ns"]).alias("gpu_span_ns"),
        found["gpu_busy_ns"],
        found["own_busy_ns"].fill_null(0).alias("gpu_exclusive_ns"),
        found["other_thread_ns"],
        found["launches"],
        found["gpu_ops"],
        ranges["row"].gather(found["parent"]).alias("parent_row"),
        found["depth"].cast(pl.Int64),
        found["children"].cast(pl.Int64),
    )


def enclosing_pairs(trace: Trace, ranges: pl.DataFrame, *, callers: bool = True) -> pl.DataFrame:
    """Returns every pair of a range and an enclosed call with GPU operations.

    ``callers`` is the same as for :func:`project`.

    Columns: ``range`` (position in ``ranges``, a frame from :func:`host_ranges`), ``launch_row`` and
        ``is_innermost``.
    """
    table = _projector(trace, ranges, callers=callers).pairs()
    empty = {"range": pl.UInt32, "launch_row": pl.UInt32, "is_innermost": pl.Boolean}
    return pl.DataFrame(table) if len(table) else pl.DataFrame(schema=empty)


def times_on_gpu(
    trace: Trace, ranges: pl.DataFrame, *, only: pl.Series | None = None, callers: bool = True
) -> pl.DataFrame:
    """Returns the GPU time of each of ``ranges`` with GPU operations.

    ``only`` selects the operations that count.

    ``ranges`` is a frame from :func:`host_ranges` or :func:`recorded_annotations`.

    Columns: ``range`` (a position in ``ranges``), ``parent`` (another), ``depth``, ``children``; over all
        operations, and (prefixed with ``own_``) over operations whose innermost range it is,
        ``gpu_start_ns``, ``gpu_end_ns``, ``gpu_busy_ns``, ``gpu_work_ns`` (summed durations), ``launches``
        and ``gpu_ops``; ``other_thread_ns``, the part of ``gpu_work_ns`` that other threads launched.
    """
    table = _projector(trace, ranges, only=only, callers=callers).project()
    return pl.DataFrame(table) if len(table) else _nothing()


@per_trace
def launching_calls(trace: Trace) -> pl.Series:
    """Returns the row of the call that represents the launch of each GPU operation on the host.

    It is null if there is none.

    It is the launch itself. If an id names the operator, and the launch was not recorded or is outside the
    operator (on a thread with another number, for example), it is the operator.
    """
    work = trace.gpu_ops.select("launch_row", "op_row")
    if work["op_row"].null_count() == work.height:
        return work["launch_row"]
    bounds = ("track", "start_ns", "dur_ns")
    launches = gather_rows(work["launch_row"], trace.launches, *bounds)
    ops = gather_rows(work["op_row"], trace.ops, *bounds).rename({name: f"op_{name}" for name in bounds})
    end, op_end = (pl.col(f"{of}start_ns") + pl.col(f"{of}dur_ns").fill_null(0) for of in ("", "op_"))
    is_inside = (pl.col("track") == pl.col("op_track")) & (op_end >= end)
    is_inside &= pl.col("op_start_ns") <= pl.col("start_ns")
    launch = pl.when(is_inside.fill_null(value=False)).then("launch_row")
    found = pl.concat([work, launches, ops], how="horizontal")
    return found.select(launch.otherwise(pl.coalesce("op_row", "launch_row"))).to_series()


def _projector(
    trace: Trace,
    ranges: pl.DataFrame,
    by: Mapping[str, pl.Expr] | None = None,
    *,
    only: pl.Series | None = None,
    callers: bool = True,
) -> _traceparse.RangeProjector:
    """GPU work, the calls, and ``ranges`` in groups that agree in ``by``, ready to be related.

    ``callers`` as for :func:`project`.
    """
    groups = by or {}
    projector = _traceparse.RangeProjector(list(groups))
    work = trace.gpu_ops.select(launching_calls(trace).alias("launch_row"), "start_ns", "dur_ns")
    for part in (work if only is None else work.filter(only)).iter_slices(_PART_ROWS):
        projector.add_work(part)
    place = ["track", "start_ns", "dur_ns"]
    calling = ["caller_track"] * (callers and _has_callers(trace))
    crosses = bool(calling) or ranges["crosses_threads"].any()
    # Of operators only those that stand for a launch.
    operators = trace.ops.select("row", "pid", *place, *calling)
    operators = operators.filter(pl.col("row").is_in(launching_calls(trace).implode()))
    for part in (*trace.launches.iter_slices(_PART_ROWS), operators):
        placed = _with_process(trace, part) if crosses else part
        projector.add_calls(placed.select("row", *place, *calling, *["process"] * crosses))
    for part in ranges.iter_slices(_PART_ROWS):
        placed = _with_process(trace, part) if crosses else part
        extent = placed.select(*place, *["process", "crosses_threads"] * crosses, **groups)
        projector.add_ranges(extent)
    return projector


def _has_callers(trace: Trace) -> bool:
    """Whether a thread of autograd launched anything for another thread."""
    tables = (trace.launches, trace.ops)
    return any(table["caller_track"].null_count() < table.height for table in tables)


def _with_process(trace: Trace, frame: pl.DataFrame) -> pl.DataFrame:
    """Adds ``process``, a number of the process of each row's thread."""
    if not frame["pid"].null_count():
        return frame.with_columns(process="pid")
    # A process known by a text only has a number of its own: that of its first track.
    named = trace.threads.group_by("pid_text").agg(pl.col("track").min().cast(pl.Int64).alias("_named"))
    of_tracks = trace.threads.join(named, on="pid_text", nulls_equal=True)
    # Who reads no process of each row still has that of its track.
    of_tracks = of_tracks.select("track", "_named", _pid="pid")
    frame = frame.join(of_tracks, on="track", how="left", maintain_order="left")
    process = pl.coalesce("pid", "_pid", -2 - pl.col("_named"), pl.lit(-1))
    return frame.with_columns(process=process.cast(pl.Int64))


def _nothing() -> pl.DataFrame:
    works = ("gpu_work_ns", "own_work_ns")
    sums = ("gpu_busy_ns", "other_thread_ns", "launches", "gpu_ops")
    numbers = ("gpu_start_ns", "gpu_end_ns", *sums, *works, *_OWN.values())
    indices = ("range", "parent", "depth", "children")
    return pl.DataFrame(schema={**dict.fromkeys(indices, pl.UInt32), **dict.fromkeys(numbers, pl.Int64)})
