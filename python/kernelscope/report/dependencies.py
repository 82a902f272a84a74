"""The critical path and predictions as text, JSON and CSV."""

from collections.abc import Mapping
from typing import Any, TypeAlias, TypedDict

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.analysis.dependencies.rank_path import check_alone
from kernelscope.analysis.dependencies.table import path_and_table
from kernelscope.analysis.ranks.cluster import Lake, one_trace, windows_of
from kernelscope.escaping import for_csv
from kernelscope.report.json_document import SCHEMA_VERSION, describe, dump, listed
from kernelscope.report.names import short
from kernelscope.report.text import summary
from kernelscope.report.text.cells import (
    Field,
    Shape,
    count,
    heading,
    named_table,
    note,
    ns,
    share,
    top_table,
)
from kernelscope.trace import Trace
from kernelscope.units import format_ns, format_percent

_SHOWN_OPS, _KERNEL_NAME = 3, 30

PLAIN_WIDTH = 120
"""Width of a text without a terminal, in characters."""


Ranks: TypeAlias = "Trace | Lake"
"""A trace, perhaps of several merged ranks, or a lake."""


class Part(TypedDict):
    """The part of a trace whose critical path is asked for; see ``analysis.critical_path``."""

    step: int | None
    annotation: str | None
    instance: int


def path_parts(source: Ranks, by: tuple[str, ...], part: Part, shape: Shape) -> list[RenderableType]:
    """Returns the parts of the critical path by reason, and by the columns ``by``."""
    path, table = _path_and_table(source, by, part)
    bounds = path.group_by(name="bound_by").agg(pl.col("dur_ns").sum())
    bounds = bounds.sort("dur_ns", "name", descending=[True, False])
    total = int(path["dur_ns"].sum())
    whole = "all steps of all ranks" if one_trace(source) is None else "the trace"
    subject = whole if part["step"] is None else f"step {part['step']}"
    if part["annotation"] is not None:
        subject = f"{part['annotation']} number {part['instance']}"
    parts: list[RenderableType] = [_header(source, shape)]
    if bounds.is_empty():
        return [*parts, heading("Critical path"), note("The trace has no events.", shape)]
    title = f"Critical path of {subject}: {format_ns(total)}"
    of_path = [Field("on the path", ns("dur_ns")), Field("share", share("dur_ns", total))]
    parts += [heading(title), named_table(bounds.to_dicts(), "bound by", of_path, shape)]
    if "rank" in path.columns:
        ranks = path.group_by("rank").agg(pl.col("dur_ns").sum())
        ranks = ranks.with_columns(name=pl.col("rank").cast(pl.String))
        parts += top_table(ranks, "dur_ns", "On the path, by rank", of_path, shape)
    text = pl.concat_str(pl.col(by).cast(pl.String).fill_null("-"), separator=", ")
    fields = [
        Field("on the path", ns("path_ns")),
        Field("share", share("path_ns", total)),
        Field("segments", count("segments")),
    ]
    if "slack_ns" in table.columns:
        fields += [
            Field("events", count("events")),
            Field("least slack", lambda row: "-" if row["slack_ns"] is None else format_ns(row["slack_ns"])),
        ]
    on_path = table.with_columns(name=text).filter(pl.col("path_ns") > 0)
    parts += top_table(on_path, "path_ns", f"On the path, by {', '.join(by)}", fields, shape)
    if one_trace(source) is None:
        return [*parts, note("Where ranks meet, the path moves to the rank that arrived last.", shape)]
    remark = "Slack: by how much an event of this kind that is not on the path could end later."
    return [*parts, note(remark, shape)]


def path_json(source: Ranks, by: tuple[str, ...], part: Part) -> str:
    """Returns the path and the table as one JSON object."""
    path, table = _path_and_table(source, by, part)
    frames = {"critical_path": path, "critical_path_table": table}
    head = {"schema_version": SCHEMA_VERSION, **_described(source), **part, "by": by}
    return dump({**head, **listed(frames)})


def path_csv(source: Ranks, by: tuple[str, ...], part: Part) -> str:
    """Returns the table as CSV."""
    return for_csv(analysis.critical_path_table(source, by, **part)).write_csv()


def what_if_parts(
    source: Ranks, changes: Mapping[str, float | str], step: int | None, shape: Shape
) -> list[RenderableType]:
    """Returns each step before and after the changes, and the sum of all.

    Of several ranks, the longest of a step counts.
    """
    found = analysis.what_if(source, changes, step)
    parts: list[RenderableType] = [_header(source, shape)]
    text = ", ".join(f"{change}={by if isinstance(by, str) else f'{by:g}'}" for change, by in changes.items())
    if found.is_empty():
        return [*parts, heading(f"If {text}"), note("The trace has no events.", shape)]
    has_ranks = one_trace(source) is None
    if has_ranks:
        longest = found.group_by("step", maintain_order=True)
        found = longest.agg(pl.col("before_ns", "after_ns", "after_max_ns").max()).sort("step")
    before, after = (int(found[column].sum()) for column in ("before_ns", "after_ns"))
    change = format_percent(abs(before - after) / before if before else None)
    which = "less" if after <= before else "more"
    title = f"If {text}: {format_ns(after)} instead of {format_ns(before)}, {change} {which}"
    fields = [Field("before", ns("before_ns")), Field("after", ns("after_ns"))]
    fields.append(Field("after, at most", ns("after_max_ns")))
    if not has_ranks:
        fields.append(Field("then bound by", lambda row: row["bound_by_after"] or "-"))
    named = found.with_columns(name=pl.col("step").cast(pl.String).fill_null("all"))
    rows = named.head(shape.top).to_dicts()
    parts += [heading(title), named_table(rows, "step", fields, shape)]
    if named.height > len(rows):
        parts.append(note(f"and {named.height - len(rows)} more", shape))
    if has_ranks:
        parts.append(note("Each step as long as it is on the rank where it is longest.", shape))
    remark = (
        "At most: if waits whose cause was not recorded end no earlier, and less favourable assumptions hold."
    )
    return [*parts, note(remark, shape)]


def sequence_parts(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the sequences of kernels worth fusing or launching as a graph."""
    found = analysis.sequence_savings(trace)
    parts: list[RenderableType] = [_header(trace, shape), heading("Sequences of kernels to merge")]
    if found.is_empty():
        return [*parts, note("None would save time.", shape)]
    fields = [
        Field("change", lambda row: row["change"]),
        Field("saves", ns("saving_ns")),
        Field("of all", lambda row: format_percent(row["saving_share"])),
        Field("operations", count("works")),
        Field("runs", count("runs")),
        Field("GPU time", ns("gpu_ns")),
    ]
    rows = [{**row, "name": _sequence_name(row)} for row in found.head(shape.top).to_dicts()]
    remark = (
        "fuse: one kernel that takes as long as the longest. graph: one call launches all operations. "
        "Savings overlap. Other changes: kernelscope what-if."
    )
    return [*parts, named_table(rows, "operators", fields, shape), note(remark, shape)]


def _sequence_name(row: Mapping[str, Any]) -> str:
    """The first operators of a sequence, or kernels without one, and the module of the first."""
    names = [op or short(kernel, _KERNEL_NAME) for op, kernel in zip(row["ops"], row["kernels"], strict=True)]
    shown = ", ".join(names[:_SHOWN_OPS]) + (", ..." if row["works"] > _SHOWN_OPS else "")
    where = "from" if row["works"] > _SHOWN_OPS else "in"
    return shown if row["module"] is None else f"{shown} {where} {row['module']}"


def sequence_json(trace: Trace) -> str:
    """Returns the same as one JSON object."""
    head = {"schema_version": SCHEMA_VERSION, **_described(trace)}
    return dump({**head, **listed({"sequence_savings": analysis.sequence_savings(trace)})})


def sequence_csv(trace: Trace) -> str:
    """Returns the same as CSV, with names separated by semicolons."""
    names = pl.col("kernels", "ops").list.eval(pl.element().fill_null("")).list.join("; ")
    return for_csv(analysis.sequence_savings(trace).with_columns(names)).write_csv()


def what_if_json(source: Ranks, changes: Mapping[str, float | str], step: int | None) -> str:
    """Returns the prediction as one JSON object."""
    head = {"schema_version": SCHEMA_VERSION, **_described(source), "changes": dict(changes)}
    return dump({**head, **listed({"what_if": analysis.what_if(source, changes, step)})})


def what_if_csv(source: Ranks, changes: Mapping[str, float | str], step: int | None) -> str:
    """Returns the prediction as CSV."""
    return for_csv(analysis.what_if(source, changes, step)).write_csv()


def _path_and_table(source: Ranks, by: tuple[str, ...], part: Part) -> tuple[pl.DataFrame, pl.DataFrame]:
    if one_trace(source) is None:
        check_alone(None, part["annotation"])
        return path_and_table(source, by, part["step"])
    return analysis.critical_path(source, **part), analysis.critical_path_table(source, by, **part)


def _header(source: Ranks, shape: Shape) -> RenderableType:
    if isinstance(source, Trace):
        return summary.header(source, shape)
    return heading(f"{source.path}: {len(_ranks_of(source))} ranks")


def _described(source: Ranks) -> dict[str, Any]:
    if isinstance(source, Trace):
        return {"trace": describe(source)}
    return {"lake": {"path": str(source.path), "ranks": _ranks_of(source)}}


def _ranks_of(lake: Lake) -> list[int]:
    return sorted({window.rank for window in windows_of(lake)})
