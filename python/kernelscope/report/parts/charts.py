"""Figures shared by several views."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast
from zlib import crc32

import polars as pl

from kernelscope.report.parts import Figure
from kernelscope.report.parts.cells import label
from kernelscope.units import format_ns

_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "bytes"))
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
# In front of a label: Plotly keeps slices in an object by label, in which "__proto__" is something else.
_NO_KEY = "\u200b"
PALETTE = tuple(f"--c{index}" for index in range(10))
"""Colours of the style sheet that distinguish slices."""


def byte_unit(largest: float) -> tuple[float, str]:
    """Returns the size in bytes of a suitable unit for an axis, and its name."""
    for size, name in _BYTES:
        if largest >= size:
            return size, name
    return _BYTES[-1]


def time_unit(largest_ns: float) -> tuple[float, str]:
    """Returns the length in ns of a suitable unit for an axis, and its name."""
    for size, name in _UNITS:
        if largest_ns >= size:
            return size, name
    return _UNITS[-1]


def donut(id: str, title: str, what: str, frame: pl.DataFrame, column: str, *, top: int = 8) -> Figure:  # noqa: A002
    """Returns a donut with the shares of the ``top`` rows in the sum of ``column``, and of the rest."""
    rows = frame.filter(pl.col(column) > 0).sort(column, descending=True)
    shown = rows.head(top)
    names = distinct([_NO_KEY + label(name, 34) for name in shown["name"].to_list()])
    values = cast("list[float]", shown[column].to_list())
    rest = rows.height - shown.height
    if rest > 0:
        names.append(f"{rest:,} others")
        values.append(float(rows[column].slice(top).sum()))
    colors = [*PALETTE[: shown.height], "--rest"]
    slices = slice_trace(names, values, colors)
    total = format_ns(sum(values)) if values else "nothing"
    return Figure(
        id, title, what, [slices], donut_layout(total), height=donut_height(len(names)), narrow=True
    )


def donut_layout(middle: str) -> dict[str, Any]:
    """Returns the layout of a donut with a text in its centre and its legend below."""
    return {
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "legend": {
            "orientation": "v",
            "x": 0,
            "xanchor": "left",
            "y": -0.02,
            "yanchor": "top",
            "font": {"size": 11},
        },
        "uniformtext": {"minsize": 10, "mode": "hide"},
        "annotations": [{"text": middle, "showarrow": False, "font": {"size": 14}}],
    }


def donut_height(slices: int) -> int:
    """Returns the height of a donut with one legend line per slice."""
    return 230 + 20 * slices


def distinct(names: list[str]) -> list[str]:
    """Returns ``names`` with numbers added to duplicates.

    Plotly adds up slices and bars with equal labels.
    """
    seen: Counter[str] = Counter()
    found: list[str] = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def slice_trace(names: Sequence[str], values: Sequence[float], colors: Sequence[str]) -> dict[str, Any]:
    """Returns a donut of durations in nanoseconds with escaped labels."""
    return {
        "type": "pie",
        "hole": 0.55,
        "sort": False,
        "direction": "clockwise",
        "labels": list(names),
        "values": list(values),
        "customdata": [format_ns(value) for value in values],
        "textinfo": "percent",
        "textposition": "inside",
        "insidetextorientation": "horizontal",
        "hovertemplate": "%{label}<br>%{customdata}, %{percent}<extra></extra>",
        "marker": {"colors": list(colors[: len(names)]), "line": {"color": "--panel", "width": 1}},
    }


def icicle(names: Sequence[str], parents: Sequence[int], values: Sequence[int]) -> dict[str, Any]:
    """Returns a flame graph of times in nanoseconds.

    Each frame has an escaped name and the number of its caller, or -1.
    """
    total = sum(value for value, parent in zip(values, parents, strict=True) if parent < 0)
    # Frames of one name have one colour, in every stack.
    colors = {name: PALETTE[crc32(name.encode()) % len(PALETTE)] for name in set(names)}
    formatted = {value: format_ns(value) for value in {total, *values}}
    return {
        "type": "icicle",
        "ids": ["all", *(str(index) for index in range(len(names)))],
        "parents": ["", *("all" if parent < 0 else str(parent) for parent in parents)],
        "labels": ["all", *names],
        "values": [total, *values],
        "customdata": [formatted[value] for value in (total, *values)],
        "branchvalues": "total",
        "hovertemplate": "%{label}<br>%{customdata}, %{percentRoot} of all<extra></extra>",
        "tiling": {"orientation": "v", "pad": 1},
        "marker": {
            "line": {"color": "--panel", "width": 0},
            "colors": ["--other", *(colors[name] for name in names)],
        },
        "maxdepth": 24,
    }


ICICLE_LAYOUT: dict[str, Any] = {
    "margin": {"l": 4, "r": 4, "t": 4, "b": 4},
    "uniformtext": {"minsize": 9, "mode": "hide"},
}


def bars(id: str, title: str, what: str, frame: pl.DataFrame, column: str, *, top: int = 15) -> Figure:  # noqa: A002
    """Returns the ``top`` rows of ``frame`` by ``column``, a duration, as bars with names."""
    rows = frame.filter(pl.col(column) > 0).sort(column, descending=True).head(top).reverse()
    values = cast("list[float]", rows[column].to_list())
    size, unit = time_unit(max(values, default=1))
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": [value / size for value in values],
        "y": list(range(len(values))),
        "text": [label(name, 48) for name in rows["name"].to_list()],
        "customdata": [format_ns(value) for value in values],
        "textposition": "none",
        "hovertemplate": "%{text}<br>%{customdata}<extra></extra>",
        "marker": {"color": "--accent"},
    }
    axis = {"tickvals": trace["y"], "ticktext": [label(n, 40) for n in rows["name"].to_list()]}
    layout = {"xaxis": {"title": {"text": unit}, "rangemode": "tozero"}, "yaxis": axis}
    return Figure(id, title, what, [trace], layout, height=90 + 22 * len(values))


def rank_bars(
    name: str, bars: pl.DataFrame, details: Sequence[str], start_ns: int, size: float, **more: Any
) -> dict[str, Any]:
    """Returns times of ranks (``rank``, ``start_ns`` and ``dur_ns``) as bars with one colour or pattern.

    They are drawn from ``start_ns`` on, in units of ``size`` ns. ``more`` are properties of Plotly.
    """
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [f"rank {rank}" for rank in bars["rank"]],
        "base": ((bars["start_ns"] - start_ns) / size).round(4).to_list(),
        "x": (bars["dur_ns"] / size).round(4).to_list(),
        "customdata": list(details),
        "hovertemplate": "%{y}, %{customdata}<extra></extra>",
        **more,
    }


def rank_bars_layout(ranks: Sequence[int] | pl.Series, unit: str, **axis: Any) -> dict[str, Any]:
    """Returns the layout of :func:`rank_bars`, with ``ranks`` from top to bottom."""
    labels = [f"rank {rank}" for rank in ranks]
    order = {"categoryorder": "array", "categoryarray": labels, "autorange": "reversed"}
    return {"barmode": "overlay", "bargap": 0.1, "xaxis": {"title": {"text": unit}}, "yaxis": order | axis}


def longest_step(number: int | None, length_ns: int) -> str:
    """Returns how long the longest step takes, as a sentence."""
    which = "The longest step" if number is None else f"Step {number}, the longest,"
    return f"{which} takes {format_ns(length_ns)}."
