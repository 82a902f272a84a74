"""Recipes of ``nsys recipe``: paces, maps of utilisation and sums of NCCL ranges.

NVIDIA's recipes treat a file as a rank; these keep the GPUs, processes and threads of a file apart.
"""

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from kernelscope.analysis.gpu.metrics import gpu_metric_timeline
from kernelscope.analysis.ranges.projection import host_ranges, project
from kernelscope.compat.nsys.names import (
    TEXT_COLUMNS,
    kernel_name_columns,
    range_text,
    text_keys,
    with_kernel_names,
)
from kernelscope.compat.nsys.report import (
    GRAPH,
    KERNEL,
    MEMORY,
    NVTX,
    Question,
    Report,
    distribution,
    in_order,
    parse_fields,
)
from kernelscope.compat.nsys.rules import union_of
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

_BINS = 30
_MOST_BINS = 100_000
_NCCL = "NCCL"
_METRICS = ("GPU_METRICS", "GENERIC_EVENTS")


def _name(question: Question) -> str:
    name = question.arguments.get("name", "")
    if not name:
        raise InvalidArgumentError("a pace report is about one name: end the report with :name=NAME")
    return name


def _pace(frame: pl.DataFrame, *place: str) -> pl.DataFrame:
    """Iterations in order of their start, place by place; needs ``start_ns``, ``dur_ns`` and ``row``."""
    ordered = frame.sort(*place, "start_ns", "row", nulls_last=False)
    end = pl.col("start_ns") + pl.col("dur_ns")
    delta = pl.col("start_ns") - pl.col("end_ns").shift(1)
    paced = ordered.with_columns(end_ns=end).with_columns(delta_ns=delta.over(place))
    return paced.select(
        *place,
        pl.int_range(pl.len()).over(place).alias("iteration"),
        "start_ns",
        "end_ns",
        "dur_ns",
        "delta_ns",
        pl.col("dur_ns").cum_sum().over(place).alias("dur_sum_ns"),
        pl.when(pl.col("delta_ns").is_not_null())
        .then(pl.col("delta_ns").fill_null(0).cum_sum().over(place))
        .alias("delta_sum_ns"),
    )


def _kernel_pace(trace: Trace, question: Question) -> pl.DataFrame:
    name = _name(question)
    columns = ("row", "kind", "pid", "device", "start_ns", "dur_ns", "name", *kernel_name_columns(question))
    kernels = trace.gpu_ops.select(columns).filter(pl.col("kind") == "kernel", pl.col("dur_ns").is_not_null())
    kernels = with_kernel_names(kernels, trace, question)
    return _pace(kernels.filter(pl.col("name").cast(pl.String) == name), "pid", "device")


def _ranges_called(trace: Trace, ranges: pl.DataFrame, name: str) -> pl.DataFrame:
    """The ranges with a text, as reports show it, or in the default domain with a name."""
    keyed, _ = text_keys(trace, ranges)
    is_named = pl.col("domain").is_null() & (pl.col("name").cast(pl.String) == name)
    flags = ranges.select(is_named).to_series() | (range_text(keyed) == name)
    return ranges.filter(flags)


def _range_pace(trace: Trace, question: Question) -> pl.DataFrame:
    ranges = host_ranges(trace, *TEXT_COLUMNS)
    return _pace(_ranges_called(trace, ranges, _name(question)), "pid", "tid")


def _projection_pace(trace: Trace, question: Question) -> pl.DataFrame:
    name = _name(question)
    projected = _ranges_called(trace, project(trace, host_ranges(trace, *TEXT_COLUMNS), callers=False), name)
    times = projected.select("row", "pid", "tid", start_ns="gpu_start_ns", dur_ns="gpu_span_ns")
    return _pace(times, "pid", "tid")


def _bin_count(question: Question) -> int:
    text = question.arguments.get("bins", str(_BINS))
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_BINS:
        raise InvalidArgumentError(f"bins={text} is not a whole number from 1 to {_MOST_BINS}")
    return int(text)


def _histogram(trace: Trace, question: Question) -> pl.DataFrame:
    """How many kernels of each GPU last how long; bins are those of all GPUs, so that these compare."""
    count, name = _bin_count(question), question.arguments.get("name")
    kernels = trace.gpu_ops.select("kind", *_GPU, "dur_ns", "name", *kernel_name_columns(question))
    kernels = kernels.filter(pl.col("kind") == "kernel", pl.col("dur_ns").is_not_null())
    if name is not None:
        kernels = with_kernel_names(kernels, trace, question)
        kernels = kernels.filter(pl.col("name").cast(pl.String) == name)
    if kernels.is_empty():
        return pl.DataFrame(schema={**_GPU, **_HISTOGRAM})
    least, most = (int(getattr(kernels["dur_ns"], extreme)()) for extreme in ("min", "max"))
    # One duration is one bin, which has no width.
    count = count if least < most else 1
    bounds = pl.Series([least + (most - least) * at // count for at in range(count + 1)], dtype=pl.Int64)
    at = (bounds.search_sorted(kernels["dur_ns"], side="right").cast(pl.Int64) - 1).clip(0, count - 1)
    counts = kernels.with_columns(bin=at).group_by(*_GPU, "bin").agg(instances=pl.len().cast(pl.Int64))
    bins = pl.DataFrame({"from_ns": bounds.head(-1), "to_ns": bounds.tail(-1)})
    bins = bins.with_row_index("bin").with_columns(pl.col("bin").cast(pl.Int64))
    places = kernels.select(*_GPU).unique().sort(*_GPU)
    table = places.join(bins, how="cross").join(counts, on=[*_GPU, "bin"], how="left", nulls_equal=True)
    number = pl.col("instances").fill_null(0)
    share = 100.0 * number / number.sum().over(*_GPU)
    return table.with_columns(number, share_pct=share).sort(*_GPU, "bin")


def _bins(work: pl.DataFrame, question: Question) -> tuple[pl.DataFrame, list[int]]:
    """The work that lasts, and the bounds of equal parts of its time, from first start to last end."""
    count = _bin_count(question)
    work = work.filter(pl.col("dur_ns") >= 0)
    if work.is_empty():
        return work, []
    first = int(work["start_ns"].min())  # pyright: ignore[reportArgumentType] - of integers
    last = int((work["start_ns"] + work["dur_ns"]).max())  # pyright: ignore[reportArgumentType]
    return work, [first + (last - first) * at // count for at in range(count + 1)]


def _covered(work: pl.DataFrame, bounds: list[int], *, merged: bool) -> pl.Series:
    """The time of work between each two bounds, ns; ``merged``: what overlaps counts once."""
    if merged and work.height:
        spans = union_of(work.select("start_ns", "dur_ns"))
        starts, ends = spans["start_ns"], spans["end_ns"]
    else:
        starts, ends = work["start_ns"].sort(), (work["start_ns"] + work["dur_ns"]).sort()
    # Until a moment every piece has run since its start, but for the time since its end.
    until = pl.Series(bounds, dtype=pl.Int64)
    found = _since(starts, until) - _since(ends, until)
    return (found - found.shift(1)).tail(-1)


def _since(moments: pl.Series, until: pl.Series) -> pl.Series:
    """The times from all of ``moments``, which ascend, that lie before each of ``until``, added up."""
    first = until[0]
    past = pl.concat([pl.Series([0], dtype=pl.Int64), (moments - first).cum_sum().cast(pl.Int64)])
    count = moments.search_sorted(until, side="left").cast(pl.Int64)
    return (until - first) * count - past.gather(count)


def _map(trace: Trace, question: Question) -> pl.DataFrame:
    work, bounds = _bins(trace.gpu_ops.select(*_GPU, "start_ns", "dur_ns"), question)
    merged = not question.has("cumulative")
    return _by_gpu(work, bounds, lambda own: {"busy": _covered(own, bounds, merged=merged)})


def _nccl_map(trace: Trace, question: Question) -> pl.DataFrame:
    kernels = trace.gpu_ops.filter(pl.col("kind") == "kernel")
    kernels, bounds = _bins(kernels.select(*_GPU, "start_ns", "dur_ns", "is_communication"), question)
    merged = not question.has("cumulative")

    def parts(own: pl.DataFrame) -> Mapping[str, pl.Series]:
        flags = own["is_communication"].fill_null(value=False)
        nccl, compute = own.filter(flags), own.filter(~flags)
        once = [_covered(part, bounds, merged=True) for part in (nccl, compute, own)]
        return {
            "busy": _covered(own, bounds, merged=merged),
            "nccl": _covered(nccl, bounds, merged=merged),
            "compute": _covered(compute, bounds, merged=merged),
            "overlap": once[0] + once[1] - once[2],
        }

    return _by_gpu(kernels, bounds, parts)


_GPU = {"pid": pl.Int64, "device": pl.Int32}


def _by_gpu(
    work: pl.DataFrame, bounds: list[int], parts: Callable[[pl.DataFrame], Mapping[str, pl.Series]]
) -> pl.DataFrame:
    """A row per GPU of a process and bin, with each of ``parts``, which are ns, as percent of the bin."""
    places = work.select(*_GPU).unique().sort(*_GPU)
    edges = {"start_ns": bounds[:-1], "end_ns": bounds[1:]}
    bins = pl.DataFrame(edges, schema=dict.fromkeys(edges, pl.Int64)).with_row_index("bin")
    length = pl.col("end_ns") - pl.col("start_ns")
    nothing = {f"{name}_pct": pl.Series(dtype=pl.Float64) for name in _PARTS}
    tables = [pl.DataFrame(schema=_GPU).with_columns(**{c: bins[c].clear() for c in bins.columns}, **nothing)]
    for place in places.iter_slices(1):
        own = work.join(place, on=list(_GPU), how="semi", nulls_equal=True)
        parted = parts(own)
        shares = {
            f"{name}_pct": pl.when(length > 0).then(100.0 * pl.lit(parted[name]) / length)
            for name in _PARTS
            if name in parted
        }
        tables.append(place.join(bins, how="cross").with_columns(**shares))
    return pl.concat(tables, how="diagonal")


_HISTOGRAM = {
    "bin": pl.Int64,
    "from_ns": pl.Int64,
    "to_ns": pl.Int64,
    "instances": pl.Int64,
    "share_pct": pl.Float64,
}
_PARTS = ("busy", "nccl", "compute", "overlap")


_MAPPED = {
    "sm_active_pct": ("SMs Active", "SM Active"),
    "sm_issue_pct": ("SM Issue",),
    "tensor_pct": ("Tensor Active",),
}
"""Metrics of the map, by prefixes that match any version of nsys."""


def _metric_map(trace: Trace, question: Question) -> pl.DataFrame:
    starts = [start for names in _MAPPED.values() for start in names]
    curve = gpu_metric_timeline(trace, parts=_bin_count(question), metrics=starts)
    # Beside shares nsys writes other figures of the same counters; without a unit, before 2024, only shares.
    is_bare = ~pl.col("metric").str.strip_chars_end().str.ends_with("]")
    curve = curve.filter((pl.col("unit") == "%").fill_null(is_bare))
    place = ("device", "bin", "start_ns", "end_ns")
    bins = curve.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    figures = {
        column: pl.col("mean_value").filter(_begins(names)).first() for column, names in _MAPPED.items()
    }
    return bins.group_by(place, maintain_order=True).agg(**figures).sort("device", "bin")


def _begins(names: Sequence[str]) -> pl.Expr:
    return pl.any_horizontal(pl.col("metric").str.starts_with(name) for name in names)


def _nccl_times(trace: Trace, question: Question) -> pl.DataFrame:
    del question
    ranges = host_ranges(trace, *TEXT_COLUMNS)
    ranges = ranges.filter(pl.col("domain").cast(pl.String) == _NCCL)
    return ranges.select(pl.col("name").cast(pl.String), "dur_ns")


def _nccl_sum(trace: Trace, question: Question) -> pl.DataFrame:
    named = _nccl_times(trace, question)
    value = pl.col("dur_ns")
    table = named.group_by("name").agg(
        value.sum().alias("total_ns"),
        pl.len().cast(pl.Int64).alias("instances"),
        *distribution(value, "ns"),
        value.quantile(0.25, interpolation="linear").alias("q1_ns"),
        value.quantile(0.75, interpolation="linear").alias("q3_ns"),
    )
    return in_order(table, "total_ns", ascending=["name"])


_PACE = (
    "Iteration: iteration, Start (ns): start_ns, End (ns): end_ns, Duration (ns): dur_ns",
    "Delta (ns): delta_ns, Duration Sum (ns): dur_sum_ns, Delta Sum (ns): delta_sum_ns",
)
_BIN = "PID: pid, Device ID: device, Bin: bin, Start (ns): start_ns, End (ns): end_ns"
_RANGES = {"ranges": ("start_ns", "dur_ns", "kind", *TEXT_COLUMNS), "extra_args": ()}
_WORK = ("kind", "pid", "device", "start_ns", "dur_ns")

REPORTS = (
    Report(
        name="nccl_sum",
        doc="NCCL's own ranges on the host",
        fields=parse_fields(
            "Name: name, Count: instances, Sum (ns): total_ns, Avg (ns): mean_ns, StdDev (ns): std_ns",
            "Min (ns): min_ns, Q1 (ns): q1_ns, Med (ns): median_ns, Q3 (ns): q3_ns, Max (ns): max_ns",
        ),
        build=_nccl_sum,
        sample=_nccl_times,
        sources=(NVTX,),
        tables=_RANGES,
    ),
    Report(
        name="nvtx_pace",
        doc="Consecutive ranges with the name name=NAME",
        fields=parse_fields("PID: pid, TID: tid", *_PACE),
        build=_range_pace,
        sources=(NVTX,),
        tables=_RANGES,
        arguments=("name",),
    ),
    Report(
        name="nvtx_gpu_proj_pace",
        doc="The same for their projections onto the GPU",
        fields=parse_fields("PID: pid, TID: tid", *_PACE),
        build=_projection_pace,
        sources=(NVTX,),
        tables={
            **_RANGES,
            "launches": ("start_ns", "dur_ns"),
            "gpu_ops": ("start_ns", "dur_ns", "launch_row"),
            "threads": (),
        },
        only_launching=True,
        arguments=("name",),
    ),
    Report(
        name="cuda_gpu_kern_pace",
        doc="Consecutive kernels with the name name=NAME",
        fields=parse_fields("PID: pid, Device ID: device", *_PACE),
        build=_kernel_pace,
        sources=(KERNEL,),
        tables={"gpu_ops": (*_WORK, "name")},
        arguments=("base", "mangled", "name"),
    ),
    Report(
        name="cuda_gpu_kern_hist",
        doc="Distribution of kernel durations; bins=N, name=NAME",
        fields=parse_fields(
            "PID: pid, Device ID: device, Bin: bin, From (ns): from_ns, To (ns): to_ns, Count: instances",
            "Probability (%): share_pct",
        ),
        build=_histogram,
        sources=(KERNEL,),
        tables={"gpu_ops": ("kind", "pid", "device", "dur_ns", "name")},
        arguments=("base", "mangled", "bins", "name"),
    ),
    Report(
        name="cuda_gpu_time_util_map",
        doc="GPU utilisation in bins=N equal parts of the time",
        fields=parse_fields(_BIN, "In-Use (%): busy_pct"),
        build=_map,
        sources=(KERNEL, *MEMORY, GRAPH),
        tables={"gpu_ops": _WORK},
        arguments=("bins", "cumulative"),
    ),
    Report(
        name="gpu_metric_util_map",
        doc="The same for multiprocessors, as sampled",
        fields=parse_fields(
            "Device ID: device, Bin: bin, Start (ns): start_ns, End (ns): end_ns",
            "SM Active (%): sm_active_pct, SM Issue (%): sm_issue_pct, Tensor Active (%): tensor_pct",
        ),
        build=_metric_map,
        sources=_METRICS,
        tables={"counters": ("name", "device", "start_ns", "counter", "value", "unit")},
        arguments=("bins",),
    ),
    Report(
        name="nccl_gpu_time_util_map",
        doc="The same for kernels, of NCCL and others",
        fields=parse_fields(
            _BIN, "All (%): busy_pct, NCCL (%): nccl_pct, Compute (%): compute_pct, Overlap (%): overlap_pct"
        ),
        build=_nccl_map,
        sources=(KERNEL,),
        tables={"gpu_ops": (*_WORK, "name", "is_communication")},
        arguments=("bins", "cumulative"),
    ),
)
