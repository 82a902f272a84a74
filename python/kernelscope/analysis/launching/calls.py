"""What launching costs: the calls, the work they start, and the time between."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.grouping import as_text, check_by
from kernelscope.analysis.hta.answers import hta_launch_stats
from kernelscope.analysis.hta.events import check_compat
from kernelscope.analysis.row_lookup import looked_up

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_DURATIONS = ("cpu_dur_ns", "gpu_dur_ns", "launch_delay_ns")
_OF_WORK = ("row", "launch_row", "name", "kind", "device", "stream", "correlation")
_STARTS = ("call_start", "start_ns")
_COLUMNS = (
    "row", "launch_row", "call", "name", "kind", "device", "stream", "step", "correlation", *_DURATIONS,
    "is_short", "is_slow_call", "is_late",
)  # fmt: skip


def launch_stats(
    trace: "Trace",
    *,
    runtime_cutoff_ns: int = 50_000,
    delay_cutoff_ns: int = 100_000,
    compat: str | None = None,
) -> pl.DataFrame:
    """Each call that started GPU work, and the work.

    A call that starts several works, as a graph's does, has a row for each.

    Columns: ``row`` (in ``gpu_ops``), ``launch_row`` (in ``launches``), ``call`` and ``name`` (of the call
        and of the work), ``kind``, ``device``, ``stream``, ``step``, ``correlation``, ``cpu_dur_ns`` (of the
        call), ``gpu_dur_ns``, ``launch_delay_ns`` (from the end of the call to the start of the work, 0 if it
        starts before), ``is_short`` (the call lasts longer than the work, and no longer than
        ``runtime_cutoff_ns``), ``is_slow_call`` (longer than that), ``is_late`` (delayed by more than
        ``delay_cutoff_ns``). Work without a recorded launch is left out.
    Units: ns.
    Order: by start of the call.
    ``compat="hta"``, ``"hta-unrounded"``: ``get_cuda_kernel_launch_stats`` of HolisticTraceAnalysis, in
        microseconds and sorted by correlation id; it knows ``cudaLaunchKernel``, copies and memsets, but no
        driver, HIP or graph launches.
    Raises: InvalidArgumentError: there is no such ``compat``.
    """
    mode = check_compat(compat)
    if mode is not None:
        return hta_launch_stats(trace, mode)
    pairs = _pairs(
        trace,
        *_COLUMNS,
        *_STARTS,
        runtime_cutoff_ns=runtime_cutoff_ns,
        delay_cutoff_ns=delay_cutoff_ns,
    )
    return as_text(pairs.sort(*_STARTS, "row").select(_COLUMNS))


def launch_summary(
    trace: "Trace",
    by: str | Sequence[str] = ("call",),
    *,
    runtime_cutoff_ns: int = 50_000,
    delay_cutoff_ns: int = 100_000,
) -> pl.DataFrame:
    """What launching cost, summed over the works that agree in the columns ``by`` of ``launch_stats``.

    Columns: those of ``by``; ``works``; of each of ``cpu_dur_ns``, ``gpu_dur_ns`` and ``launch_delay_ns`` the
        sum (``_sum``), ``_p50``, ``_p90``, ``_p99`` and ``_max``; ``short``, ``slow_calls`` and ``late``
        (works for which ``is_short``, ``is_slow_call``, ``is_late`` holds).
    Units: ns.
    Order: by the time of the calls, longest first.
    Raises: InvalidArgumentError: ``by`` names no such column.
    """
    columns = check_by(by, _COLUMNS)
    pairs = _pairs(trace, *columns, runtime_cutoff_ns=runtime_cutoff_ns, delay_cutoff_ns=delay_cutoff_ns)
    found: list[pl.Expr] = []
    for name in _DURATIONS:
        value, stem = pl.col(name), name
        found.append(value.sum().alias(f"{stem}_sum"))
        found += [
            value.quantile(share, interpolation="linear").alias(f"{stem}_p{share:.0%}".removesuffix("%"))
            for share in (0.5, 0.9, 0.99)
        ]
        found.append(value.max().alias(f"{stem}_max"))
    return as_text(
        pairs.group_by(columns).agg(
            pl.len().cast(pl.Int64).alias("works"),
            *found,
            short=pl.col("is_short").sum().cast(pl.Int64),
            slow_calls=pl.col("is_slow_call").sum().cast(pl.Int64),
            late=pl.col("is_late").sum().cast(pl.Int64),
        )
    ).sort(
        ["cpu_dur_ns_sum", *columns],
        descending=[True, *(False for _ in columns)],
        nulls_last=True,
    )


def _pairs(trace: "Trace", *columns: str, runtime_cutoff_ns: int, delay_cutoff_ns: int) -> pl.DataFrame:
    """Each work with the call that started it, in the order of works.

    Columns: those of ``_COLUMNS`` that are figures or in ``columns``, and of ``_STARTS`` those that are in
        ``columns``.
    """
    work = trace.gpu_ops.select(*_OF_WORK, "start_ns", "dur_ns", "step")
    calls = looked_up(trace.gpu_ops["launch_row"], trace.launches, "name", "start_ns", "dur_ns", "step")
    if calls["start_ns"].null_count():
        is_known = calls["start_ns"].is_not_null()
        work, calls = work.filter(is_known), calls.filter(is_known)
    delay = (pl.col("start_ns") - calls["start_ns"] - calls["dur_ns"]).clip(lower_bound=0)
    is_slow = calls["dur_ns"] > runtime_cutoff_ns
    step = pl.coalesce("step", calls["step"])
    more = {"start_ns": pl.col("start_ns"), "call_start": pl.lit(calls["start_ns"]), "step": step}
    return work.select(
        *(name for name in _OF_WORK if name in columns),
        **{name: column for name, column in more.items() if name in columns},
        call=calls["name"],
        cpu_dur_ns=calls["dur_ns"],
        gpu_dur_ns="dur_ns",
        launch_delay_ns=delay,
        is_short=(pl.col("dur_ns") < calls["dur_ns"]) & ~is_slow,
        is_slow_call=is_slow,
        is_late=delay > delay_cutoff_ns,
    )
