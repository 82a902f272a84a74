"""The critical path over all ranks of a job, for its page."""

import polars as pl

from kernelscope.analysis.dependencies.rank_path import path_of_job
from kernelscope.analysis.dependencies.ranks import Job, job_of
from kernelscope.analysis.grouping import as_text
from kernelscope.analysis.ranks.cluster import Cluster, Source
from kernelscope.report.parts import Figure, Note, Part, View
from kernelscope.report.parts.charts import longest_step, rank_bars, rank_bars_layout, time_unit
from kernelscope.report.parts.path_bars import MOST_RANKS, TOO_MANY, path_bars, step_windows
from kernelscope.report.parts.tables import Table
from kernelscope.units import format_ns

_COLORS = {
    "host": "--cpu-exec",
    "data loading": "--dataloader",
    "communication": "--communication",
    "launch": "--runtime",
    "synchronisation": "--c1",
    "compute": "--kernel",
    "copy": "--memcpy",
    "queue": "--c8",
    "unknown": "--other",
}
_MOST_ROWS = 500


def critical_path(source: Source, cluster: Cluster) -> View:
    """Returns the critical path of all steps by rank, reason and event, and a picture of the longest step."""
    what = (
        "Events that must be faster for the steps to end sooner. Where ranks meet in a collective, the path "
        "moves to the rank that arrived last."
    )
    if cluster.ranks.height > MOST_RANKS:
        return View("path", "Critical path", what, [Note(TOO_MANY)])
    job = job_of(source, {}, cluster=cluster)
    if job.steps.is_empty():
        text = "No step is recorded in any rank: mark steps with torch.profiler.profile(schedule=...)."
        return View("path", "Critical path", what, [Note(text, missing=True)])
    path = as_text(path_of_job(job, columns=("name",)))
    parts: list[Part] = [_picture(path, job, cluster.ranks["rank"]), _by_rank(path), _by_event(path)]
    return View("path", "Critical path", what, parts)


def _by_rank(path: pl.DataFrame) -> Table:
    what = "Time on the critical path of all steps. The shares sum to 100 %."
    return Table("path-ranks", "Ranks and reasons", what, _sums(path, "rank", "bound_by"), _COLUMNS)


def _by_event(path: pl.DataFrame) -> Table:
    what = "Events with most time on the path. Without a name, a thread does nothing that was recorded."
    sums = _sums(path, "rank", "name", "bound_by")
    return Table(
        "path-events", "Events", what, sums.head(_MOST_ROWS), ("name", *_COLUMNS), all_rows=sums.height
    )


_COLUMNS = ("rank", "bound_by", "path_ns", "share")


def _sums(path: pl.DataFrame, *by: str) -> pl.DataFrame:
    sums = path.group_by(by).agg(path_ns=pl.col("dur_ns").sum())
    sums = sums.with_columns(share=pl.col("path_ns") / pl.col("path_ns").sum())
    return sums.sort("path_ns", *by, descending=[True, *(False for _ in by)], nulls_last=True)


def _picture(path: pl.DataFrame, job: Job, ranks: pl.Series) -> Figure:
    """The ranks on which the path is during the longest step, over time."""
    steps = step_windows(job)
    step, start_ns, end_ns = steps.sort(pl.col("end_ns") - pl.col("start_ns"), "step").row(-1)
    size, unit = time_unit(end_ns - start_ns)
    bars = path_bars(path, start_ns, end_ns).with_columns(dur_ns=pl.col("end_ns") - pl.col("start_ns"))
    traces = [
        rank_bars(
            str(reason),
            part,
            [f"{reason}: {format_ns(length)}" for length in part["dur_ns"]],
            start_ns,
            size,
            marker={"color": _COLORS[str(reason)], "line": {"width": 0}},
        )
        for (reason,), part in bars.group_by("bound_by", maintain_order=True)
    ]
    said = longest_step(step, end_ns - start_ns)
    what = f"{said} Short segments have the reason of their longest neighbour."
    layout = rank_bars_layout(ranks.sort(), unit, nticks=16)
    return Figure("path-step", "From rank to rank", what, traces, layout, height=180 + 14 * ranks.len())
