"""Limits of GPU operations, by the kinds of their operators and properties of the operations."""

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.costs.costed import Costed, costed_trace
from kernelscope.analysis.costs.peaks import DevicePeaks, device_peaks, with_peaks
from kernelscope.analysis.costs.unique_costs import FIGURES, INPUTS, operator_calls
from kernelscope.analysis.costs.work import CostedWork
from kernelscope.analysis.replays import with_replayed_ops
from kernelscope.costs import ConventionName
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

OVER_BUS = r"(?i)HtoD|DtoH|PtoP|Host-to|-to-Host|Peer"
"""Names of copies between host and GPU, or between GPUs, which wait for the bus and not for memory."""


class LimitedWork(NamedTuple):
    """GPU operations with known operators, and their limits.

    ``table`` has one row per kind of operators and class of operations. Columns: ``name`` (of the operator),
    ``model``, ``family``, ``dtype``, ``status``, ``kernel``, ``stream``, ``device``, ``step``,
    ``step_place``, ``kind``; ``op_flops``, ``op_bytes_read``, ``op_bytes_written`` and ``op_least_ns`` of one
    operator; over all its operations ``pieces``, ``device_ns``, ``shares`` (of the operators' time),
    ``flops``, ``bytes_read``, ``bytes_written``, ``attainable_ns``, ``bound``, ``compute_peak``,
    ``limit_type``, ``saveable_ns``, ``tensor_core_ns``, ``missed_ns``; the times ``longest_ns`` and
    ``flagged_ns`` of the longest and the flagged operation with its ``flag``, and their positions. Figures
    are float64. ``pieces`` has the ``pair`` of each operation, its row in the table, and its ``op`` in
    ``costed.ops``.
    """

    costed: Costed
    work: CostedWork
    devices: list[DevicePeaks]
    pieces: pl.DataFrame
    table: pl.DataFrame


def limited_work(
    trace: Trace,
    *,
    convention: ConventionName = "kernelscope",
    gpu: str | None = None,
    peak: Mapping[str, float] | None = None,
) -> LimitedWork:
    """Returns the limits of the GPU operations of ``trace``.

    They are computed from the costs of the operators that launched the operations.
    """
    return _limited_trace(trace, convention, gpu, None if peak is None else tuple(peak.items()))


@per_trace
def _limited_trace(
    trace: Trace, convention: ConventionName, gpu: str | None, peak: tuple[tuple[str, float], ...] | None
) -> LimitedWork:
    devices = device_peaks(trace, gpu=gpu, peak=None if peak is None else dict(peak))
    costed = costed_trace(trace, convention=convention)
    return _limited(costed, CostedWork(trace, costed), devices)


def _limited(costed: Costed, work: CostedWork, devices: list[DevicePeaks]) -> LimitedWork:
    pairs = work.paired(costed.ops["kind"])
    found = work.labelled(pairs.pairs).rename({"kind": "of_kind", "class": "of_class"})
    kinds = costed.kinds.rename({column: f"op_{column}" for column in FIGURES})
    parts = (kinds[found["of_kind"]], work.classes[found["of_class"]], found.drop("of_class"))
    table = with_peaks(pl.concat(parts, how="horizontal"), devices)
    moved = pl.col("op_bytes_read") + pl.col("op_bytes_written")
    in_l2 = [(pl.col(f"op_{column}") - pl.col("l2_bytes")).clip(0) for column in FIGURES[1:]]
    table = table.with_columns(
        op_compute_ns=pl.col("op_flops") / pl.col("compute_peak") * 1e9,
        op_memory_ns=moved / pl.col("bandwidth") * 1e9,
        _through_ns=(in_l2[0] + in_l2[1]) / pl.col("bandwidth") * 1e9,
    )
    table = _bounded(table)
    limits = table.select(
        least_ns="op_least_ns",
        compute_ns="op_compute_ns",
        memory_ns="op_memory_ns",
        through_ns="_through_ns",
        is_estimate=(pl.col("status") == "estimate").fill_null(value=False),
    )
    pieces = pairs.pieces.select("op", "pair")
    return LimitedWork(costed, work, devices, pieces, _summed_by_pair(table, pairs.figures(limits)))


def _bounded(table: pl.DataFrame) -> pl.DataFrame:
    """Adds what binds each pair's work, and the least time that an operator of it needs."""
    text = pl.col("kernel").cast(pl.String)
    outside = (
        pl.when(pl.col("is_communication"))
        .then(pl.lit("communication"))
        .when((pl.col("kind").cast(pl.String) == "memcpy") & text.str.contains(OVER_BUS))
        .then(pl.lit("bus"))
    )
    # Work without a peak of its own, such as that on integers, has only the memory to wait for.
    computing = pl.col("op_compute_ns").fill_null(pl.when(pl.col("compute_peak").is_null()).then(0.0))
    known = outside.is_null() & pl.col("op_memory_ns").is_not_null() & computing.is_not_null()
    least = pl.when(known).then(pl.max_horizontal(computing, pl.col("op_memory_ns")))
    bound = pl.when(computing > pl.col("op_memory_ns")).then(pl.lit("compute")).otherwise(pl.lit("memory"))
    return table.with_columns(op_least_ns=least, bound=outside.fill_null(pl.when(known).then(bound)))


def _summed_by_pair(table: pl.DataFrame, figures: pl.DataFrame) -> pl.DataFrame:
    """Adds the figures of the work of each pair; what is not known is null."""
    table = table.hstack(figures)
    cores = pl.col("tensor_cores")
    missed = pl.when("is_timed").then("device_ns")
    return table.with_columns(
        **{column: pl.col(f"op_{column}") * pl.col("shares") for column in FIGURES},
        attainable_ns=pl.col("op_least_ns") * pl.col("shares"),
        saveable_ns=pl.when(pl.col("op_least_ns").is_not_null()).then("saveable_ns"),
        missed_ns=pl.when(pl.col("eligible") & ~cores)
        .then(missed)
        .otherwise(pl.when(cores.is_not_null()).then(0)),
        tensor_core_ns=pl.when(cores)
        .then("tensor_core_ns")
        .otherwise(pl.when(cores.is_not_null()).then(0.0)),
        flag=flags(),
    )


def work_rows(trace: Trace, work: LimitedWork) -> pl.DataFrame:
    """Returns every linked GPU operation with its share of its operator's cost.

    Columns: ``row``, ``op_row``, ``step``, ``dur_ns``, ``flops`` and ``attainable_ns``, both as float64.
    """
    pieces = work.work.paired(work.costed.ops["kind"]).pieces
    of_pair = work.table.select(pl.col("op_flops", "op_least_ns").gather(pieces["pair"]))
    return trace.gpu_ops.select("row", "step", "dur_ns")[pieces["at"]].select(
        "row", work.costed.ops["op_row"].gather(pieces["op"]), "step", "dur_ns",
        flops=of_pair["op_flops"] * pieces["share"],
        attainable_ns=of_pair["op_least_ns"] * pieces["share"],
    )  # fmt: skip


def refined(trace: Trace, work: LimitedWork, columns: list[str]) -> LimitedWork:
    """Returns the operations by pairs whose operators also agree in ``columns``.

    The columns are of ``ops``, or ``op_row`` itself.

    The table has these columns as ``by_op_row`` and so on.
    """
    if not columns:
        return work
    trace = with_replayed_ops(trace)
    # Ranges that stand for operators have their inputs only.
    asked = [c for c in columns if c != "op_row"]
    of_calls = [c for c in asked if c in INPUTS]
    linked = operator_calls(trace) if trace.ops.is_empty() else trace.ops
    known = of_calls if trace.ops.is_empty() else asked
    linked = linked.select(op_row="row", **{f"by_{c}": pl.col(c) for c in known}).with_columns(
        pl.lit(None, pl.String).alias(f"by_{c}") for c in asked if c not in known
    )
    ops = work.costed.ops.join(linked, on="op_row", how="left", maintain_order="left")
    ops = ops.with_columns(by_op_row="op_row")
    by = ["kind", *(f"by_{c}" for c in columns)]
    distinct = (
        ops.select(by)
        .unique(maintain_order=True)
        .with_columns(refined=pl.int_range(pl.len(), dtype=pl.UInt32))
    )
    ops = ops.join(distinct, on=by, how="left", nulls_equal=True, maintain_order="left")
    kinds = pl.concat([work.costed.kinds[distinct["kind"]], distinct.select(by[1:])], how="horizontal")
    costed = Costed(ops.select("op_row", kind="refined"), kinds, work.costed.work)
    return _limited(costed, work.work, work.devices)


_REASONS = {
    1: "part of its reads and writes stays in L2",
    2: "its algorithm needs fewer operations than the direct product that is counted",
    3: "its time is recorded in whole microseconds",
    4: "its cost is an estimate",
    5: "above the limit of the GPU: the recorded shapes or times do not cover all of these operations",
    6: "less than 5 % above a peak: clocks above the stated one, and rounding",
}


def flags() -> pl.Expr:
    """Returns why operations seem to exceed a peak, by the number of the ``reason``; null without one.

    The first reason that applies is given. The excess is below 5 %. The GPU's L2 holds part of the data (at
    most its size each way never passes through memory). The kernel's algorithm needs fewer operations than
    the direct one. The duration is recorded in whole microseconds. The cost is an estimate. Or none of them.
    """
    return pl.col("reason").replace_strict(_REASONS, default=None, return_dtype=pl.String)
