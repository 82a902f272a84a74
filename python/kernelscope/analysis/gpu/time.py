"""Time of each GPU, divided into computation, communication, copies and idle time."""

from collections.abc import Sequence

import polars as pl

from kernelscope.analysis.gpu.work import CLASSES, WORK_CLASS, GpuWork
from kernelscope.analysis.grouping import as_text, check_by
from kernelscope.analysis.intervals import Intervals, merged
from kernelscope.trace import Trace

_OF_CALLS = ("group", "phase")
_OVERLAP: dict[str, pl.DataType] = {
    "calls": pl.Int64(),
    "communication_ns": pl.Int64(),
    "overlap_ns": pl.Int64(),
    "exposed_ns": pl.Int64(),
    "overlap": pl.Float64(),
}


def temporal_breakdown(trace: Trace) -> pl.DataFrame:
    """Time of each GPU by category, from its first to its last operation.

    A moment with several activities counts for the first of: computation, communication, copies. ``work``
    reuses intermediate results of other questions.

    Columns: ``device``, ``span_ns``, ``compute_ns`` (a kernel other than communication runs, or a whole
        graph), ``communication_ns`` (communication runs and nothing computes: it is exposed), ``memory_ns``
        (only copies and memsets run), ``idle_ns``; and ``compute_share``, ``communication_share``,
        ``memory_share``, ``idle_share`` of the span. The four parts sum to ``span_ns``.
    Units: ns; shares between 0 and 1.
    """
    work = GpuWork(trace)
    start = pl.col("start_ns")
    end = start + pl.col("dur_ns").fill_null(0).clip(lower_bound=0)
    spans = trace.gpu_ops.group_by("device").agg(span_ns=end.max() - start.min())
    parts = _first_class_ns(work.on_devices.covered_ns(work.kinds, of=work.launches.of), by=["device"])
    table = spans.join(parts, on="device", how="left", nulls_equal=True)
    parts_ns = [pl.col(f"{name}_ns") for name in CLASSES]
    table = table.with_columns(idle_ns=pl.col("span_ns") - pl.sum_horizontal(parts_ns))
    columns = [*CLASSES, "idle"]
    share = [
        pl.when(pl.col("span_ns") > 0).then(pl.col(f"{name}_ns") / pl.col("span_ns")).alias(f"{name}_share")
        for name in columns
    ]
    return table.select("device", "span_ns", *(f"{name}_ns" for name in columns), *share).sort("device")


def comm_comp_overlap(trace: Trace, by: str | Sequence[str] = ("device",)) -> pl.DataFrame:
    """Communication hidden by computation, and exposed communication.

    ``by`` accepts any columns of the table ``gpu_ops``, such as ``device``, ``stream``, ``name`` or ``step``,
    and ``group`` (process group and its ranks) and ``phase`` (of the operator that called it). Overlaps
    within a group count once. Computation on the same GPU hides communication.

    Columns: the columns of ``by``; ``calls``; ``communication_ns`` (communication of the group runs),
        ``overlap_ns`` (and a kernel other than communication runs, too), ``exposed_ns`` (and none does),
        ``overlap`` (hidden share of the communication). Groups without communication are left out.
    Units: ns; shares between 0 and 1.
    Order: by exposed time, longest first.
    Raises: InvalidArgumentError: ``by`` contains an unknown column.
    """
    return overlaps(trace, [check_by(by, [*trace.gpu_ops.columns, *_OF_CALLS])])[0]


def overlaps(trace: Trace, groupings: Sequence[Sequence[str]]) -> list[pl.DataFrame]:
    """Returns the table of ``comm_comp_overlap`` for each of several groupings, at about the cost of one.

    ``groupings``: lists of columns of ``gpu_ops``, and ``group`` and ``phase``.
    """
    needed = {"device": None, **{name: None for columns in groupings for name in columns}}
    needed.pop("start_ns", None)
    work = trace.gpu_ops.lazy().filter("is_communication")
    if not needed.keys().isdisjoint(_OF_CALLS):
        work = work.join(_calls(trace), on="row", how="left", maintain_order="left")
    calls = work.select(work_columns(*needed)).collect()
    if calls.is_empty():
        missing = [pl.lit(None, dtype).alias(name) for name, dtype in _OVERLAP.items()]
        return [as_text(calls.select(by)).with_columns(missing) for by in groupings]
    ends = ["device", "start_ns", "end_ns"]
    computing = GpuWork(trace).computing
    parts = [merged(calls, by=["device", *(name for name in by if name != "device")]) for by in groupings]
    hidden = computing.hidden_ns(pl.concat(part[ends] for part in parts))
    tables: list[pl.DataFrame] = []
    done = 0
    for columns, part in zip(groupings, parts, strict=True):
        own = part.with_columns(hidden.slice(done, part.height))
        tables.append(_overlap(calls, own, list(columns)))
        done += part.height
    return tables


def _calls(trace: Trace) -> pl.LazyFrame:
    """Group and phase of what a trace communicates: ``row``, ``group``, ``phase``."""
    from kernelscope.analysis.ranks.collective_calls import communication_calls
    from kernelscope.analysis.ranks.rank_tables import trace_tables

    calls = communication_calls(trace_tables(trace, 0), ranks=1)
    return calls.filter(pl.col("device").is_not_null()).select("row", *_OF_CALLS).lazy()


def _overlap(calls: pl.DataFrame, spans: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """What the calls of each group took, and how much of that is hidden, from the union of their times."""
    length = pl.col("end_ns") - pl.col("start_ns")
    table = spans.group_by(columns).agg(communication_ns=length.sum(), overlap_ns=pl.col("hidden_ns").sum())
    counts = calls.group_by(columns).agg(pl.len().cast(pl.Int64).alias("calls"))
    total, hidden = pl.col("communication_ns").fill_null(0), pl.col("overlap_ns").fill_null(0)
    table = counts.join(table, on=columns, how="left", nulls_equal=True).with_columns(
        total, hidden, exposed_ns=total - hidden, overlap=pl.when(total > 0).then(hidden / total)
    )
    descending = [True, *(False for _ in columns)]
    return as_text(table).sort(["exposed_ns", *columns], descending=descending, nulls_last=True)


def work_columns(*columns: str) -> list[pl.Expr]:
    """Returns the selection from a table ``gpu_ops``: ``columns``, ``start_ns``, ``end_ns``, ``class``."""
    return [
        *map(pl.col, columns),
        pl.col("start_ns"),
        (pl.col("start_ns") + pl.col("dur_ns").fill_null(0).clip(lower_bound=0)).alias("end_ns"),
        WORK_CLASS,
    ]


def first_class_ns(work: pl.DataFrame, *, by: list[str]) -> pl.DataFrame:
    """Returns the time of each group with a class and no earlier class running: ``by``, ``<class>_ns``."""
    return _first_class_ns(Intervals(work, by=by).covered_ns(work["class"]), by=by)


def _first_class_ns(reached: pl.DataFrame, *, by: list[str]) -> pl.DataFrame:
    """The same, from the time in which classes up to each ``level`` run."""
    # A class beyond a group's last one adds nothing.
    upto = [pl.col("covered_ns").filter(pl.col("level") <= level).last() for level in range(len(CLASSES))]
    before = [pl.lit(0), *upto[:-1]]
    return reached.group_by(by, maintain_order=True).agg(
        (own - earlier).alias(f"{name}_ns") for name, own, earlier in zip(CLASSES, upto, before, strict=True)
    )
