"""HolisticTraceAnalysis on the time of one rank's GPU: its parts, kernels, annotations and copies."""

import polars as pl

from kernelscope.compat.hta.events import describe, hta_events, rank_of, sums
from kernelscope.trace import Trace

_KINDS = ("COMPUTATION", "COMMUNICATION", "MEMORY")
_COPY_NAMES = ("Memcpy DtoH", "Memcpy HtoD", "Memcpy DtoD", "Memset", "Memcpy Unknown")


def temporal_breakdown(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """``get_temporal_breakdown``: empty for a trace without GPU work, where HolisticTraceAnalysis fails."""
    work = hta_events(trace, rounded=rounded).filter("on_gpu")
    busy = _merged(work)
    compute = _length(_merged(work.filter(pl.col("kernel_type") == "COMPUTATION")))
    kernel = busy.select(pl.col("end").last() - pl.col("ts").first()).item() if busy.height else 0.0
    idle = kernel - _length(busy)
    parts = {"idle_time": idle, "compute_time": compute, "non_compute_time": kernel - compute - idle}
    row = {f"{name}(us)": value for name, value in parts.items()} | {"kernel_time(us)": kernel}
    row |= {
        f"{name}_pctg": round(100 * value / kernel, 2) if kernel else 0.0 for name, value in parts.items()
    }
    table = pl.DataFrame([row], schema=dict.fromkeys(row, pl.Float64)).head(busy.height)
    return table.select(rank_of(trace), pl.all())


def comm_comp_overlap(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """``get_comm_comp_overlap``: null where there is no communication."""
    segments = _segments(hta_events(trace, rounded=rounded).filter("on_gpu"))
    both = _total(segments.filter(pl.col("COMPUTATION") & pl.col("COMMUNICATION")))
    communication = _total(segments.filter("COMMUNICATION"))
    share = round(100 * both / communication, 2) if communication else None
    return pl.DataFrame(
        {"comp_comm_overlap_pctg": [share]}, schema={"comp_comm_overlap_pctg": pl.Float64}
    ).select(rank_of(trace), pl.all())


def kernel_type_breakdown(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """The first frame of ``get_gpu_kernel_breakdown``: time by what ran at once; parts cut to whole us."""
    segments = _segments(hta_events(trace, rounded=rounded).filter("on_gpu"))
    label = pl.concat_str(
        *(pl.when(kind).then(pl.lit(kind)) for kind in _KINDS), separator=" overlapping ", ignore_nulls=True
    )
    table = segments.group_by(kernel_type=label).agg(sum=pl.col("length").cast(pl.Int64).sum())
    table = table.filter((pl.col("kernel_type") != "") & (pl.col("sum") != 0))
    return table.with_columns(percentage=(100 * pl.col("sum") / pl.col("sum").sum()).round(1)).sort(
        "sum", descending=True
    )


def kernel_breakdown(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """The second frame of ``get_gpu_kernel_breakdown`` with every kernel named."""
    work = hta_events(trace, rounded=rounded).filter(pl.col("kernel_type").is_in(_KINDS))
    return (
        work.group_by("kernel_type", "name")
        .agg(*sums())
        .sort("kernel_type", "name")
        .select("name", pl.all().exclude("name", "kernel_type"), "kernel_type", rank_of(trace))
    )


def annotation_breakdown(trace: Trace, *, on_gpu: bool, rounded: bool = True) -> pl.DataFrame:
    """``get_gpu_user_annotation_breakdown`` with every annotation named, of the GPU or of the host."""
    category = "gpu_user_annotation" if on_gpu else "user_annotation"
    events = hta_events(trace, rounded=rounded).filter(pl.col("cat") == category)
    return events.group_by("name").agg(*sums()).sort("name").with_columns(rank_of(trace))


def memory_bandwidth(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """``get_memory_bw_time_series``."""
    events = hta_events(trace, rounded=rounded).filter(pl.col("kernel_type") == "MEMORY")
    rates = trace.gpu_ops.select("row", pid="device", rate=pl.col("bandwidth_gb_per_s").fill_null(0.0))
    name = pl.when(pl.col("name").str.starts_with("Memset")).then(pl.lit("Memset"))
    name = name.when(pl.col("name").str.starts_with("Memcpy Unknown")).then(pl.lit("Memcpy Unknown"))
    copies = events.join(rates, on="row", how="left").select(
        "ts",
        "pid",
        "rate",
        dur=pl.when(pl.col("dur") == 0).then(1.0).otherwise("dur"),
        name=name.otherwise(pl.col("name").str.slice(0, 11)),
    )
    copies = copies.filter(pl.col("name").is_in(_COPY_NAMES))
    ends = copies.with_columns(pl.col("ts") + pl.col("dur"), -pl.col("rate"))
    changes = pl.concat([copies, ends]).sort("name", "ts", maintain_order=True)
    return changes.select("ts", "pid", "name", memory_bw_gbps=pl.col("rate").cum_sum().over("name"))


def memory_bandwidth_summary(trace: Trace, *, rounded: bool = True) -> pl.DataFrame:
    """``get_memory_bw_summary``: statistics of the series where it is above 0, by name."""
    series = memory_bandwidth(trace, rounded=rounded).filter(pl.col("memory_bw_gbps") > 0)
    return series.group_by("name").agg(describe("memory_bw_gbps")).sort("name")


def _merged(work: pl.DataFrame) -> pl.DataFrame:
    """Unions as HolisticTraceAnalysis makes them: an event that lasts -1 us is a part, too."""
    ordered = work.select("ts", "end").sort("ts", maintain_order=True)
    opens = (pl.col("ts") > pl.col("end").cum_max().shift(1)).fill_null(value=True)
    return ordered.group_by(opens.cum_sum().alias("_part"), maintain_order=True).agg(
        pl.col("ts").min(), pl.col("end").max()
    )


def _length(parts: pl.DataFrame) -> float:
    return parts.select((pl.col("end") - pl.col("ts")).sum()).item()


def _total(segments: pl.DataFrame) -> float:
    return segments.select(pl.col("length").sum()).item()


def _segments(work: pl.DataFrame) -> pl.DataFrame:
    """The time between neighbouring starts and ends: what runs meanwhile, and ``length``."""
    changes: list[pl.DataFrame] = []
    for kind in _KINDS:
        parts = _merged(work.filter(pl.col("kernel_type") == kind))
        changes += [parts.select(at="ts", kind=pl.lit(kind), change=1)]
        changes += [parts.select(at="end", kind=pl.lit(kind), change=-1)]
    ordered = pl.concat(changes).sort("at", "change", descending=[False, True])
    running = [
        (pl.when(pl.col("kind") == kind).then("change").otherwise(0).cum_sum() > 0).alias(kind)
        for kind in _KINDS
    ]
    return ordered.select(*running, length=(pl.col("at").shift(-1) - pl.col("at")).fill_null(0.0))
