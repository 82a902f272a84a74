"""For how much of the GPU's time the costs are known, and why not for the rest."""

import polars as pl

from kernelscope.analysis.costs.limits import LimitedWork, limited_work
from kernelscope.analysis.grouping import as_text
from kernelscope.costs import ConventionName
from kernelscope.trace import Trace

_STATES = ("exact", "estimate", "unknown_dtype", "missing_shape", "unknown_op")
_CODES = {
    "unknown_op": "cost_unknown_op",
    "missing_shape": "cost_missing_shape",
    "unknown_dtype": "cost_unknown_dtype",
}
_FAILED = "cost_model_failed"


def cost_coverage(trace: Trace, *, convention: ConventionName = "kernelscope") -> pl.DataFrame:
    """The GPU time of operators by whether their costs are known, and beside it the time of no operator.

    Columns: ``status`` (those of :func:`kernelscope.analysis.costs`; ``unlinked`` for GPU work whose operator
        is not known), ``operators``, ``device_ns``, ``linked_pct`` (share of the time of GPU work that has
        an operator; null for ``unlinked``) and ``device_pct`` (share of all GPU time).
    Units: ns; percent. Concurrent work is added, not merged.
    Order: as above, every status once.
    Raises: KeyError: there is no such convention.
    """
    return coverage_of(trace, kind_sums(limited_work(trace, convention=convention)))


def kind_sums(work: LimitedWork) -> pl.DataFrame:
    """The kinds of operators that count, with how many there are and the GPU time of their work.

    Columns: ``name``, ``status``, ``note``, ``operators`` and ``device_ns`` (null without GPU work).
    """
    counts = work.costed.ops.group_by("kind").agg(operators=pl.len().cast(pl.Int64))
    times = work.table.group_by(kind="of_kind").agg(pl.col("device_ns").sum())
    kinds = work.costed.kinds.select("name", "status", "note").with_columns(
        kind=pl.int_range(pl.len(), dtype=pl.UInt32)
    )
    return as_text(counts.join(kinds, on="kind").join(times, on="kind", how="left").drop("kind"))


def coverage_of(trace: Trace, kinds: pl.DataFrame) -> pl.DataFrame:
    """The rows of :func:`cost_coverage` for a trace with the sums ``kinds``."""
    sums = kinds.group_by("status").agg(pl.col("operators", "device_ns").sum())
    rows = pl.DataFrame({"status": list(_STATES)}).join(sums, on="status", how="left", maintain_order="left")
    rows = rows.with_columns(pl.col("operators", "device_ns").fill_null(0))
    linked = int(rows["device_ns"].sum())
    total = int(trace.gpu_ops["dur_ns"].sum())
    rest = pl.DataFrame(
        {"status": ["unlinked"], "operators": [None], "device_ns": [total - linked]}, schema=rows.schema
    )
    of_linked = 100.0 * pl.col("device_ns") / (linked or None)
    return pl.concat([rows, rest]).with_columns(
        linked_pct=pl.when(pl.col("status") != "unlinked").then(of_linked),
        device_pct=100.0 * pl.col("device_ns") / (total or None),
    )


def cost_findings(kinds: pl.DataFrame) -> pl.DataFrame:
    """What kept costs from being known, one row per kind of it and operator, of the sums ``kinds``.

    Columns: ``code`` (cost_unknown_op: no model; cost_model_failed: a model raised; cost_missing_shape,
        cost_unknown_dtype), ``severity``, ``name`` (the operator), ``count``, ``device_ns`` and ``message``.
    Order: by device time, longest first.
    """
    missing = kinds.filter(~pl.col("status").is_in(["exact", "estimate"]))
    failed = pl.col("note").str.starts_with("the model ") & (pl.col("status") == "unknown_op")
    code = (
        pl.when(failed).then(pl.lit(_FAILED)).otherwise(pl.col("status").replace_strict(_CODES, default=None))
    )
    return (
        missing.with_columns(code=code, severity=pl.lit("info"), message=pl.col("note"))
        .group_by("code", "severity", "name", "message")
        .agg(pl.col("operators").sum().alias("count"), pl.col("device_ns").sum())
        .select("code", "severity", "name", "count", "device_ns", "message")
        .sort(
            ["device_ns", "count", "name", "message"], descending=[True, True, False, False], nulls_last=True
        )
    )
