"""The roofline as a log-log plot. Text of the trace in it is escaped."""

import math
from typing import Any, NamedTuple

import polars as pl

from kernelscope.analysis.costs.achieved import known_pct
from kernelscope.analysis.costs.peaks import DevicePeaks
from kernelscope.escaping import for_html
from kernelscope.report.names import short
from kernelscope.report.parts import Figure
from kernelscope.report.parts.charts import PALETTE
from kernelscope.report.roofline.answers import RooflineAnswers
from kernelscope.report.roofline.text import amount
from kernelscope.units import format_ns

# Diameters of markers, pixels: of the smallest share of the time, and of all of it.
_SMALLEST, _LARGEST = 7, 60
_NAME_WIDTH = 80
# Decades that a figure can have, from one FLOP/s to beyond any GPU.
_DECADES = range(19)


def roofline_figures(answers: RooflineAnswers) -> list[Figure]:
    """Returns the plot under the GPU's roofs, or nothing.

    Each row of the table is a marker with its time as area.
    """
    shown = placed(answers)
    traces = [*_roofs(answers, shown), *_markers(answers, shown)]
    what = (
        f"Each marker is one {_kind(answers)}; its area is its GPU time. To the right of the ridge "
        "computation is the limit, to the left memory. The lines are the limits of the GPU."
    )
    axis = {"type": "log", "zeroline": False}
    names = {"tickvals": [10**n for n in _DECADES], "ticktext": [amount(10**n).strip() for n in _DECADES]}
    layout = {
        "xaxis": {**axis, "dtick": 1, "title": {"text": "arithmetic intensity, FLOP per byte"}},
        "yaxis": {**axis, **names, "title": {"text": "achieved, FLOP/s"}},
    }
    return [Figure("roofline", "Roofline", what, traces, layout, height=520)] if traces else []


def _kind(answers: RooflineAnswers) -> str:
    """What a row of the table is."""
    if answers.by == ("name",):
        return "operator"
    return " and ".join(answers.by) or "run"


def placed(answers: RooflineAnswers) -> pl.DataFrame:
    """Returns the rows that can be plotted: those with known FLOPs and bytes."""
    return answers.table.filter((pl.col("flops_per_s") > 0) & (pl.col("intensity") > 0))


def notes(answers: RooflineAnswers) -> list[str]:
    """Returns notes for the plot: its roofs, and the share of time that it lacks."""
    shown = placed(answers)
    unknown = dict.fromkeys(entry.note for entry in answers.devices if entry.gpu is None)
    found = [f"{note} Roofs are not shown." for note in unknown]
    known = known_pct(answers.coverage)
    if known is not None:
        found.append(f"FLOPs are known for {known:.1f} % of the GPU time.")
    total = int(answers.coverage["device_ns"].sum())
    left = total - int(shown["device_ns"].sum())
    if total:
        found.append(
            "Not shown because FLOPs or bytes are 0 or unknown: "
            f"{answers.table.height - shown.height} of {answers.table.height} rows, "
            f"{100 * left / total:.1f} % of the GPU time."
        )
    return found


def _markers(answers: RooflineAnswers, shown: pl.DataFrame) -> list[dict[str, Any]]:
    """A set of markers for each bound; the largest are drawn first, so that they hide none."""
    total = int(answers.coverage["device_ns"].sum()) or 1
    found: list[dict[str, Any]] = []
    bounds = shown["bound"].fill_null("unknown").unique().sort().to_list()
    for color, bound in zip(PALETTE, bounds, strict=False):
        rows = shown.with_columns(pl.col("bound").fill_null("unknown")).filter(bound=bound)
        rows = rows.sort("device_ns", descending=True).to_dicts()
        sizes = [max(_SMALLEST, _LARGEST * math.sqrt(row["device_ns"] / total)) for row in rows]
        found.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"bound by {bound}" if bound != "unknown" else "operators",
                "x": [row["intensity"] for row in rows],
                "y": [row["flops_per_s"] for row in rows],
                "text": [_hover(row, answers.by, total) for row in rows],
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {
                    "size": sizes,
                    "color": color,
                    "opacity": 0.65,
                    "line": {"width": 1, "color": "#fff"},
                },
            }
        )
    return found


def _hover(row: dict[str, Any], by: tuple[str, ...], total: int) -> str:
    names = [f"{column}: {_named(row[column])}" if len(by) > 1 else _named(row[column]) for column in by]
    lines = [f"<b>{name}</b>" for name in names] or ["<b>the whole run</b>"]
    calls = f"{row['calls']:,} call{'s' * (row['calls'] != 1)}"
    lines.append(
        f"{format_ns(row['device_ns'])}, {100 * row['device_ns'] / total:.1f} % of the time, {calls}"
    )
    lines.append(f"{amount(row['flops_per_s'])}FLOP/s, {amount(row['bytes_per_s'])}B/s")
    lines.append(f"{row['intensity']:,.3g} FLOP/byte")
    if row["attained_pct"] is not None:
        lines.append(
            f"{row['attained_pct']:.1f} % of attainable ({row['limit_type']}, bound by {row['bound']})"
        )
        lines.append(f"{format_ns(row['saveable_ns'])} could be saved")
    if row["estimate_ns"]:
        lines.append(f"{100 * row['estimate_ns'] / row['device_ns']:.0f} % of it is estimated")
    if row["flag"]:
        lines.append(f"above a peak: {for_html(row['flag'])}")
    return "<br>".join(lines)


def _named(value: object) -> str:
    return for_html(short(None if value is None else str(value), _NAME_WIDTH))


class Roof(NamedTuple):
    """Peaks of one kind of GPU: bytes/s of its memory, and FLOP/s by type."""

    label: str
    bandwidth: float
    rates: dict[str, float]


def roofs(answers: RooflineAnswers, shown: pl.DataFrame) -> list[Roof]:
    """Returns the roofs of the types that occur in ``shown``, for each known kind of GPU."""
    types = [name for name in shown["limit_type"].drop_nulls().unique().sort().to_list() if name]
    kinds: dict[tuple[Any, ...], DevicePeaks] = {}
    for entry in answers.devices:
        kinds.setdefault((entry.gpu.key if entry.gpu else None, *sorted(entry.measured.items())), entry)
    found: list[Roof] = []
    for entry in kinds.values():
        rates = {name: rate for name in types if (rate := entry.product(name, tensor_cores=True))}
        if entry.bandwidth and rates:
            found.append(Roof(entry.gpu.key if entry.gpu else "measured", entry.bandwidth, rates))
    return found


def _roofs(answers: RooflineAnswers, shown: pl.DataFrame) -> list[dict[str, Any]]:
    """The memory's slope and the flat roofs of the types, for each kind of GPU."""
    intensities = [value for value in shown["intensity"].to_list() if value > 0]
    found: list[dict[str, Any]] = []
    for label, bandwidth, rates in roofs(answers, shown) if intensities else ():
        ends = (min(intensities) / 2, 2 * max(*intensities, max(rates.values()) / bandwidth))
        found += _lines(label, bandwidth, rates, ends)
    return found


def _lines(
    label: str, bandwidth: float, rates: dict[str, float], ends: tuple[float, float]
) -> list[dict[str, Any]]:
    ridge = max(rates.values()) / bandwidth
    text = f"{label}: memory, {amount(bandwidth)}B/s"
    points = [(ends[0], ends[0] * bandwidth), (ridge, ridge * bandwidth)]
    found = [_line(points, text, position=0)]
    for name, rate in sorted(rates.items(), key=lambda item: item[1]):
        text = f"{label}: {name}, {amount(rate)}FLOP/s"
        found.append(_line([(rate / bandwidth, rate), (ends[1], rate)], text, position=1))
    return found


def _line(points: list[tuple[float, float]], text: str, *, position: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+text",
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
        "text": [text if index == position else "" for index in range(len(points))],
        "textposition": "bottom right" if position == 0 else "top left",
        "textfont": {"color": "--faint", "size": 12},
        "line": {"color": "--faint", "width": 1.5},
        "hoverinfo": "skip",
        "showlegend": False,
        "cliponaxis": False,
    }
