"""The critical path and predictions as text, JSON and CSV."""

from collections.abc import Mapping
from typing import TypedDict

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.escaping import for_csv
from kernelscope.report.json_document import SCHEMA_VERSION, describe, dump, listed
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

PLAIN_WIDTH = 120
"""Width of a text without a terminal, in characters."""


class Part(TypedDict):
    """The part of a trace whose critical path is asked for; see ``analysis.critical_path``."""

    step: int | None
    annotation: str | None
    instance: int


def path_parts(trace: Trace, by: tuple[str, ...], part: Part, shape: Shape) -> list[RenderableType]:
    """Returns the parts of the critical path by reason, and by the columns ``by``."""
    path = analysis.critical_path(trace, **part)
    bounds = path.group_by(name="bound_by").agg(pl.col("dur_ns").sum())
    bounds = bounds.sort("dur_ns", "name", descending=[True, False])
    total = int(path["dur_ns"].sum())
    subject = "the trace" if part["step"] is None else f"step {part['step']}"
    if part["annotation"] is not None:
        subject = f"{part['annotation']} number {part['instance']}"
    parts: list[RenderableType] = [summary.header(trace, shape)]
    if bounds.is_empty():
        return [*parts, heading("Critical path"), note("The trace has no events.", shape)]
    title = f"Critical path of {subject}: {format_ns(total)}"
    of_path = [Field("on the path", ns("dur_ns")), Field("share", share("dur_ns", total))]
    parts += [heading(title), named_table(bounds.to_dicts(), "bound by", of_path, shape)]
    table = analysis.critical_path_table(trace, by, **part)
    text = pl.concat_str(pl.col(by).cast(pl.String).fill_null("-"), separator=", ")
    fields = [
        Field("on the path", ns("path_ns")),
        Field("share", share("path_ns", total)),
        Field("segments", count("segments")),
        Field("events", count("events")),
        Field("least slack", lambda row: "-" if row["slack_ns"] is None else format_ns(row["slack_ns"])),
    ]
    on_path = table.with_columns(name=text).filter(pl.col("path_ns") > 0)
    parts += top_table(on_path, "path_ns", ", ".join(by), fields, shape)
    remark = "Slack: by how much an event of this kind that is not on the path could end later."
    return [*parts, note(remark, shape)]


def path_json(trace: Trace, by: tuple[str, ...], part: Part) -> str:
    """Returns the path and the table as one JSON object."""
    frames = {
        "critical_path": analysis.critical_path(trace, **part),
        "critical_path_table": analysis.critical_path_table(trace, by, **part),
    }
    head = {"schema_version": SCHEMA_VERSION, "trace": describe(trace), **part, "by": by}
    return dump({**head, **listed(frames)})


def path_csv(trace: Trace, by: tuple[str, ...], part: Part) -> str:
    """Returns the table as CSV."""
    return for_csv(analysis.critical_path_table(trace, by, **part)).write_csv()


def what_if_parts(
    trace: Trace, changes: Mapping[str, float], step: int | None, shape: Shape
) -> list[RenderableType]:
    """Returns each step before and after the changes, and the sum of all."""
    found = analysis.what_if(trace, changes, step)
    parts: list[RenderableType] = [summary.header(trace, shape)]
    text = ", ".join(f"{change}={factor:g}" for change, factor in changes.items())
    if found.is_empty():
        return [*parts, heading(f"If {text}"), note("The trace has no events.", shape)]
    before, after = (int(found[column].sum()) for column in ("before_ns", "after_ns"))
    change = format_percent(abs(before - after) / before if before else None)
    which = "less" if after <= before else "more"
    title = f"If {text}: {format_ns(after)} instead of {format_ns(before)}, {change} {which}"
    fields = [
        Field("before", ns("before_ns")),
        Field("after", ns("after_ns")),
        Field("after, at most", ns("after_max_ns")),
        Field("then bound by", lambda row: row["bound_by_after"] or "-"),
    ]
    named = found.with_columns(name=pl.col("step").cast(pl.String).fill_null("all"))
    rows = named.head(shape.top).to_dicts()
    parts += [heading(title), named_table(rows, "step", fields, shape)]
    if named.height > len(rows):
        parts.append(note(f"and {named.height - len(rows)} more", shape))
    remark = "At most: if waits whose cause was not recorded end no earlier than recorded."
    return [*parts, note(remark, shape)]


def what_if_json(trace: Trace, changes: Mapping[str, float], step: int | None) -> str:
    """Returns the prediction as one JSON object."""
    head = {"schema_version": SCHEMA_VERSION, "trace": describe(trace), "changes": dict(changes)}
    return dump({**head, **listed({"what_if": analysis.what_if(trace, changes, step)})})


def what_if_csv(trace: Trace, changes: Mapping[str, float], step: int | None) -> str:
    """Returns the prediction as CSV."""
    return for_csv(analysis.what_if(trace, changes, step)).write_csv()
