"""Serving steps: tokens per second, time per token, and both by batch size."""

import polars as pl
from rich.console import RenderableType

from kernelscope import analysis
from kernelscope.report.parts import Figure, Note, Page, Part
from kernelscope.report.parts.tables import Table
from kernelscope.report.text.cells import Field, Shape, count, heading, named_table, note, ns
from kernelscope.trace import Trace
from kernelscope.units import format_count

ORDER = 106
TEXT_ORDER = 12
TABLES = ("steps",)
PAGE = Page("serving", "Serving", "Token rate of prefill and decode, by batch size.")

_ABSENT = "No step is marked by a serving engine; docs/serving.md describes how engines mark them."
_UNKNOWN = "unknown"
# Colours of the style sheet; a trace of one engine has no other phases.
_COLORS = {"prefill": "--c0", "decode": "--c1", "mixed": "--c2", _UNKNOWN: "--rest"}


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    return {
        "serving": analysis.serving_throughput(trace),
        "serving_by_batch": analysis.serving_throughput(trace, by=("phase", "requests")),
    }


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the throughput of each phase and of the batch sizes.

    It is empty for a trace without serving steps.
    """
    found = frames(trace)
    if found["serving"].is_empty():
        return []
    fields = [
        Field("steps", count("steps")),
        Field("tokens", count("tokens_sum")),
        Field("tokens/s", _per_second),
        Field("per token", ns("ns_per_token")),
        Field("step p50", ns("step_p50_ns")),
        Field("step p90", ns("step_p90_ns")),
    ]
    rows = _named(found["serving"], pl.col("phase")).to_dicts()
    parts: list[RenderableType] = [heading("Serving"), named_table(rows, "phase", fields, shape)]
    sizes = found["serving_by_batch"]
    if sizes["requests"].n_unique() > 1:
        by_size = pl.format("{} {}", pl.col("phase").fill_null(_UNKNOWN), "requests")
        shown = _named(sizes.drop_nulls("requests").sort("phase", "requests"), by_size)
        parts += [
            heading("Serving by batch size"),
            named_table(shown.head(shape.top).to_dicts(), "requests", fields, shape),
        ]
        if shown.height > shape.top:
            parts.append(note(f"The {shape.top} smallest of {shown.height} batch sizes and phases.", shape))
    return parts


def page(trace: Trace) -> list[Part]:
    """Returns tables of the phases and batch sizes, and the curve over them."""
    found = frames(trace)
    if found["serving"].is_empty():
        return [Note(_ABSENT, missing=True)]
    what = "Complete steps whose annotation contains phase or batch size, by wall time."
    parts: list[Part] = [Table("serving", "Phases", what, found["serving"])]
    sizes = found["serving_by_batch"].drop_nulls("requests")
    if sizes["requests"].n_unique() > 1:
        parts.append(_curve(sizes))
    what = "The same for each number of requests in a step. The median decode step is, with one token"
    what += " per request and step, the time between the tokens of a request."
    return [*parts, Table("serving-batches", "Batch sizes", what, sizes)]


def _named(table: pl.DataFrame, name: pl.Expr) -> pl.DataFrame:
    return table.with_columns(name=name.fill_null(_UNKNOWN))


def _per_second(row: dict[str, float | None]) -> str:
    rate = row["tokens_per_s"]
    return "" if rate is None else format_count(round(rate))


def _curve(sizes: pl.DataFrame) -> Figure:
    known = sizes.drop_nulls("tokens_per_s").with_columns(pl.col("phase").fill_null(_UNKNOWN))
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": phase,
            "x": rows["requests"].to_list(),
            "y": rows["tokens_per_s"].to_list(),
            "hovertemplate": "%{x} requests: %{y:,.0f} tokens/s<extra></extra>",
            "marker": {"color": color},
            "line": {"color": color},
        }
        for phase, color in _COLORS.items()
        if (rows := known.filter(phase=phase).sort("requests")).height
    ]
    layout = {
        "xaxis": {"title": {"text": "requests in a step"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": "tokens/s"}, "rangemode": "tozero"},
    }
    what = (
        "Tokens per second by the number of requests in a step. Where the rate stops growing, larger "
        "batches only"
    )
    return Figure("serving-curve", "Batch sizes", f"{what} make each request wait.", traces, layout)
