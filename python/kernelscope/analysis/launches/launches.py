"""Launch overhead: the calls, the operations they start, and the delay between."""

from collections.abc import Sequence

import polars as pl

from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.analysis.grouping import as_text, check_by
from kernelscope.trace import Trace

_DURATIONS = ("cpu_dur_ns", "gpu_dur_ns", "launch_delay_ns")
_COLUMNS = (
    "row", "launch_row", "call", "name", "kind", "device", "stream", "step", "correlation", *_DURATIONS,
    "is_short", "is_slow_call", "is_late",
)  # fmt: skip


def launches(
    trace: Trace, *, runtime_cutoff_ns: int = 50_000, delay_cutoff_ns: int = 100_000
) -> pl.DataFrame:
    """Calls that started GPU operations, and the operations.

    A call that starts several operations, such as a graph launch, has one row for each.

    Columns: ``row`` (in ``gpu_ops``), ``launch_row`` (in ``launches``), ``call`` and ``name`` (of the call
        and of the operation), ``kind``, ``device``, ``stream``, ``step``, ``correlation``, ``cpu_dur_ns`` (of
        the call), ``gpu_dur_ns``, ``launch_delay_ns`` (from the end of the call to the start of the
        operation, 0 if it starts earlier), ``is_short`` (the call takes longer than the operation, but at
        most ``runtime_cutoff_ns``), ``is_slow_call`` (longer than that), ``is_late`` (delayed by more than
        ``delay_cutoff_ns``). Operations without a recorded launch are left out.
    Units: ns.
    Order: by start of the call.
    """
    pairs = _pairs(trace, runtime_cutoff_ns=runtime_cutoff_ns, delay_cutoff_ns=delay_cutoff_ns)
    return as_text(pairs.sort("call_start", "start_ns", "row").select(_COLUMNS).collect())


def launch_summary(
    trace: Trace,
    by: str | Sequence[str] = ("call",),
    *,
    runtime_cutoff_ns: int = 50_000,
    delay_cutoff_ns: int = 100_000,
) -> pl.DataFrame:
    """Launch overhead, summed over operations with equal columns ``by`` of ``launches``.

    Columns: the columns of ``by``; ``works`` (number of operations); the sum (``_sum``), ``_p50``, ``_p90``,
        ``_p99`` and ``_max`` of ``cpu_dur_ns``, ``gpu_dur_ns`` and ``launch_delay_ns``; ``short``,
        ``slow_calls`` and ``late`` (number of operations with ``is_short``, ``is_slow_call``, ``is_late``).
    Units: ns.
    Order: by the time of the calls, longest first.
    Raises: InvalidArgumentError: ``by`` contains an unknown column.
    """
    columns = check_by(by, _COLUMNS)
    flags = {"short": "is_short", "slow_calls": "is_slow_call", "late": "is_late"}
    pairs = _pairs(trace, runtime_cutoff_ns=runtime_cutoff_ns, delay_cutoff_ns=delay_cutoff_ns)
    table = pairs.group_by(columns).agg(
        pl.len().cast(pl.Int64).alias("works"),
        *(figure for name in _DURATIONS for figure in _distribution(name)),
        *(pl.col(flag).sum().cast(pl.Int64).alias(name) for name, flag in flags.items()),
    )
    order = ["cpu_dur_ns_sum", *columns]
    return as_text(table.collect()).sort(order, descending=[True, *(False for _ in columns)], nulls_last=True)


def _distribution(name: str) -> list[pl.Expr]:
    values = pl.col(name)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    quantiles = (values.quantile(at, "linear").alias(f"{name}_{share}") for share, at in shares.items())
    return [values.sum().alias(f"{name}_sum"), *quantiles, values.max().alias(f"{name}_max")]


def _pairs(trace: Trace, *, runtime_cutoff_ns: int, delay_cutoff_ns: int) -> pl.LazyFrame:
    """Each work whose call is known: columns of ``gpu_ops``, of :func:`launches`, and ``call_start``."""
    calls = trace.launches.lazy().select(
        pl.col("row").alias("_call"), call="name", call_start="start_ns", cpu_dur_ns="dur_ns", _step="step"
    )
    calls = calls.select(pl.all().gather(GpuWork(trace).calls))
    delay = (pl.col("start_ns") - pl.col("call_start") - pl.col("cpu_dur_ns")).clip(lower_bound=0)
    is_slow = pl.col("cpu_dur_ns") > runtime_cutoff_ns
    return (
        pl.concat([trace.gpu_ops.lazy(), calls], how="horizontal")
        .filter(pl.col("_call").is_not_null())
        .with_columns(
            step=pl.coalesce("step", "_step"),
            gpu_dur_ns="dur_ns",
            launch_delay_ns=delay,
            is_short=(pl.col("dur_ns") < pl.col("cpu_dur_ns")) & ~is_slow,
            is_slow_call=is_slow,
            is_late=delay > delay_cutoff_ns,
        )
    )


def op_launch_delay(trace: Trace) -> pl.DataFrame:
    """Operators by the kernels they launched themselves, and the delay of the first kernel.

    Columns: ``op`` (name), ``kernels`` (list of the names of the operations, in order of their launches),
        ``calls``, ``launch_delay_ns`` (mean time from the start of the operator to the start of its first
        launch), ``queue_delay_ns`` (mean time from there to the start of its first operation).
    Units: ns. Order: by calls, largest first.
    """
    calls = trace.launches.select(launch_row="row", op_row="op_row", launch_ns="start_ns")
    ops = trace.ops.select(op_row="row", op=pl.col("name").cast(pl.String), op_ns="start_ns")
    work = trace.gpu_ops.select("row", "launch_row", pl.col("name").cast(pl.String), "start_ns")
    pairs = work.join(calls, on="launch_row", how="inner").join(ops, on="op_row", how="inner")
    delays = delays_by_sequence(pairs)
    return delays.rename({"launch_delay": "launch_delay_ns", "queue_delay": "queue_delay_ns"}).drop("_key")


def delays_by_sequence(pairs: pl.DataFrame) -> pl.DataFrame:
    """Returns the operators by the sequence of the kernels they launched, and their delays.

    Columns: ``pairs`` needs ``op_row``, ``op``, ``op_ns``, ``launch_ns``, ``name``, ``start_ns``.
    """
    per_op = (
        pairs.sort("launch_ns", "start_ns", "row")
        .group_by("op_row", maintain_order=True)
        .agg(
            pl.col("op").first(),
            pl.col("name").fill_null("").alias("kernels"),
            launch_delay=(pl.col("launch_ns") - pl.col("op_ns")).first(),
            queue_delay=(pl.col("start_ns") - pl.col("launch_ns")).first(),
        )
    )
    # Lists are compared as text: their elements cannot hold a line break.
    key = pl.col("kernels").list.join("\n").alias("_key")
    return (
        per_op.group_by("op", key)
        .agg(
            pl.col("kernels").first(),
            pl.len().cast(pl.Int64).alias("calls"),
            pl.col("launch_delay", "queue_delay").mean(),
        )
        .sort("calls", "op", "_key", descending=[True, False, False])
    )
