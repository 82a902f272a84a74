"""GPU operations by how their operator was found, or why it is missing."""

import polars as pl

from kernelscope.analysis.replays import with_replayed_ops
from kernelscope.trace import Trace

ORDER = 150
TABLES = ("ops", "gpu_ops")


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {"unlinked": unlinked(with_replayed_ops(trace).gpu_ops)}


def unlinked(gpu_ops: pl.DataFrame) -> pl.DataFrame:
    """Returns GPU operations without an operator by reason: ``link``, ``events``, ``dur_ns``."""
    return (
        gpu_ops.select("op_row", "link", "dur_ns")
        .filter(pl.col("op_row").is_null())
        .group_by("link")
        .agg(pl.len().cast(pl.Int64).alias("events"), pl.col("dur_ns").sum())
        .with_columns(pl.col("link").cast(pl.String))
        .sort(["dur_ns", "link"], descending=[True, False], nulls_last=True)
    )
