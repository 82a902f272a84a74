"""Steps of serving: tokens a second, time per token, and both over the batch size."""

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
PAGE = Page("serving", "Serving", "How fast tokens come, prefill and decode apart, and over the batch size.")

_ABSENT = "No step is marked as one of a serving engine; docs/serving.md says how engines mark them."
_UNKNOWN = "unknown"
# Colours of the style sheet; a trace of one engine has no other phases.
_COLORS = {"prefill": "--c0", "decode": "--c1", "mixed": "--c2", _UNKNOWN: "--rest"}


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """The frames of the view, by the names of their files."""
    return {
        "serving": analysis.serving_throughput(trace),
        "serving_by_batch": analysis.serving_throughput(trace, by=("phase", "requests")),
    }


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Throughput of each phase, and of the batch sizes; nothing for a trace that is not of serving."""
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
    """Tables of the phases and batch sizes, and the curve over them."""
    found = frames(trace)
    if found["serving"].is_empty():
        return [Note(_ABSENT, missing=True)]
    what = "Whole steps whose annotation tells phase or batch size; the wall time of a step counts."
    parts: list[Part] = [Table("serving", "Phases", what, found["serving"])]
    sizes = found["serving_by_batch"].drop_nulls("requests")
    if sizes["requests"].n_unique() > 1:
        parts.append(_curve(sizes))
    what = (
        "The same for each number of requests in a step. Half of the decoding steps last no longer than the"
    )
    what += (
        " median step: with a token per request and step that is the time between the tokens of a request."
    )
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
        "Tokens a second over the number of requests in a step: where it grows no longer, larger batches only"
    )
    return Figure("serving-curve", "Batch sizes", f"{what} make each request wait.", traces, layout)
