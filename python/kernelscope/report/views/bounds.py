"""The reasons for the duration of steps, and the changes that save most."""

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.report.parts import Part
from kernelscope.report.parts.tables import Table
from kernelscope.report.text.cells import Field, Shape, heading, named_table, ns, share
from kernelscope.report.views import recommendations
from kernelscope.trace import Trace
from kernelscope.units import format_ns, format_percent

ORDER = 72
TEXT_ORDER = 7
TABLES = recommendations.TABLES


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {"step_bounds": analysis.step_bounds(trace), "best_changes": analysis.best_changes(trace)}


def tables(trace: Trace) -> list[Part]:
    """Returns the parts of the critical path of all complete steps, and the best changes, as tables."""
    found = frames(trace)
    parts: list[Part] = []
    if found["step_bounds"].height:
        what = (
            "Only a shorter event of the critical path makes a step end sooner. The parts sum to the steps."
        )
        columns = ("bound_by", "path_ns", "share")
        parts.append(Table("step-bounds", "Critical path of the steps", what, found["step_bounds"], columns))
    if found["best_changes"].height:
        what = "The changes that save most together, each with those above it, predicted by replays."
        columns = ("title", "saving_ns", "together_ns", "together_share")
        parts.append(Table("best-changes", "Changes that save most", what, found["best_changes"], columns))
    return parts


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the parts of the critical path of the mean step, and the best changes."""
    bounds, best = analysis.step_bounds(trace), analysis.best_changes(trace)
    if bounds.is_empty():
        return []
    steps = analysis.step_times(trace).height
    total_ns = int(bounds["path_ns"].sum())
    rows = bounds.select(name="bound_by", path_ns=pl.col("path_ns") / steps).to_dicts()
    fields = [Field("on the path", ns("path_ns")), Field("share", share("path_ns", total_ns / steps))]
    which = f"the mean of {steps} steps" if steps > 1 else "the step"
    title = f"Critical path of {which}: {format_ns(total_ns / steps)}"
    parts: list[RenderableType] = [heading(title), named_table(rows, "bound by", fields, shape)]
    if best.is_empty():
        return parts
    fields = [
        Field("alone", lambda row: format_percent(row["saving_ns"] / total_ns)),
        Field("with those above", lambda row: format_percent(row["together_share"])),
        Field("step then", lambda row: format_ns((total_ns - row["together_ns"]) / steps)),
    ]
    named = best.rename({"title": "name"}).to_dicts()
    return [
        *parts,
        heading("Changes that save most"),
        named_table(named, "without the cause of", fields, shape),
    ]
