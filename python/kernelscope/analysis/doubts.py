"""Recorded values that are impossible, or that should be checked before everything else."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from kernelscope.analysis.steps.breakdown import step_times
from kernelscope.analysis.untimed import many_untimed
from kernelscope.memo import per_trace
from kernelscope.trace import Trace
from kernelscope.units import format_count, format_ns, format_percent

_NEARLY_ALL = 0.9
_FEWEST = 10
"""Minimum number of operations of a step on a GPU for reporting that one of them has nearly all of their
time."""
_OF_GPU = ("step", "pid", "device")
_SCHEMA = {
    "doubt": pl.String,
    "step": pl.Int64,
    "events": pl.Int64,
    "time_ns": pl.Int64,
    "row": pl.UInt32,
    "name": pl.String,
    "text": pl.String,
}


@per_trace
def doubts(trace: Trace) -> pl.DataFrame:
    """Returns recorded values of ``trace`` that are impossible or should be checked before everything else.

    ``events_without_time``: more than 5 % of the events have no timestamp; they are excluded from all
    figures, and there is no advice on idle time and launches. ``work_without_time``: operations in
    ``untimed_gpu_ops``, excluded from all figures. ``impossible_duration``: recorded time excluded from all
    figures.
    ``step_without_gpu_work``: kernels were launched in a step, but none of them was recorded.
    ``one_operation``: of at least ten operations of a step on a GPU, one has at least 90 % of the time.

    Columns: ``doubt`` (as above), ``step`` (null for the whole trace), ``events`` (number of events or
        operations without a timestamp, of impossible operations, of launches, or of operations of the step on
        the GPU), ``time_ns`` (excluded time; time of the one operation), ``row`` (of the operation in its
        table: the first without a timestamp, the one with the most excluded time, or the one), ``name`` (of
        that operation) and ``text`` (a sentence).
    Order: as above, then by step.
    """
    rows = [
        *_many_without_time(trace),
        *_without_time(trace),
        *_impossible(trace),
        *_without_work(trace),
        *_nearly_all(trace),
    ]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _many_without_time(trace: Trace) -> Iterator[dict[str, Any]]:
    found = many_untimed(trace)
    if found is None:
        return
    listed = ", ".join(
        f"{format_count(count)} {noun}{'' if count == 1 else 's'}" for noun, count in found.counts.items()
    )
    since = "spread over the recording"
    if found.since_ns is not None:
        moment = f"{format_ns(found.since_ns)} after the first event"
        since = f"from {moment} on" if found.since_ns else "from the first event on"
    text = (
        f"{format_percent(found.share)} of the events have no timestamp, {since}: {listed}. They are "
        "excluded from all figures, and there is no advice on idle time and launches."
    )
    yield {"doubt": "events_without_time", "events": sum(found.counts.values()), "text": text}


def _without_time(trace: Trace) -> Iterator[dict[str, Any]]:
    found = trace.untimed_gpu_ops
    if found.is_empty():
        return
    several = " has" if found.height == 1 else "s have"
    first = {"row": found["row"][0], "name": found["name"][0]}
    text = (
        f"{format_count(found.height)} GPU operation{several} no usable timestamp and "
        f"{'is' if found.height == 1 else 'are'} excluded from all figures: {first['name']}"
    )
    yield {"doubt": "work_without_time", "events": found.height, "text": text, **first}


def _impossible(trace: Trace) -> Iterator[dict[str, Any]]:
    too_long = pl.col("recorded_dur_ns") - pl.col("dur_ns")
    found = trace.gpu_ops.filter(too_long.is_not_null()).sort(too_long, descending=True, maintain_order=True)
    if found.is_empty():
        return
    first = found.row(0, named=True)
    total = int(found.select(too_long.sum()).item())
    operations = "1 operation" if found.height == 1 else f"{format_count(found.height)} operations"
    text = (
        f"{format_ns(total)} of recorded GPU time is impossible and not counted: {operations} would "
        f"contain later ones of the same stream. Recorded with {format_ns(first['recorded_dur_ns'])}, "
        f"cut after {format_ns(first['dur_ns'])}, where the next one begins: {first['name']}"
    )
    of_first = {"row": first["row"], "name": first["name"]}
    yield {"doubt": "impossible_duration", "events": found.height, "time_ns": total, "text": text, **of_first}


def _without_work(trace: Trace) -> Iterator[dict[str, Any]]:
    steps = step_times(trace, include_partial=True).filter(pl.col("step").is_not_null())
    if not trace.gpu_ops.is_empty():
        # Of others is said that the recording ends before their work does.
        steps = steps.filter(~pl.col("is_partial"))
    launches = trace.launches.filter(pl.col("activity") == "launch")
    launches = launches.group_by("step").agg(pl.len().cast(pl.Int64).alias("events"))
    worked = trace.gpu_ops["step"].unique().implode()
    idle = steps.select("step").unique().join(launches, on="step").filter(~pl.col("step").is_in(worked))
    for step, events in idle.sort("step").iter_rows():
        text = (
            f"Step {step} launched GPU operations {format_count(events)} times, but none of them was "
            "recorded."
        )
        yield {"doubt": "step_without_gpu_work", "step": step, "events": events, "text": text}


def _nearly_all(trace: Trace) -> Iterator[dict[str, Any]]:
    work = trace.gpu_ops.select("row", "name", "dur_ns", *_OF_GPU)
    if trace.steps["step"].count():
        work = work.filter(pl.col("step").is_not_null())
    longest = pl.col("dur_ns").arg_max()
    found = work.filter(pl.col("dur_ns") > 0).group_by(_OF_GPU, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("events"),
        pl.col("dur_ns").max().alias("time_ns"),
        pl.col("dur_ns").sum().alias("total_ns"),
        pl.col("row", "name").get(longest),
    )  # fmt: skip
    share = pl.col("time_ns") / pl.col("total_ns")
    found = found.with_columns(share=share).filter((share >= _NEARLY_ALL) & (pl.col("events") >= _FEWEST))
    for row in found.sort("step", "device", nulls_last=True).iter_rows(named=True):
        of = "of the trace" if row["step"] is None else f"of step {row['step']}"
        text = (
            f"One operation takes {format_percent(row['share'])} of the GPU time {of} on GPU "
            f"{row['device']}, {format_ns(row['time_ns'])}. Check first whether this is plausible: "
            f"{row['name']}"
        )
        of_the_one = {name: row[name] for name in ("step", "events", "time_ns", "row", "name")}
        yield {"doubt": "one_operation", "text": text, **of_the_one}
