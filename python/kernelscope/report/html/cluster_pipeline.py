"""The pipelines of a job, for its page."""

from typing import Any

import polars as pl

from kernelscope.analysis.ranks.cluster import Cluster, Source
from kernelscope.analysis.training.pipelines import ranks_of_pipelines, slots_of, stages_of
from kernelscope.report.parts import Figure, Note, Part, View
from kernelscope.report.parts.charts import longest_step, rank_bars, rank_bars_layout, time_unit
from kernelscope.report.parts.parallelism import NO_PIPELINE, stage_table
from kernelscope.report.parts.path_bars import MOST_RANKS
from kernelscope.units import format_ns

_PATTERNS = {"forward": "", "backward": "/", "weight": "x"}


def pipeline(source: Source, cluster: Cluster) -> View:
    """Returns the bubble of each rank of a pipeline, and a picture of the longest step."""
    what = "Micro-batches of the stages of each pipeline, and the time in which a stage computes none."
    pipelines = ranks_of_pipelines(cluster) if cluster.ranks.height > MOST_RANKS else {}
    parts: list[Part] = []
    ranks = None
    if len(pipelines) > 1:
        ranks = next(iter(pipelines.values()))
        parts.append(
            Note(
                f"Slots need all of each rank, so only the pipeline with the slowest of "
                f"{cluster.ranks.height:,} ranks is shown. For others, use kernelscope view, or "
                "kernelscope.analysis.pipeline_stages with an executor."
            )
        )
    slots = slots_of(source, cluster, ranks=ranks)
    stages = stages_of(slots, cluster)
    if stages.is_empty():
        return View("pipeline", "Pipeline", what, [Note(NO_PIPELINE, missing=True)])
    parts += [_picture(slots, stages), stage_table(stages)]
    return View("pipeline", "Pipeline", what, parts)


def _picture(slots: pl.DataFrame, stages: pl.DataFrame) -> Figure:
    """The slots of the longest step of a pipeline."""
    first, step, length = stages.sort("pipeline_ns", "step").select("pipeline", "step", "pipeline_ns").row(-1)
    ranks = stages.filter(pipeline=first).unique("rank").sort("stage")["rank"]
    shown = slots.filter(pl.col("step").eq_missing(step), pl.col("rank").is_in(ranks.implode()))
    begin = shown.select(pl.col("start_ns").min()).item()
    size, unit = time_unit(length)
    last = shown.select(pl.col("micro_batch").max()).item()
    traces = [
        _bars(part, direction, begin, size, last)
        for direction in _PATTERNS
        if (part := shown.filter(direction=direction)).height
    ]
    what = f"{longest_step(step, length)} Colours are micro-batches, gaps are bubbles."
    layout = rank_bars_layout(ranks, unit)
    return Figure("schedule", "Schedule", what, traces, layout, height=200 + 22 * ranks.len())


def _bars(slots: pl.DataFrame, direction: str, begin: int, size: float, last: int) -> dict[str, Any]:
    batches = slots["micro_batch"].to_list()
    details = [
        f"{direction} of micro-batch {batch} in stage {stage}: {format_ns(length)}"
        for batch, stage, length in slots.select("micro_batch", "stage", "dur_ns").iter_rows()
    ]
    pattern = {
        "shape": _PATTERNS[direction], "fillmode": "overlay", "fgcolor": "rgba(255, 255, 255, 0.5)",
        "size": 6, "solidity": 0.25,
    }  # fmt: skip
    marker = {
        "color": batches, "colorscale": "Viridis", "cmin": 0, "cmax": max(last, 1), "pattern": pattern,
        "line": {"width": 1, "color": "white"},
    }  # fmt: skip
    shown = {"text": batches, "textposition": "inside", "insidetextanchor": "middle", "marker": marker}
    return rank_bars(direction, slots, details, begin, size, **shown)
