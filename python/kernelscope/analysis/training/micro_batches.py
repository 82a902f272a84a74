"""The micro-batch of each operator: one of the forward passes of a step, with its backward pass."""

import re
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.call_tree import innermost, nest
from kernelscope.analysis.grouping import gather_rows
from kernelscope.analysis.ranks.joined import PART, part_of
from kernelscope.analysis.training.backward import in_backward
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

_NAMED = re.compile(r"(?:Forward|Backward) (\d+)$|(?i:.*\bmicro[-_ ]?batch[-_ #:=]*(\d+))")
"""Names of a micro-batch: of torch's GPipe schedule, and names such as ``micro_batch 3``."""

_ACTION = re.compile(r"(\d+)([A-Z_]+?)(\d+)(?=[;)]|$)")
"""Actions of torch's other schedules: ``PP:0F3`` (stage 0, forward) or ``PP:(1F0;0B2)OVERLAP_F_B``."""


class _Label(NamedTuple):
    """An annotation that names a micro-batch: for the forward operators and the nodes inside it."""

    name: str
    of_forward: int
    of_backward: int
    forward_stage: int | None = None
    backward_stage: int | None = None
    is_weight: bool = False


_LABEL = {
    "name": pl.String, "of_forward": pl.Int32, "of_backward": pl.Int32, "forward_stage": pl.Int32,
    "backward_stage": pl.Int32, "is_weight": pl.Boolean,
}  # fmt: skip
_LABELLED = [*_LABEL][1:]


@per_trace
def micro_batches(trace: Trace) -> pl.DataFrame:
    """Returns the micro-batch of each row of ``ops``.

    A backward pass and the forward operators that it differentiates are one micro-batch. Forward operators
    without a gradient belong to the micro-batch of the operators after them, or else before them. Annotations
    that name micro-batches, as pipeline schedules do, decide first. Numbers start again after an optimizer.
    Each part of a joined trace has numbers of its own.

    Columns: ``micro_batch`` (from 0 in each step; null for none), ``stage`` (of a pipeline, if an annotation
        names it), ``is_weight`` (whether its annotation is for gradients of weights alone), ``is_pass``
        (whether it is inside a node, or inside a forward operator with a gradient).
    """
    ops = trace.ops.select(
        part_of(trace.ops),
        "row", "track", "start_ns", "sequence", "forward_row", "step", "is_annotation", "name",
        "activity", "phase",
        pl.col("dur_ns").fill_null(0),
        caller=pl.coalesce("caller_track", "track"),
        around=gather_rows(trace.ops["parent_row"], trace.ops, "phase")["phase"],
    )  # fmt: skip
    labels = _labels(ops)
    runs = _numbered(ops, _engine_runs(ops), labels)
    found = pl.concat([_of_forward(ops, runs), _of_backward(ops, runs)])
    found = ops.select("row", "phase").join(found, on="row", how="left", maintain_order="left")
    own = _labelled(ops, labels).rename({"is_weight": "own_is_weight"})
    # A label may be around two passes, and around the thread that waits for the engine.
    forward = pl.coalesce("of_forward", "micro_batch"), pl.coalesce("forward_stage", "stage")
    backward = pl.coalesce("micro_batch", "of_backward"), pl.coalesce("stage", "backward_stage")
    number, stage = (
        pl.when(in_backward()).then(late).otherwise(early)
        for early, late in zip(forward, backward, strict=True)
    )
    return found.hstack(own).select(
        micro_batch=number,
        stage=stage,
        is_weight=pl.coalesce("is_weight", "own_is_weight").fill_null(value=False),
        is_pass=pl.col("is_pass").fill_null(value=False),
    )


def _labels(ops: pl.DataFrame) -> pl.DataFrame:
    """Annotations that name a micro-batch, nested.

    Columns: ``row``, ``parent_row``, ``track``, ``start_ns``, ``dur_ns``, and the fields of a label.
    """
    marks = ops.filter("is_annotation").with_columns(pl.col("name").cast(pl.String))
    found = [label for name in marks["name"].drop_nulls().unique() if (label := _label(name))]
    marks = marks.join(pl.DataFrame(found, _LABEL, orient="row"), on="name", maintain_order="left")
    return nest(marks.select("row", "track", "start_ns", "dur_ns", *_LABELLED))


def _label(name: str) -> _Label | None:
    if name.startswith("PP:"):
        actions = [(kind, int(stage), int(number)) for stage, kind, number in _ACTION.findall(name)]
        if not actions:
            return None
        parts = {kind.endswith("F"): (number, stage) for kind, stage, number in actions}
        either = next(iter(parts.values()))
        forward, backward = parts.get(True, either), parts.get(False, either)
        is_weight = all(kind == "W" for kind, _, _ in actions)
        return _Label(name, forward[0], backward[0], forward[1], backward[1], is_weight)
    found = _NAMED.match(name)
    return _Label(name, number := int(found[1] or found[2]), number) if found else None


def _labelled(moments: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """The fields of the label around each moment of a track."""
    points = moments.select("track", "start_ns", dur_ns=pl.lit(0, pl.Int64))
    return gather_rows(innermost(points, labels), labels, *_LABELLED)


def _engine_runs(ops: pl.DataFrame) -> pl.DataFrame:
    """What the engine of autograd runs, by the call that made it do so: a node in each row.

    The thread that calls it waits until it is done, or runs nodes, too. So what else begins on that thread
    divides two runs, and so does a node that is younger than all before.

    Columns: ``PART``, ``track``, ``caller``, ``start_ns``, ``end_ns``, ``step``, ``forward_row`` and ``run``.
        Order: by caller and start.
    """
    is_root = in_backward() & ~pl.col("is_annotation") & ~in_backward("around").fill_null(value=False)
    # A Function may be named as nodes are.
    is_root &= ~pl.col("row").is_in(ops["forward_row"].drop_nulls().implode())
    roots = ops.filter(is_root).sort("start_ns")
    others = ops.filter(~in_backward()).sort("start_ns")
    others = others.select("start_ns", caller="track", mark=pl.int_range(pl.len()))
    roots = roots.join_asof(others, on="start_ns", by="caller", check_sortedness=False)
    roots = roots.sort("caller", "start_ns")
    is_divided = pl.col("mark").ne_missing(pl.col("mark").shift(1)).over("caller")
    youngest = pl.col("sequence").cum_max().forward_fill().shift(1).over("caller")
    is_first = pl.int_range(pl.len()).over("caller") == 0
    begins = is_first | is_divided | (pl.col("sequence") > youngest).fill_null(value=False)
    end = pl.col("start_ns") + pl.col("dur_ns")
    return roots.select(
        PART, "track", "caller", "start_ns", "step", "forward_row", end_ns=end, run=begins.cum_sum()
    )


def _numbered(ops: pl.DataFrame, runs: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Adds ``micro_batch``, ``stage`` and ``is_weight``.

    Runs that differentiate the same operators are one, as for gradients of gradients.
    """
    first = runs.drop_nulls("forward_row").group_by("forward_row").agg(first=pl.col("run").min())
    runs = runs.join(first, on="forward_row", how="left", maintain_order="left")
    runs = runs.with_columns(group=pl.coalesce(pl.col("first").min().over("run"), "run"))
    began = gather_rows(runs["forward_row"], ops, "start_ns")["start_ns"]
    own = _labelled(runs.select("start_ns", track="caller"), labels)
    runs = runs.with_columns(own["is_weight"], label=own["of_backward"], stage=own["backward_stage"])
    groups = (
        runs.with_columns(began=began)
        .group_by("group", maintain_order=True)
        .agg(
            pl.col(PART, "step").first(),
            pl.col("label").drop_nulls().first(),
            began=pl.coalesce(pl.col("began").min(), pl.col("start_ns").min()),
            start_ns=pl.col("start_ns").min(),
        )
        .sort("start_ns")
    )
    updates = ops.filter(pl.col("activity") == "optimizer").sort("start_ns")
    updates = updates.select(PART, "start_ns", update=pl.int_range(pl.len()))
    groups = groups.join_asof(updates, on="start_ns", by=PART, check_sortedness=False).sort("began")
    number = pl.int_range(pl.len(), dtype=pl.Int32).over(PART, "step", "update")
    groups = groups.select("group", micro_batch=pl.coalesce("label", number))
    return runs.join(groups, on="group", how="left", maintain_order="left")


def _of_backward(ops: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """What runs inside the nodes: ``row``, ``micro_batch``, ``stage``, ``is_weight`` and ``is_pass``."""
    inside = ops.filter(in_backward()).select("row", "track", "start_ns").sort("start_ns")
    nodes = runs.select("track", "start_ns", "end_ns", "micro_batch", "stage", "is_weight").sort("start_ns")
    found = inside.join_asof(nodes, on="start_ns", by="track", check_sortedness=False)
    found = found.filter(pl.col("start_ns") <= pl.col("end_ns"))
    return found.select("row", "micro_batch", "stage", "is_weight", is_pass=pl.lit(value=True))


def _of_forward(ops: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """The same of forward operators: what their gradients have, or the operators around them.

    Between two runs of the engine, a thread has run whole forward passes.
    """
    linked = runs.drop_nulls("forward_row").unique("forward_row", keep="first")
    linked = linked.select(row="forward_row", known="micro_batch", stage="stage")
    forward = ops.filter(pl.col("phase") == "forward").select("row", "track", "step", "start_ns", "dur_ns")
    forward = forward.join(linked, on="row", how="left")
    nodes = runs.select("start_ns", track="caller", after="run").sort("start_ns")
    forward = forward.sort("start_ns").join_asof(nodes, on="start_ns", by="track", check_sortedness=False)
    segment = ["track", "step", "after"]
    until = pl.when(pl.col("known").is_not_null()).then(pl.col("start_ns") + pl.col("dur_ns"))
    is_pass = (pl.col("start_ns") <= until.cum_max().forward_fill().over(segment)).fill_null(value=False)
    # What is inside an operator with a gradient belongs to it.
    number, stage = (
        pl.when(is_pass)
        .then(pl.col(name).forward_fill().over(segment))
        .otherwise(pl.col(name).backward_fill().forward_fill().over(segment))
        for name in ("known", "stage")
    )
    return forward.select(
        "row", micro_batch=number, stage=stage, is_weight=pl.lit(None, pl.Boolean), is_pass=is_pass
    )
