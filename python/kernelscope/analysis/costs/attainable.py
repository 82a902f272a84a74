"""Achieved and attainable performance: the limit of each operator, and the time that could be saved."""

from collections.abc import Mapping, Sequence

import polars as pl

from kernelscope.analysis.costs.costed import KNOWN
from kernelscope.analysis.costs.limits import LimitedWork, limited_work, refined
from kernelscope.analysis.costs.unique_costs import FIGURES
from kernelscope.analysis.costs.work import count_operators
from kernelscope.analysis.grouping import as_text, check_by
from kernelscope.costs import ConventionName
from kernelscope.trace import Trace

_OF_WORK = ("kernel", "stream", "device", "step", "kind")
_OF_COSTS = ("name", "op", "model", "family", "dtype", "status")


def roofline(
    trace: Trace,
    by: str | Sequence[str] = ("name",),
    *,
    gpu: str | None = None,
    peak: Mapping[str, float] | None = None,
    convention: ConventionName = "kernelscope",
) -> pl.DataFrame:
    """Achieved performance, limits of the GPU, and the time between them, by the columns ``by``.

    ``by`` accepts ``name`` (of the operator; ``op`` is the same), ``kernel``, ``model``, ``family``,
    ``dtype``, ``status``, ``stream``, ``device``, ``step`` and any column of ``ops`` (``input_dims``,
    ``module``, ``phase`` ...). It is empty for the whole run. Several kernels of one operator share its cost
    in proportion to their time. ``gpu`` names the GPU if the trace does not (or names it wrongly). ``peak``
    gives measured peaks: FLOP/s by type, bytes/s as ``bandwidth``. If the GPU is unknown, attainable columns
    are null.

    Columns: the columns of ``by``; ``calls`` (operators), ``kernels`` (GPU operations), ``device_ns``,
        ``known_ns`` (part of it with known FLOPs), ``estimate_ns`` (part of that with estimated FLOPs),
        ``flops``, ``bytes_read``, ``bytes_written``, ``intensity`` (FLOP per byte), ``flops_per_s`` and
        ``bytes_per_s`` (over the time for which they are known), ``attainable_flops_per_s``,
        ``attainable_ns`` (minimum time at the peaks), ``attained_pct``, ``bound`` (compute, memory;
        communication and bus for operations that wait for other GPUs or the host), ``limit_type`` (the type
        whose peak is the limit), ``saveable_ns``, ``tensor_core_ns``, ``missed_ns`` (time of products that
        could use tensor cores but did not), and ``flag`` (reason why more than a peak seems to be achieved).
    Units: ns; FLOP; bytes; per second; percent.
    Formula: attainable_ns = max(flops / peak of the type, bytes / bandwidth) of each operator; attained_pct =
        attainable_ns / time; saveable_ns = share of the busy time - attainable_ns, at least 0. Operations
        that overlap on a GPU share the time, so that the sum is at most the busy time.
    Order: by saveable time, then by device time, longest first.
    Raises: InvalidArgumentError: the column, GPU or type of peak does not exist. KeyError: the convention
    does not exist.
    Source: Williams, Waterman and Patterson 2009.
    Example: ``roofline(trace, by=("name", "input_dims")).head(10)``
    """
    return summed(trace, limited_work(trace, convention=convention, gpu=gpu, peak=peak), by)


def summed(trace: Trace, work: LimitedWork, by: str | Sequence[str]) -> pl.DataFrame:
    """Returns the rows of :func:`roofline` for operations with known limits."""
    known = (*_OF_COSTS, *_OF_WORK)
    of_ops = ["op_row", *(c for c in trace.ops.columns if c not in (*known, "row"))]
    columns = check_by(by, [*known, *of_ops]) if by else []
    work = refined(trace, work, [c for c in columns if c in of_ops])
    # The columns of the groups, under names that no figure has.
    keys = {f"by_{c}": pl.col("name" if c == "op" else c) for c in columns if c in known}
    keyed = work.table.with_columns(**keys)
    if columns:
        by_keys = [f"by_{c}" for c in columns]
        groups = keyed.select(by_keys).unique(maintain_order=True).with_row_index("group")
        keyed = keyed.join(groups, on=by_keys, how="left", nulls_equal=True, maintain_order="left")
        sums = groups.join(keyed.group_by("group").agg(_sums()), on="group", maintain_order="left")
    else:
        keyed = keyed.with_columns(group=pl.lit(0, pl.UInt32))
        sums = keyed.select(_sums())
    table = sums.with_columns(calls=count_operators(work.pieces, keyed["group"], sums.height))
    return _finished(as_text(table.rename({f"by_{c}": c for c in columns})), columns)


def _finished(table: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Adds rates and shares, and puts what could be saved most first."""
    seconds = 1e-9
    moved = pl.col("bytes_read") + pl.col("bytes_written")
    rate = pl.col("flops") / (pl.col("_flops_ns") * seconds)
    table = table.with_columns(
        intensity=pl.when(pl.col("_both_bytes") > 0).then(pl.col("_both_flops") / pl.col("_both_bytes")),
        flops_per_s=pl.when(pl.col("_flops_ns") > 0).then(rate),
        bytes_per_s=pl.when(pl.col("_bytes_ns") > 0).then(moved / (pl.col("_bytes_ns") * seconds)),
        attainable_flops_per_s=pl.when(pl.col("attainable_ns") > 0).then(
            pl.col("_bounded_flops") / (pl.col("attainable_ns") * seconds)
        ),
        attained_pct=pl.when(pl.col("_bounded_ns") > 0).then(
            100.0 * pl.col("attainable_ns") / pl.col("_bounded_ns")
        ),
    )
    table = table.with_columns(
        flag=pl.when(pl.col("attainable_ns") > pl.col("_bounded_ns")).then("_flag"),
        **{
            c: pl.col(c).round().cast(pl.Int64, strict=False)
            for c in (*FIGURES, "attainable_ns", "saveable_ns", "tensor_core_ns")
        },
    )
    return table.select(*columns, *_RESULT).sort(
        ["saveable_ns", "device_ns", *columns],
        descending=[True, True, *(False for _ in columns)],
        nulls_last=True,
    )


_RESULT = (
    "calls", "kernels", "device_ns", "known_ns", "estimate_ns", "flops", "bytes_read", "bytes_written",
    "intensity", "flops_per_s", "bytes_per_s", "attainable_flops_per_s", "attainable_ns", "attained_pct",
    "bound", "limit_type", "saveable_ns", "tensor_core_ns", "missed_ns", "flag",
)  # fmt: skip


def _sums() -> list[pl.Expr]:
    duration = pl.col("device_ns")
    known = pl.col("status").is_in(KNOWN)
    bounded = pl.col("attainable_ns").is_not_null()
    moved = pl.col("bytes_read") + pl.col("bytes_written")

    def total(column: str) -> pl.Expr:
        """A sum that is null where nothing is known."""
        return pl.when(pl.col(column).is_not_null().any()).then(pl.col(column).sum()).alias(column)

    def of_longest(column: str, longest: str, where: pl.Expr) -> pl.Expr:
        """What the longest piece of work says; of equally long ones the first."""
        order = pl.col(column).sort_by(f"{longest}_ns", f"{longest}_at", descending=[True, False])
        return order.filter(where.sort_by(f"{longest}_ns", f"{longest}_at", descending=[True, False])).first()

    return [
        pl.col("pieces").sum().alias("kernels"),
        duration.sum(),
        duration.filter(known).sum().alias("known_ns"),
        duration.filter(pl.col("status") == "estimate").sum().alias("estimate_ns"),
        *(total(c) for c in (*FIGURES, "attainable_ns", "saveable_ns", "tensor_core_ns", "missed_ns")),
        duration.filter(bounded).sum().alias("_bounded_ns"),
        pl.col("flops").filter(bounded).sum().alias("_bounded_flops"),
        pl.col("flops").filter(moved.is_not_null()).sum().alias("_both_flops"),
        moved.filter(pl.col("flops").is_not_null()).sum().alias("_both_bytes"),
        duration.filter(pl.col("flops").is_not_null()).sum().alias("_flops_ns"),
        duration.filter(moved.is_not_null()).sum().alias("_bytes_ns"),
        of_longest("bound", "longest", pl.col("bound").is_not_null()).alias("bound"),
        of_longest("limit_type", "longest", pl.col("bound").is_not_null()).alias("limit_type"),
        of_longest("flag", "flagged", pl.col("flag").is_not_null()).alias("_flag"),
    ]
