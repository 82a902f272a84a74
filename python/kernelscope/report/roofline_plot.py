"""The roofline as a page of its own: a log-log plot that a browser shows without asking any server."""

import html
import json
import math
from importlib import resources
from typing import TYPE_CHECKING, Any

import polars as pl

from kernelscope.analysis.costs.peaks import DevicePeaks
from kernelscope.errors import InvalidArgumentError
from kernelscope.report.document import describe
from kernelscope.report.names import safe, short
from kernelscope.report.roofline import RooflineAnswers
from kernelscope.report.roofline_text import amount
from kernelscope.units import format_ns

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_COLORS = (
    "#3366cc",
    "#dc7912",
    "#109618",
    "#990099",
    "#0099c6",
    "#dd4477",
    "#66aa00",
    "#b82e2e",
    "#5574a6",
    "#8b5e3c",
)
_GREY = "#667"
# Diameters of markers, pixels: of the smallest share of the time, and of all of it.
_SMALLEST, _LARGEST = 7, 60
_NAME_WIDTH = 80
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
html, body {{ margin: 0; height: 100%; font: 14px/1.4 system-ui, sans-serif; color: #223; background: #fff; }}
body {{ display: flex; flex-direction: column; }}
header {{ padding: 12px 20px 0; }}
h1 {{ font-size: 18px; margin: 0; overflow-wrap: anywhere; }}
p {{ margin: 4px 0; color: #556; }}
#plot {{ flex: 1; min-height: 420px; }}
</style>
<script>{library}</script>
</head>
<body>
<header><h1>{title}</h1>{notes}</header>
<div id="plot"></div>
<script>
const figure = {figure};
Plotly.newPlot("plot", figure.data, figure.layout, {{responsive: true, displaylogo: false}});
</script>
</body>
</html>
"""


def to_html(trace: "Trace", answers: RooflineAnswers) -> str:
    """The page: a marker per row of the table, as large as its time, under the roofs of the GPU.

    Raises: InvalidArgumentError: Plotly, which draws it, is not installed.
    """
    title = f"Roofline of {describe(trace)['path']}"
    return _PAGE.format(
        title=html.escape(safe(title)),
        library=_library(),
        notes="".join(f"<p>{html.escape(text)}</p>" for text in notes(answers)),
        figure=_script(figure(answers)),
    )


def figure(answers: RooflineAnswers) -> dict[str, Any]:
    """The plot: ``data`` and ``layout`` as Plotly takes them. Text of the trace in it is escaped."""
    shown = _shown(answers)
    return {"data": [*_roofs(answers, shown), *_markers(answers, shown)], "layout": _layout()}


def _shown(answers: RooflineAnswers) -> pl.DataFrame:
    """The rows that have a place in the plot."""
    return answers.table.filter((pl.col("flops_per_s") > 0) & (pl.col("intensity") > 0))


def _library() -> str:
    try:
        return resources.files("plotly.package_data").joinpath("plotly.min.js").read_text(encoding="utf-8")
    except (ModuleNotFoundError, FileNotFoundError):
        raise InvalidArgumentError(
            "the plot needs Plotly: install it with pip install 'kernelscope[plot]'"
        ) from None


def _script(value: object) -> str:
    """JSON that cannot end the script that it stands in."""
    return json.dumps(value, allow_nan=False).replace("</", "<\\/").replace("<!--", "<\\!--")


def notes(answers: RooflineAnswers) -> list[str]:
    """What is to be said beside the plot: which roofs and which share of the time it lacks."""
    shown = _shown(answers)
    unknown = dict.fromkeys(entry.note for entry in answers.devices if entry.gpu is None)
    found = [f"{note} Roofs are not shown." for note in unknown]
    rows = answers.coverage.filter(pl.col("status").is_in(["exact", "estimate"]))
    known = rows["linked_pct"].sum() if rows["linked_pct"].null_count() == 0 else None
    if known is not None:
        found.append(f"Costs are known for {known:.1f} % of the GPU time that has an operator.")
    total = int(answers.table["device_ns"].sum())
    left = total - int(shown["device_ns"].sum())
    if total:
        by = " and ".join(answers.by) or "run"
        found.append(
            f"One marker per {by}, as large as its GPU time. Without FLOPs, and so not shown:"
            f" {answers.table.height - shown.height} of {answers.table.height},"
            f" {100 * left / total:.1f} % of the time."
        )
    return found


def _markers(answers: RooflineAnswers, shown: pl.DataFrame) -> list[dict[str, Any]]:
    """A set of markers for each bound; the largest are drawn first, so that they hide none."""
    total = int(answers.table["device_ns"].sum()) or 1
    found: list[dict[str, Any]] = []
    bounds = shown["bound"].fill_null("unknown").unique().sort().to_list()
    for color, bound in zip(_COLORS, bounds, strict=False):
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
        lines.append(f"estimated for {100 * row['estimate_ns'] / row['device_ns']:.0f} % of it")
    if row["flag"]:
        lines.append(f"above a peak: {html.escape(row['flag'])}")
    return "<br>".join(lines)


def _named(value: object) -> str:
    return html.escape(short(None if value is None else str(value), _NAME_WIDTH))


def _roofs(answers: RooflineAnswers, shown: pl.DataFrame) -> list[dict[str, Any]]:
    """The memory's slope and the flat roofs of the types that occur, for each kind of GPU."""
    types = [name for name in shown["limit_type"].drop_nulls().unique().sort().to_list() if name]
    kinds: dict[tuple[Any, ...], DevicePeaks] = {}
    for entry in answers.devices:
        kinds.setdefault((entry.gpu.key if entry.gpu else None, *sorted(entry.measured.items())), entry)
    intensities = [value for value in shown["intensity"].to_list() if value > 0]
    if not intensities:
        return []
    found: list[dict[str, Any]] = []
    for entry in kinds.values():
        rates = {name: rate for name in types if (rate := entry.product(name, tensor_cores=True))}
        if not entry.bandwidth or not rates:
            continue
        ends = (min(intensities) / 2, 2 * max(*intensities, max(rates.values()) / entry.bandwidth))
        label = entry.gpu.key if entry.gpu else "measured"
        found += _lines(label, entry.bandwidth, rates, ends)
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
        "textfont": {"color": _GREY, "size": 12},
        "line": {"color": _GREY, "width": 1.5},
        "hoverinfo": "skip",
        "showlegend": False,
        "cliponaxis": False,
    }


# Decades that a figure can have, from one FLOP/s to beyond any GPU.
_DECADES = range(19)


def _layout() -> dict[str, Any]:
    axis = {"type": "log", "gridcolor": "#e6e8ef", "zeroline": False}
    names = {"tickvals": [10**n for n in _DECADES], "ticktext": [amount(10**n).strip() for n in _DECADES]}
    return {
        "xaxis": {**axis, "dtick": 1, "title": {"text": "arithmetic intensity, FLOP per byte"}},
        "yaxis": {**axis, **names, "title": {"text": "achieved, FLOP/s"}},
        "plot_bgcolor": "#fff",
        "margin": {"l": 80, "r": 30, "t": 20, "b": 60},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "itemsizing": "constant"},
        "hoverlabel": {"align": "left", "bgcolor": "#fff", "bordercolor": "#99a", "font": {"color": "#223"}},
        "hovermode": "closest",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#223"},
    }
