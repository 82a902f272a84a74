"""Pipelines: which stage computes which micro-batch when, the schedule, and its bubble."""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor

import polars as pl

from kernelscope.analysis.grouping import positions
from kernelscope.analysis.intervals import Intervals, merged
from kernelscope.analysis.ranks.clocks import shifts
from kernelscope.analysis.ranks.cluster import Cluster, Source, Window, cluster_of, each_share, windows_of
from kernelscope.analysis.ranks.collective_calls import TRANSFERS
from kernelscope.analysis.ranks.collectives import rank_calls
from kernelscope.analysis.ranks.joined import PART, joined
from kernelscope.analysis.ranks.stragglers import rank_steps
from kernelscope.analysis.training.backward import in_backward
from kernelscope.analysis.training.dimensions import parallel_dimensions
from kernelscope.analysis.training.micro_batches import micro_batches
from kernelscope.trace import Trace

_SLOTS = {
    "rank": pl.Int64, "step": pl.Int32, "stage": pl.Int32, "micro_batch": pl.Int32, "direction": pl.String,
    "start_ns": pl.Int64, "dur_ns": pl.Int64,
}  # fmt: skip
_PLACES = ("rank", "pipeline", "place", "ranks")
_TABLES = ("ops", "gpu_ops")
_SCHEDULES = {
    "rank": pl.Int64, "step": pl.Int32, "schedule": pl.String, "micro_batches": pl.Int64, "chunks": pl.Int64,
    "ideal_share": pl.Float64,
}  # fmt: skip


def pipeline_slots(source: "Source", *, executor: Executor | None = None) -> pl.DataFrame:
    """When each rank of a pipeline computes each micro-batch, in which direction.

    A slot begins with the first operation of the pass and ends with the last, on the GPU, or on the host if
    the trace has no GPU operations. Sends and receives do not count.

    Columns: ``rank``, ``step``, ``stage`` (of the pipeline, as torch's schedules name it; else the place of
        the rank), ``micro_batch``, ``direction`` (forward, backward or weight: gradients of weights alone),
        ``start_ns``, ``dur_ns``.
    Units: ns on the common clock from the earliest base time.
    Order: by rank and start.
    """
    return slots_of(source, cluster_of(source, executor=executor), executor)


def slots_of(
    source: "Source",
    cluster: Cluster,
    executor: Executor | None = None,
    *,
    ranks: Collection[int] | None = None,
) -> pl.DataFrame:
    """Returns the rows of :func:`pipeline_slots` for some ranks of a source with a known cluster, or all."""
    places = _places(cluster)
    wanted = set(places["rank"] if ranks is None else ranks).intersection(places["rank"])
    tasks = [(window,) for window in windows_of(source) if window.rank in wanted]
    if not tasks:
        return pl.DataFrame(schema=_SLOTS)
    found = pl.concat(each_share(_of_share, tasks, tables=_TABLES, executor=executor))
    found = found.join(places, on="rank").join(shifts(cluster), on="rank", how="left")
    start = pl.col("start_ns") - pl.col("shift_ns").fill_null(0)
    stage = pl.coalesce("stage", pl.col("chunk") * pl.col("ranks") + pl.col("place")).cast(pl.Int32)
    found = found.with_columns(start_ns=start, stage=stage)
    return found.select(list(_SLOTS)).sort("rank", "start_ns", "stage", "direction")


def _places(cluster: Cluster) -> pl.DataFrame:
    """The place of each rank in its pipeline: ``_PLACES``. A pipeline has the number of its first rank."""
    groups = parallel_dimensions(cluster).filter(dimension="pp").drop_nulls("ranks").sort("group_size")
    rows = {
        rank: (rank, ranks[0], place, len(ranks))
        for ranks in groups["ranks"].to_list()
        for place, rank in enumerate(ranks)
    }
    return pl.DataFrame([*rows.values()], dict.fromkeys(_PLACES, pl.Int64), orient="row")


def ranks_of_pipelines(cluster: Cluster) -> dict[int, list[int]]:
    """Returns the ranks of each pipeline by place. The key is its first rank; the slowest rank's comes first.

    The slowest rank has the longest median of own time.
    """
    own = rank_steps(cluster).group_by("rank").agg(pl.col("own_ns").median())
    places = (
        _places(cluster).sort("pipeline", "place").join(own, on="rank", how="left", maintain_order="left")
    )
    found = places.group_by("pipeline", maintain_order=True).agg("rank", pl.col("own_ns").max().fill_null(0))
    found = found.sort(pl.int_range(pl.len()) != pl.col("own_ns").arg_max(), maintain_order=True)
    return dict(found.select("pipeline", "rank").iter_rows())


def _of_share(tasks: Sequence[tuple[Window]], traces: Sequence[Trace]) -> pl.DataFrame:
    """The slots of some windows, each on the clock of its rank, with the ``chunk`` of the model."""
    whole = joined(traces, _TABLES)
    columns = (PART, "row", "step", "activity", "phase", "module", "start_ns", "dur_ns")
    ops = whole.trace.ops.select(columns).hstack(micro_batches(whole.trace))
    computes = ~pl.col("is_communication").fill_null(value=False)
    work = whole.trace.gpu_ops.filter(computes).select("op_row", "start_ns", "dur_ns")
    weight = pl.when("is_weight").then(pl.lit("weight")).otherwise(pl.lit("backward"))
    passes = ops.filter(
        "is_pass", pl.col("micro_batch").is_not_null(), pl.col("activity").ne_missing("communication")
    )
    passes = passes.with_columns(
        pl.when(in_backward()).then(weight).otherwise(pl.lit("forward")).alias("direction")
    )
    passes = _in_chunks(passes)
    keys = (PART, "step", "stage", "chunk", "micro_batch", "direction")
    of_work = passes.select(keys)[positions(passes["row"], work["op_row"])].hstack(
        work.select("start_ns", "dur_ns")
    )
    on_host = pl.col(PART).is_in([part for part, trace in enumerate(traces) if trace.gpu_ops.is_empty()])
    events = pl.concat([of_work.drop_nulls("micro_batch"), passes.filter(on_host).select(of_work.columns)])
    end = pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    found = events.group_by(keys).agg(pl.col("start_ns").min(), end_ns=end.max())
    found = found.with_columns(whole.own_numbers(found["step"]))
    parts = pl.DataFrame(
        [(part, window.rank, window.later_ns) for part, (window,) in enumerate(tasks)],
        {PART: pl.Int32, "rank": pl.Int64, "later_ns": pl.Int64},
        orient="row",
    )
    return found.join(parts, on=PART).select(
        "rank",
        "step",
        *(pl.col(key).cast(_SLOTS.get(key, pl.Int32)) for key in keys[2:]),
        pl.col("start_ns") + pl.col("later_ns"),
        dur_ns=pl.col("end_ns") - pl.col("start_ns"),
    )


def _in_chunks(ops: pl.DataFrame) -> pl.DataFrame:
    """Adds ``chunk``, and numbers the micro-batches of each chunk of the model, if nothing names stages.

    Passes of one chunk begin in the same module, and no module is part of two. Otherwise there is one chunk.
    """
    on = [PART, "step", "micro_batch"]
    forward = ops.filter(pl.col("stage").is_null(), direction="forward").sort("start_ns")
    begins = forward.group_by(on).agg(begins=pl.col("module").drop_nulls().first())
    number, alike = pl.col("micro_batch"), [PART, "step", "begins"]
    passes = begins.select(
        *on,
        "begins",
        chunk=number.min().over(alike).rank("dense").over(PART, "step").cast(pl.Int32) - 1,
        number=number.rank("dense").over(alike).cast(pl.Int32) - 1,
        count=pl.len().over(alike),
    )
    inside = forward.drop_nulls("module").join(passes, on=on, nulls_equal=True)
    shared = inside.group_by(PART, "module").agg(pl.col("chunk").n_unique()).filter(pl.col("chunk") > 1)
    is_even = (pl.col("count").n_unique() == 1).over(PART, "step")
    is_apart = ~pl.col(PART).is_in(shared[PART].implode())
    chunked = (is_even & is_apart & pl.col("begins").is_not_null()).all().over(PART)
    passes = passes.filter(chunked & (pl.col("chunk") > 0).any().over(PART)).drop("begins", "count")
    ops = ops.join(passes, on=on, how="left", nulls_equal=True, maintain_order="left")
    return ops.with_columns(pl.col("chunk").fill_null(0), micro_batch=pl.coalesce("number", "micro_batch"))


def pipeline_stages(source: "Source", *, executor: Executor | None = None) -> pl.DataFrame:
    """The bubble of each rank of a pipeline in each complete step, beside the one of an ideal pipeline.

    The pipeline lasts from the first slot of its ranks to the last. In its bubble, a rank computes no
    micro-batch. The ideal share assumes that all slots of a direction take equally long, that a backward pass
    takes twice as long as a forward pass, and that transfers take no time.

    Columns: ``rank``, ``step``, ``pipeline`` (its first rank), ``stage`` (place of the rank), ``schedule``
        (gpipe, 1f1b, interleaved, zero_bubble or dualpipe), ``micro_batches``, ``chunks`` (stages of the
        rank), ``pipeline_ns``, ``slots_ns`` (time of the rank in slots), ``bubble_ns``,
        ``bubble_transfer_ns`` (part of the bubble in which it sends or receives), ``bubble_share``,
        ``ideal_share`` (null for dualpipe), ``over_mean_share`` (how much longer it is in slots than the mean
        of its pipeline).
    Units: ns; shares between 0 and 1, of ``pipeline_ns``.
    Formula: with p ranks, m micro-batches and v chunks, (p - 1) / (v m + p - 1); with a zero bubble, where
        the gradients of weights fill gaps, (p - 1) / (3 v m + p - 1).
    Order: by step, pipeline and stage.
    Source: Narayanan et al. 2021 (interleaved schedules); Qi et al. 2023 (zero bubble, ZB-H1).
    """
    cluster = cluster_of(source, executor=executor)
    return stages_of(slots_of(source, cluster, executor), cluster)


def stages_of(slots: pl.DataFrame, cluster: Cluster) -> pl.DataFrame:
    """Returns the rows of :func:`pipeline_stages` for known slots."""
    complete = cluster.steps.select("rank", "step").unique()
    slots = slots.join(complete, on=["rank", "step"], how="semi", nulls_equal=True)
    known = _places(cluster)
    ends = slots.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    busy = merged(ends.select("rank", "step", "start_ns", "end_ns"), by=["rank", "step"])
    busy = busy.group_by("rank", "step").agg(slots_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    ends = ends.join(known, on="rank")
    spans = ends.group_by("pipeline", "step").agg(
        begin_ns=pl.col("start_ns").min(), pipeline_ns=pl.col("end_ns").max() - pl.col("start_ns").min()
    )
    transfers = _transfers(cluster, ends, spans)
    table = busy.join(known, on="rank").join(spans, on=["pipeline", "step"], nulls_equal=True)
    table = table.join(_schedules(ends), on=["rank", "step"], nulls_equal=True)
    table = table.join(transfers, on=["rank", "step"], how="left", nulls_equal=True)
    bubble = pl.col("pipeline_ns") - pl.col("slots_ns")
    mean = pl.col("slots_ns").mean().over("pipeline", "step")
    span = pl.when(pl.col("pipeline_ns") > 0).then("pipeline_ns")
    return table.select(
        "rank", "step", "pipeline", pl.col("place").alias("stage"), "schedule", "micro_batches", "chunks",
        "pipeline_ns", "slots_ns", bubble_ns=bubble,
        bubble_transfer_ns=pl.col("bubble_transfer_ns").fill_null(0),
        bubble_share=bubble / span, ideal_share="ideal_share",
        over_mean_share=(pl.col("slots_ns") - mean) / span,
    ).sort("step", "pipeline", "stage", nulls_last=True)  # fmt: skip


def _transfers(cluster: Cluster, slots: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """How long each rank sends or receives in its pipeline outside of its slots.

    Columns: ``rank``, ``step``, ``bubble_transfer_ns``.
    """
    groups = parallel_dimensions(cluster).filter(dimension="pp")["group"]
    calls = rank_calls(cluster).filter(
        pl.col("group").cast(pl.String).is_in(groups.implode()),
        pl.col("kind").cast(pl.String).is_in(TRANSFERS),
    )
    of_rank = slots.select("rank", "step", "pipeline").unique()
    calls = calls.select("rank", "step", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    calls = calls.join(of_rank, on=["rank", "step"], nulls_equal=True)
    calls = calls.join(spans, on=["pipeline", "step"], nulls_equal=True)
    until = pl.col("begin_ns") + pl.col("pipeline_ns")
    calls = calls.with_columns(pl.max_horizontal("start_ns", "begin_ns"), pl.min_horizontal("end_ns", until))
    calls = calls.filter(pl.col("start_ns") < pl.col("end_ns"))
    parts = merged(calls.select("rank", "step", "start_ns", "end_ns"), by=["rank", "step"])
    hidden = Intervals(slots.select("rank", "start_ns", "dur_ns"), by=["rank"]).hidden_ns(parts)
    length = pl.col("end_ns") - pl.col("start_ns") - pl.col("hidden_ns")
    return parts.with_columns(hidden).group_by("rank", "step").agg(bubble_transfer_ns=length.sum())


def _schedules(slots: pl.DataFrame) -> pl.DataFrame:
    """The schedule of the pipeline of each rank in each step, and its ideal bubble: ``_SCHEDULES``."""
    rows: list[tuple[object, ...]] = []
    for (_, step), of_pipeline in slots.group_by("pipeline", "step", maintain_order=True):
        ranks = int(of_pipeline["ranks"][0])
        chunks = max(of_pipeline.group_by("rank").agg(pl.col("stage").n_unique())["stage"].to_list())
        count = of_pipeline["micro_batch"].n_unique()
        schedule = _schedule(of_pipeline, ranks, chunks)
        parts = {"zero_bubble": 3, "dualpipe": None}.get(schedule, 1)
        ideal = None if parts is None else (ranks - 1) / (parts * chunks * count + ranks - 1)
        rows += [(rank, step, schedule, count, chunks, ideal) for rank in of_pipeline["rank"].unique()]
    return pl.DataFrame(rows, _SCHEDULES, orient="row")


def _schedule(slots: pl.DataFrame, ranks: int, chunks: int) -> str:
    """The name of a schedule, from the order of its slots.

    With one chunk, the last rank begins a backward pass after the first forward pass, or after all.
    """
    stages: Mapping[int, list[int]] = dict(slots.group_by("place").agg(pl.col("stage").unique()).iter_rows())
    folds = all(sorted(own) == [place, 2 * ranks - 1 - place] for place, own in stages.items())
    if chunks > 1 and folds:
        return "dualpipe"
    if (slots["direction"] == "weight").any():
        return "zero_bubble"
    if chunks > 1:
        return "interleaved"
    last = slots.filter(pl.col("place") == pl.col("place").max()).sort("start_ns")
    is_forward = last["direction"] == "forward"
    leading = int((~is_forward).arg_max() or 0)
    return "gpipe" if leading == int(is_forward.sum()) else "1f1b"
