"""The page about a job of many ranks. Its size does not depend on their number."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from kernelscope import analysis
from kernelscope.analysis.ranks.cluster import Cluster, Source
from kernelscope.analysis.ranks.rank_views import rank_cells, sharing
from kernelscope.report.html.cluster_dimensions import dimensions
from kernelscope.report.html.cluster_path import critical_path
from kernelscope.report.html.cluster_pipeline import pipeline
from kernelscope.report.html.libraries import check_libraries
from kernelscope.report.html.page import write_views
from kernelscope.report.parts import Fact, Facts, Figure, Group, Note, Part, View
from kernelscope.report.parts.charts import donut_height, donut_layout, slice_trace, time_unit
from kernelscope.report.parts.columns import CLUSTER_COLUMNS
from kernelscope.report.parts.tables import Table
from kernelscope.units import format_count, format_ns, format_percent

_PARTS = {
    "compute_ns": "--kernel",
    "network_ns": "--communication",
    "wait_ns": "--runtime",
    "data_ns": "--dataloader",
    "launch_ns": "--cpu-exec",
}
"""Parts of a step of a rank, and their colours."""

_TITLES = {
    "compute_ns": "Computing",
    **{name: CLUSTER_COLUMNS[name][0] for name in _PARTS if name in CLUSTER_COLUMNS},
}
_MOST_ROWS, _MOST_COLUMNS = 1_000, 200
"""Maximum cells of the heat map. Neighbours share a cell if there are more ranks or steps."""
_NAMED = 16
_CLOCKS_NAMED = 5
_SLOWEST = 500
_NO_STEPS = (
    "No step is recorded completely in any rank: mark steps with torch.profiler.profile(schedule=...)."
)


@dataclass(frozen=True, slots=True)
class Job:
    """A job of many ranks, and data shared by several views."""

    cluster: Cluster
    steps: pl.DataFrame
    findings: pl.DataFrame
    offsets: pl.DataFrame
    sources: pl.DataFrame | None
    notes: Sequence[str]


def write_cluster_page(
    source: Source,
    out: Path,
    *,
    title: str,
    cluster: Cluster | None = None,
    sources: pl.DataFrame | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Writes the page about the ranks of ``source``, replacing ``out`` when it is complete.

    ``cluster`` is the data for questions about ``source``, if it is known. ``sources`` is the manifest of a
    lake, and ``notes`` are sentences about it.

    Raises: InvalidArgumentError: there is no rank, or a library of the page is not installed. OSError: the
        page cannot be written.
    """
    check_libraries()
    cluster = analysis.cluster_of(source) if cluster is None else cluster
    job = Job(
        cluster=cluster,
        steps=analysis.rank_steps(cluster),
        findings=analysis.cluster_findings(cluster),
        offsets=analysis.clock_offsets(cluster),
        sources=sources,
        notes=notes,
    )
    views = [look_first(job), critical_path(source, cluster), ranks(job), collectives(job)]
    views += [dimensions(source, cluster), pipeline(source, cluster), steps(job), clocks(job), files(job)]
    write_views(views, out, title=title)


def look_first(job: Job) -> View:
    """The most important findings, and the time of the steps of all ranks."""
    what = "Causes of delay in this job, and the time of all ranks by category."
    parts: list[Part] = [_figures(job), *(Note(note) for note in job.notes)]
    clock = pl.col("finding") == "clock_offset"
    few = ~clock | (clock.cum_sum() <= _CLOCKS_NAMED)
    found = job.findings.filter(few).with_columns(
        pl.col("finding").str.replace_all("_", " "), ranks_text=_listed(pl.col("ranks"))
    )
    if found.is_empty():
        parts.append(Note("No rank, link or clock stands out."))
    else:
        columns = ("finding", "message", "ranks_text", "group", "lost_ns")
        explained = (
            "Ranks and links that delay the others, by cost in time, then the clocks with the "
            "largest offsets."
        )
        parts.append(Table("findings", "Look first at", explained, found, columns))
    if job.steps.height:
        parts.append(_mean_step(job.steps))
    return View("first", "Look first", what, parts)


def _listed(ranks: pl.Expr) -> pl.Expr:
    """Ranks as text, the first of many."""
    shown = ranks.list.head(_NAMED).cast(pl.List(pl.String)).list.join(", ")
    return pl.when(ranks.list.len() > _NAMED).then(shown + pl.lit(" ...")).otherwise(shown)


def _figures(job: Job) -> Facts:
    steps, known = job.steps, job.cluster.ranks
    total = _sum(steps, "total_ns")
    apart, hosts = job.offsets["offset_ns"], known["host"].drop_nulls().n_unique()
    items = [
        Fact("Ranks", format_count(known.height), f"On {format_count(hosts)} hosts, if hosts were recorded."),
        Fact("Steps", format_count(steps["step"].n_unique()), "Completely recorded steps."),
        Fact("Median step", format_ns(_median(steps, "total_ns")), "Over all ranks and steps."),
        Fact(
            "Waiting",
            _share(_sum(steps, "wait_ns"), total),
            "Share of the steps spent waiting for late ranks.",
        ),
        Fact(
            "Network", _share(_sum(steps, "network_ns"), total), "Share of the steps with only data transfer."
        ),
        Fact(
            "Loading data",
            _share(_sum(steps, "data_ns"), total),
            "Share of the steps with GPUs waiting for data loading.",
        ),
        Fact("Clocks", _span(apart), "Maximum offset between the clocks of the ranks, corrected here."),
    ]
    return Facts("figures", "", items, tiles=True)


def _sum(frame: pl.DataFrame, column: str) -> float:
    return float(frame.select(pl.col(column).sum()).item() or 0)


def _median(frame: pl.DataFrame, column: str) -> float | None:
    return frame.select(pl.col(column).median()).item()


def _share(part: float, total: float) -> str:
    return format_percent(part / total) if total else "not known"


def _span(offsets: pl.Series) -> str:
    span = offsets.to_frame("ns").select(pl.col("ns").max() - pl.col("ns").min()).item()
    return "not known" if span is None else format_ns(span)


def _mean_step(steps: pl.DataFrame) -> Figure:
    mean = {name: _sum(steps, name) / steps.height for name in _PARTS}
    names = [f"{_TITLES[name]}: {format_ns(value)}" for name, value in mean.items()]
    slices = slice_trace(names, list(mean.values()), list(_PARTS.values()))
    slices["hovertemplate"] = "%{label}<extra></extra>"
    what = "Wall time of a step by category, averaged over all ranks and steps."
    layout = donut_layout(format_ns(sum(mean.values())))
    return Figure("mean-step", "The mean step", what, [slices], layout, height=donut_height(len(names)))


def ranks(job: Job) -> View:
    """Each rank in each step, and groups of similar ranks."""
    what = "Own time excludes waiting for other ranks, which makes all ranks look alike."
    if job.steps.is_empty():
        return View("ranks", "Ranks", what, [Note(_NO_STEPS, missing=True)])
    choices: list[tuple[str, Part]] = [
        (_TITLES.get(value, title), _heat_map(job.steps, value))
        for value, title in (
            ("own_ns", "Own time"),
            ("total_ns", "Wall time"),
            *((name, name) for name in _PARTS),
        )
    ]
    parts: list[Part] = [Group("heat-maps", "Ranks and steps", choices), _rank_table(job), *_alike(job)]
    return View("ranks", "Ranks", what, parts)


def _heat_map(steps: pl.DataFrame, value: str) -> Figure:
    steps = steps.drop_nulls("step")
    numbers = steps["step"].unique().sort()
    names = steps["rank"].unique().sort()
    across, down = sharing(numbers.len(), _MOST_COLUMNS), sharing(names.len(), _MOST_ROWS)
    cells = rank_cells(steps, value=value, most_ranks=_MOST_ROWS, most_steps=_MOST_COLUMNS)
    size, unit = time_unit(float(cells.select(pl.col("value_ns").max()).item() or 1))
    grid = cells.sort("column").pivot("column", index="row", values="value_ns").sort("row").drop("row")
    rows = [[None if v is None else round(v / size, 4) for v in row] for row in grid.rows()]
    trace: dict[str, Any] = {
        "type": "heatmap",
        "x": [str(number) for number in numbers.gather_every(across)],
        "y": names.gather_every(down).to_list(),
        "z": rows,
        "colorscale": "Viridis",
        "colorbar": {"title": {"text": unit}, "thickness": 12},
        "hovertemplate": f"rank %{{y}}, step %{{x}}: %{{z}} {unit}<extra></extra>",
    }
    what = "One row per rank, one column per step."
    if across > 1 or down > 1:
        what += f" A cell is the slowest of {across} steps and {down} ranks."
    layout = {
        "xaxis": {"type": "category", "title": {"text": "step"}, "nticks": 20},
        "yaxis": {"title": {"text": "rank"}, "autorange": "reversed"},
    }
    return Figure(f"heat-{value.removesuffix('_ns')}", "Ranks and steps", what, [trace], layout, height=520)


def _rank_table(job: Job) -> Table:
    medians = job.steps.group_by("rank").agg(pl.col("own_ns", "total_ns", *_PARTS).median())
    late = analysis.straggler_ranks(job.cluster).select("rank", "cause", "excess_ns", late_steps="steps")
    table = (
        job.cluster.ranks.select("rank", "host")
        .join(medians, on="rank", how="left")
        .join(late, on="rank", how="left")
        .sort("own_ns", "rank", descending=[True, False], nulls_last=True)
    )
    columns = ("rank", "host", "own_ns", "total_ns", *_PARTS, "cause", "late_steps", "excess_ns")
    titles = {"total_ns": "Wall time", "compute_ns": "Computing", "cause": "Late by"}
    what = "Medians over the steps of a rank, the slowest rank first."
    return Table("rank-table", "Ranks", what, table, columns, titles=titles)


def _alike(job: Job) -> list[Part]:
    groups = analysis.rank_groups(job.cluster)
    table = groups.with_columns(pl.col("rank_group").cast(pl.Int64), ranks_text=_listed(pl.col("ranks")))
    columns = ("rank_group", "count", "ranks_text", "own_ns", *_PARTS)
    what = "Ranks whose medians differ by at most 5 % of a step from the next one."
    titles = {"count": "Count", "compute_ns": "Computing"}
    return [Table("alike", "Ranks that behave alike", what, table, columns, titles=titles)]


def collectives(job: Job) -> View:
    """Waiting times and bandwidth of collectives."""
    what = "Transfer is the time of the last rank to arrive, which waits for no other."
    table = analysis.communication(job.cluster, by=("kind", "group_size", "message_bytes"))
    if table.is_empty():
        text = "No trace has communication: record with ProfilerActivity.CUDA, or run on several ranks."
        return View("collectives", "Collectives", what, [Note(text, missing=True)])
    columns = (
        "kind", "group_size", "message_bytes", "collectives", "calls", "total_ns", "wait_ns", "exposed_ns",
        "transfer_p50_ns", "transfer_max_ns", "skew_p50_ns", "skew_max_ns", "algorithm_bytes_per_s",
        "bus_bytes_per_s", "incomplete",
    )  # fmt: skip
    titles = {"wait_ns": "Waiting", "exposed_ns": "Exposed"}
    by_size = Table("by-size", "By kind and size", "Summed over all ranks.", table, columns, titles=titles)
    groups = analysis.communication(job.cluster, by=("kind", "group", "message_bytes"))
    slow = groups.sort("bus_bytes_per_s", nulls_last=True)
    columns = (
        "kind", "group", "message_bytes", "collectives", "bus_bytes_per_s", "transfer_p50_ns", "wait_ns",
    )  # fmt: skip
    by_group = Table("by-group", "By process group", "The slowest first.", slow, columns, titles=titles)
    instances = analysis.collective_instances(job.cluster)
    worst = instances.sort("wait_ns", descending=True, nulls_last=True)
    columns = (
        "kind", "step", "group", "message_bytes", "wait_ns", "skew_ns", "transfer_ns", "first_rank",
        "last_rank", "ranks_seen", "bus_bytes_per_s",
    )  # fmt: skip
    single = Table(
        "instances",
        "Collectives with the longest waits",
        "Waiting is summed over the ranks.",
        worst.head(_SLOWEST).with_columns(pl.col("ranks_seen").cast(pl.Int64)),
        columns,
        titles=titles,
        all_rows=instances.height,
    )
    return View("collectives", "Collectives", what, [by_size, by_group, single])


def steps(job: Job) -> View:
    """Each step over all ranks."""
    what = "Exact quantiles over all ranks, not medians of medians."
    if job.steps.is_empty():
        return View("steps", "Steps", what, [Note(_NO_STEPS, missing=True)])
    quantiles = analysis.rank_quantiles(job.cluster)
    names = {name: f"{name}_ns" for name in quantiles.columns if name.startswith("q")}
    table = quantiles.rename(names).with_columns(
        pl.col("part").str.strip_suffix("_ns").replace({"total": "wall time", "own": "own time"})
    )
    columns = ("step", "part", "mean_ns", "q0_ns", "q50_ns", "q90_ns", "q99_ns", "q100_ns")
    titles = {"mean_ns": "Mean rank"}
    return View("steps", "Steps", what, [Table("quantiles", "Steps", what, table, columns, titles=titles)])


def clocks(job: Job) -> View:
    """Offsets of clocks."""
    what = "Clock offsets derived from the ends of collectives. Times on this page are on the common clock."
    columns = ("rank", "host", "offset_ns", "residual_ns", "collectives")
    if job.offsets["offset_ns"].null_count() == job.offsets.height:
        text = "No collective is in the traces of several ranks, so clocks cannot be compared."
        return View("clocks", "Clocks", what, [Note(text, missing=True)])
    return View("clocks", "Clocks", what, [Table("offsets", "Clocks", what, job.offsets, columns)])


def files(job: Job) -> View:
    """Sources of the ranks."""
    what = "The traces of the ranks, including those that could not be read."
    if job.sources is None:
        table = _by_file_name(job.cluster.ranks)
    else:
        table = _by_file_name(job.sources).sort("outcome", "rank", descending=[True, False])
    columns = (
        "rank", "outcome", "error", "file", "host", "format", "events", "lost", "first_step", "last_step",
    )  # fmt: skip
    return View("files", "Traces", what, [Table("files", "Traces", what, table, columns)])


def _by_file_name(sources: pl.DataFrame) -> pl.DataFrame:
    """The table with the name of each ``file``: a page may go to people whom the folders do not concern."""
    name = pl.col("source").str.split("/").list.last()
    table = sources.with_columns(file=name)
    if "error" in table.columns:
        errors = table.select("error", "source", "file").iter_rows()
        shorter = [error and source and error.replace(source, file) for error, source, file in errors]
        table = table.with_columns(pl.Series("error", shorter, dtype=pl.String))
    return table.drop("source")
