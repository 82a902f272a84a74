"""Achieved against attainable: what limits each operator, and the time that could be saved."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.calls import INPUTS, operator_calls
from kernelscope.analysis.costing.costed import Costed, costed_trace
from kernelscope.analysis.costing.exclusive import exclusive_ns
from kernelscope.analysis.costing.peaks import device_peaks, with_peaks
from kernelscope.analysis.costing.physics import with_flags
from kernelscope.analysis.costing.table import described
from kernelscope.analysis.grouping import as_text, check_by
from kernelscope.costs import ConventionName

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_FIGURES = ("flops", "bytes_read", "bytes_written")
# Copies between host and GPU, or between GPUs, wait for the bus and not for memory.
_BUS = r"(?i)HtoD|DtoH|PtoP|Host-to|-to-Host|Peer"
_OF_WORK = ("kernel", "stream", "device", "step", "kind")
_OF_COSTS = ("name", "op", "model", "family", "dtype", "status", "op_row")


def roofline(
    trace: "Trace",
    by: str | Sequence[str] = ("name",),
    *,
    gpu: str | None = None,
    peak: Mapping[str, float] | None = None,
    convention: ConventionName = "kernelscope",
) -> pl.DataFrame:
    """What the GPU achieved, what it could have, and the time that lies between, by the columns ``by``.

    ``by`` takes ``name`` (the operator's; ``op`` is the same), ``kernel``, ``model``, ``family``, ``dtype``,
    ``status``, ``stream``, ``device``, ``step`` and any column of ``ops`` (``input_dims``, ``module``,
    ``phase`` ...); empty for the whole run. Several kernels of one operator share its cost in proportion to
    their time. ``gpu`` names the GPU if the trace does not (or wrongly), ``peak`` gives peaks as measured:
    FLOP/s by type, bytes/s as ``bandwidth``. Where the GPU is not known, attainable columns are null.

    Columns: those of ``by``; ``calls`` (operators), ``kernels`` (GPU ops), ``device_ns``, ``known_ns`` (the
        part of it whose cost is known), ``estimate_ns`` (of that, as an estimate), ``flops``,
        ``bytes_read``, ``bytes_written``, ``intensity`` (FLOP per byte), ``flops_per_s`` and ``bytes_per_s``
        (over the time for which they are known), ``attainable_flops_per_s``, ``attainable_ns`` (the least
        time for that work), ``attained_pct``, ``bound`` (compute, memory; communication and bus for work
        that waits for other GPUs or the host), ``limit_type`` (the type whose peak limits), ``saveable_ns``,
        ``tensor_core_ns``, ``missed_ns`` (time of products that tensor cores can do and that ran without),
        and ``flag`` (why more than 1.05 of a peak seems to be achieved).
    Units: ns; FLOP; bytes; per second; percent.
    Formula: attainable_ns = max(flops / peak of the type, bytes / bandwidth) of each operator; attained_pct =
        attainable_ns / time; saveable_ns = share of the busy time - attainable_ns, not below 0. Work that
        overlaps on a GPU shares the moments, so that the sum is at most the busy time.
    Order: by saveable time, then by device time, longest first.
    Raises: InvalidArgumentError: no such column, GPU or type of peak. KeyError: no such convention.
    Source: Williams, Waterman and Patterson 2009.
    Example: ``roofline(trace, by=("name", "input_dims")).head(10)``
    """
    costed = costed_trace(trace, convention=convention)
    return summed(trace, limited_work(trace, costed, gpu=gpu, peak=peak), by)


def limited_work(
    trace: "Trace", costed: Costed, *, gpu: str | None = None, peak: Mapping[str, float] | None = None
) -> pl.DataFrame:
    """Every piece of linked GPU work with its share of its operator's cost, and what limits it.

    Columns: ``row``, ``op_row``, ``name`` (of the operator), ``kernel``, ``model``, ``family``, ``dtype``,
        ``status``, ``stream``, ``device``, ``step``, ``kind``, ``dur_ns``, ``share``, ``flops``,
        ``bytes_read``, ``bytes_written``, ``attainable_ns``, ``compute_ns``, ``memory_ns``, ``bound``,
        ``limit_type``, ``saveable_ns``, ``tensor_core_ns``, ``missed_ns``, ``flag``. Figures are shares, as
        float64.
    """
    devices = device_peaks(trace, gpu=gpu, peak=peak)
    ops = described(trace, costed)
    work = trace.gpu_ops.select(
        "row", "kind", "stream", "device", "step", "start_ns", "dur_ns", "is_communication", kernel="name"
    )
    work = work.with_columns(costed.work["op_row"], busy_ns=exclusive_ns(work))
    work = work.filter(pl.col("op_row").is_not_null())
    told = ops.select(
        "op_row", "name", "model", "family", "dtype", "status", "peak", "math", "tensor_cores",
        "tensor_core_ns", "kernels", op_ns="device_ns",
        **{f"op_{c}": pl.col(c) for c in _FIGURES},
    )  # fmt: skip
    work = work.join(told, on="op_row", how="left", maintain_order="left")
    equal = 1.0 / pl.col("kernels")
    part = pl.when(pl.col("op_ns") > 0).then(pl.col("dur_ns").fill_null(0) / pl.col("op_ns")).otherwise(equal)
    work = with_peaks(work.with_columns(share=part), devices).with_columns(
        **{c: pl.col(f"op_{c}") * pl.col("share") for c in _FIGURES},
        compute_ns=pl.col("op_flops") / pl.col("compute_peak") * 1e9 * pl.col("share"),
        memory_ns=(pl.col("op_bytes_read") + pl.col("op_bytes_written"))
        / pl.col("bandwidth") * 1e9 * pl.col("share"),
    )  # fmt: skip
    return with_flags(_bounded(work))


def _bounded(work: pl.DataFrame) -> pl.DataFrame:
    """Adds what binds each piece of work, the least time it needs and the time that could be saved."""
    text = pl.col("kernel").cast(pl.String)
    outside = (
        pl.when(pl.col("is_communication"))
        .then(pl.lit("communication"))
        .when((pl.col("kind").cast(pl.String) == "memcpy") & text.str.contains(_BUS))
        .then(pl.lit("bus"))
    )
    # Work without a peak of its own, such as that on integers, has only the memory to wait for.
    computing = pl.col("compute_ns").fill_null(pl.when(pl.col("compute_peak").is_null()).then(0.0))
    known = outside.is_null() & pl.col("memory_ns").is_not_null() & computing.is_not_null()
    least = pl.when(known).then(pl.max_horizontal(computing, pl.col("memory_ns")))
    bound = pl.when(computing > pl.col("memory_ns")).then(pl.lit("compute")).otherwise(pl.lit("memory"))
    return work.with_columns(
        attainable_ns=least,
        bound=outside.fill_null(pl.when(known).then(bound)),
        saveable_ns=(pl.col("busy_ns") - least).clip(0),
        missed_ns=pl.when(pl.col("eligible") & (pl.col("tensor_cores") == pl.lit(False)))
        .then(pl.col("dur_ns"))
        .otherwise(pl.when(pl.col("tensor_cores").is_not_null()).then(0)),
        tensor_core_ns=pl.when(pl.col("tensor_cores"))
        .then(pl.col("tensor_core_ns") * pl.col("share"))
        .otherwise(pl.when(pl.col("tensor_cores").is_not_null()).then(0.0)),
    )


def summed(trace: "Trace", work: pl.DataFrame, by: str | Sequence[str]) -> pl.DataFrame:
    """The rows of :func:`roofline` for work whose limits are known."""
    of_ops = [c for c in trace.ops.columns if c not in (*_OF_WORK, *_OF_COSTS, "row")]
    columns = check_by(by, [*_OF_COSTS, *_OF_WORK, *of_ops]) if by else []
    asked = [c for c in columns if c in of_ops]
    if asked:
        # Ranges that stand for operators have their inputs only.
        of_calls = [c for c in asked if c in INPUTS] if trace.ops.is_empty() else []
        linked = (
            operator_calls(trace).select("row", *of_calls) if of_calls else trace.ops.select("row", *asked)
        )
        linked = linked.rename({"row": "op_row"}).with_columns(
            pl.lit(None, pl.String).alias(c) for c in asked if c not in linked.columns
        )
        work = work.join(linked, on="op_row", how="left", maintain_order="left")
    keys = [pl.col("name").alias("op") if c == "op" else pl.col(c) for c in columns] or [
        pl.lit("run").alias("run")
    ]
    table = as_text(work.group_by(keys).agg(_sums()))
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
        flag=pl.when(pl.col("_over_ns") > 1.05 * pl.col("_bounded_ns")).then("_flag"),
        **{
            c: pl.col(c).round().cast(pl.Int64)
            for c in (*_FIGURES, "attainable_ns", "saveable_ns", "tensor_core_ns")
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
    duration = pl.col("dur_ns").fill_null(0)
    known = pl.col("status").is_in(["exact", "estimate", "unknown_dtype"])
    bounded = pl.col("attainable_ns").is_not_null()
    moved = pl.col("bytes_read") + pl.col("bytes_written")

    def total(expression: pl.Expr, where: pl.Expr) -> pl.Expr:
        """A sum that is null where nothing is known."""
        return pl.when(where.any()).then(expression.filter(where).sum())

    longest = duration.filter(pl.col("bound").is_not_null()).arg_max()
    flagged = pl.col("flag").is_not_null()
    return [
        pl.col("op_row").n_unique().cast(pl.Int64).alias("calls"),
        pl.len().cast(pl.Int64).alias("kernels"),
        duration.sum().alias("device_ns"),
        duration.filter(known).sum().alias("known_ns"),
        duration.filter(pl.col("status") == "estimate").sum().alias("estimate_ns"),
        *(total(pl.col(c), pl.col(c).is_not_null()).alias(c) for c in _FIGURES),
        total(pl.col("attainable_ns"), bounded).alias("attainable_ns"),
        total(pl.col("saveable_ns"), bounded).alias("saveable_ns"),
        total(pl.col("tensor_core_ns"), pl.col("tensor_core_ns").is_not_null()).alias("tensor_core_ns"),
        total(pl.col("missed_ns"), pl.col("missed_ns").is_not_null()).alias("missed_ns"),
        duration.filter(bounded).sum().alias("_bounded_ns"),
        pl.col("flops").filter(bounded).sum().alias("_bounded_flops"),
        pl.col("flops").filter(moved.is_not_null()).sum().alias("_both_flops"),
        moved.filter(pl.col("flops").is_not_null()).sum().alias("_both_bytes"),
        duration.filter(pl.col("flops").is_not_null()).sum().alias("_flops_ns"),
        duration.filter(moved.is_not_null()).sum().alias("_bytes_ns"),
        pl.max_horizontal(
            pl.col("compute_ns").filter(bounded).sum(), pl.col("memory_ns").filter(bounded).sum()
        ).alias("_over_ns"),
        pl.col("bound").filter(pl.col("bound").is_not_null()).get(longest, null_on_oob=True).alias("bound"),
        pl.col("limit_type")
        .filter(pl.col("bound").is_not_null())
        .get(longest, null_on_oob=True)
        .alias("limit_type"),
        pl.col("flag")
        .filter(flagged)
        .get(duration.filter(flagged).arg_max(), null_on_oob=True)
        .alias("_flag"),
    ]
