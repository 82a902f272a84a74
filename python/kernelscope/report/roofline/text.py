"""The roofline report as text: tables that fit the terminal."""

from collections.abc import Callable
from typing import Any

import polars as pl
from rich.console import RenderableType
from rich.table import Table

from kernelscope.analysis.costs.achieved import known_pct
from kernelscope.analysis.costs.peaks import DevicePeaks
from kernelscope.report.names import safe
from kernelscope.report.roofline.answers import RooflineAnswers
from kernelscope.report.text import summary
from kernelscope.report.text.cells import Field, Shape, count, heading, named_table, note, ns, plain, share
from kernelscope.trace import Trace
from kernelscope.units import format_count, format_ns

PLAIN_WIDTH = 120
"""Width of a text without a terminal, in characters."""
_MOST_STEPS = 12
# What is printed as 100 %.
_ALL_KNOWN_PCT = 99.95
_STATES = {
    "exact": "known exactly",
    "estimate": "estimated",
    "unknown_dtype": "FLOPs only, the element type was not recorded",
    "missing_shape": "unknown, shapes were not recorded",
    "unknown_op": "unknown, no model counts the operator",
    "unlinked": "without operator",
}


def parts(trace: Trace, answers: RooflineAnswers, shape: Shape) -> list[RenderableType]:
    """Yields the header and every table of the report that has rows."""
    tables = (_peaks, _coverage, _efficiency, _roofs, _counters, _gaps)
    return [summary.header(trace, shape), *(part for table in tables for part in table(answers, shape))]


def _peaks(answers: RooflineAnswers, shape: Shape) -> list[RenderableType]:
    parts: list[RenderableType] = [heading("Limits of the GPUs")]
    if not answers.devices:
        return [*parts, note("The trace has no GPU operations.", shape)]
    lines: dict[str, list[int]] = {}
    for entry in answers.devices:
        lines.setdefault(_peak_line(entry), []).append(entry.device)
    for line, devices in lines.items():
        text = f"GPU {', '.join(map(str, devices))}: {line}"
        parts.append(plain(safe(text), shape))
    return parts


def _peak_line(entry: DevicePeaks) -> str:
    measured = ", ".join(f"{key} {_rate(value)}" for key, value in entry.measured.items())
    stated = f"measured {measured}" if measured else ""
    if entry.gpu is None:
        return f"{entry.label}: {stated}" if stated else f"{entry.note} Only achieved figures are shown."
    gpu = entry.gpu
    rates = [f"{dtype} {_rate(value)}" for dtype, value in {**gpu.vector, **gpu.matrix}.items()]
    shown = [f"{', '.join(rates)} FLOP/s, dense"] if rates else []
    shown += [f"memory {_rate(gpu.bandwidth)}B/s"] if gpu.bandwidth else []
    line = (
        "; ".join((*shown, stated) if stated else shown)
        or "its vendor publishes no peaks; pass them with --peak"
    )
    return f"{entry.label}: {line}"


def _coverage(answers: RooflineAnswers, shape: Shape) -> list[RenderableType]:
    rows = [row for row in answers.coverage.to_dicts() if row["device_ns"]]
    if not rows:
        known = answers.table.select(pl.col("flops").sum()).item() if answers.table.height else 0
        text = f"; its operators need {amount(known)}FLOP" if known else ""
        text = f"The trace has no GPU time{text}."
        return [heading("Costs"), note(text, shape)]
    table = Table.grid(padding=(0, 2))
    for justify in ("left", "right", "right", "right"):
        table.add_column(justify=justify, no_wrap=True)
    for row in rows:
        of_linked = "" if row["linked_pct"] is None else f"{row['linked_pct']:.2f} %"
        table.add_row(
            "  " + _STATES[row["status"]],
            format_ns(row["device_ns"]),
            of_linked,
            f"{row['device_pct']:.2f} %",
        )
    title = f"Costs: FLOPs are known for {known_pct(answers.coverage):.2f} % of the GPU time"
    remark = "Shares of the time with an operator, and of all GPU time."
    return [heading(title), table, note(remark, shape)]


def _efficiency(answers: RooflineAnswers, shape: Shape) -> list[RenderableType]:
    steps = answers.efficiency.filter(pl.col("flops").is_not_null())
    if steps.is_empty() or not answers.devices:
        return []
    rate, dtype = steps["peak_flops_per_s"][0], steps["peak_type"][0]
    title = "FLOP/s of each step"
    if rate is not None:
        gpus = steps["gpus"][0]
        gpus = "1 GPU" if steps["gpus"][0] == 1 else f"{steps['gpus'][0]} GPUs"
        title = f"FLOPs utilisation of each step: against {_rate(rate)}FLOP/s of {dtype} on {gpus}"
    fields = [
        Field("MFU", _percent("mfu_pct", 2)),
        *([Field("HFU", _percent("hfu_pct", 2))] if steps["recompute_flops"].sum() else []),
        Field("FLOP/s", lambda row: _rate(row["flops_per_s"])),
        Field("FLOP", lambda row: amount(row["flops"])),
        Field("wall", ns("total_ns")),
        *([Field("tokens/s", _tokens_per_s)] if steps["tokens"].sum() else []),
        Field("known", _percent("known_pct", 1)),
    ]
    rows = steps.head(_MOST_STEPS).to_dicts()
    parts: list[RenderableType] = [heading(title), named_table(rows, "step", fields, shape)]
    if steps.height > len(rows):
        parts.append(note(f"and {format_count(steps.height - len(rows))} more", shape))
    if (steps["known_pct"] < _ALL_KNOWN_PCT).any():
        text = "Unknown FLOPs count as 0, so the figures are lower bounds."
        parts.append(note(text, shape))
    return parts


def _percent(column: str, digits: int) -> Callable[[dict[str, Any]], str]:
    return lambda row: "-" if row[column] is None else f"{row[column]:.{digits}f} %"


def _tokens_per_s(row: dict[str, Any]) -> str:
    return "-" if row["tokens_per_s"] is None else format_count(round(row["tokens_per_s"]))


def _roofs(answers: RooflineAnswers, shape: Shape) -> list[RenderableType]:
    table = answers.table
    if table.is_empty() or not answers.devices:
        return []
    total = int(answers.coverage["device_ns"].sum())
    saveable = table.select(pl.col("saveable_ns").sum()).item()
    fields = [
        Field("device", ns("device_ns")),
        Field("share", share("device_ns", total)),
        Field("attained", _attained),
        Field("bound", lambda row: row["bound"] or "-"),
        Field("saveable", ns("saveable_ns")),
        Field("FLOP/s", lambda row: _rate(row["flops_per_s"])),
        Field("B/s", lambda row: _rate(row["bytes_per_s"])),
        Field("FLOP/B", lambda row: "-" if row["intensity"] is None else f"{row['intensity']:,.1f}"),
        Field("peak", lambda row: row["limit_type"] or "-"),
        Field("calls", count("calls")),
        Field("without tensor cores", lambda row: format_ns(row["missed_ns"] or None)),
    ]
    by = " / ".join(answers.by) or "run"
    rows = [{**row, "name": _label(row, answers.by)} for row in table.head(shape.top).to_dicts()]
    title = f"Achieved and attainable by {by}"
    if saveable:
        title += f": {format_ns(saveable)} of {format_ns(total)} could be saved"
    parts: list[RenderableType] = [heading(title), named_table(rows, by, fields, shape)]
    if table.height > len(rows):
        parts.append(note(f"and {format_count(table.height - len(rows))} more", shape))
    flags = table.filter(pl.col("flag").is_not_null())
    flags = flags.group_by("flag").agg(pl.len(), pl.col("device_ns").sum())
    for flag, number, time in flags.sort("device_ns", descending=True).iter_rows():
        rows_text = "1 row seems" if number == 1 else f"{format_count(number)} rows seem"
        text = f"* {rows_text} above a peak ({format_ns(time)}): {flag}."
        parts.append(note(text, shape))
    return parts


def _label(row: dict[str, Any], by: tuple[str, ...]) -> str:
    return " / ".join("-" if row[column] is None else str(row[column]) for column in by) or "the whole run"


def _attained(row: dict[str, Any]) -> str:
    if row["attained_pct"] is None:
        return "-"
    return f"{row['attained_pct']:.1f} %" + ("*" if row["flag"] else "")


def _counters(answers: RooflineAnswers, shape: Shape) -> list[RenderableType]:
    """What hardware counters measured, in a trace that has them."""
    table = answers.counters
    if table.is_empty():
        return []
    fields = [
        Field("measured", lambda row: amount(row["measured_flops"])),
        Field("modelled", lambda row: amount(row["modelled_flops"])),
        Field("ratio", lambda row: "-" if row["ratio"] is None else f"{row['ratio']:.4f}"),
        Field("calls", count("calls")),
    ]
    text = (
        "Scalar floating-point instructions without comparisons, and tensor core operations if they "
        "were collected."
    )
    title = "FLOPs measured by hardware counters and FLOPs of the models"
    return [
        heading(title),
        named_table(table.head(shape.top).to_dicts(), "name", fields, shape),
        note(text, shape),
    ]


def _gaps(answers: RooflineAnswers, shape: Shape) -> list[RenderableType]:
    findings = answers.findings
    if findings.is_empty():
        return []
    parts: list[RenderableType] = [heading("Operators with unknown costs, and reasons")]
    for row in findings.head(shape.top).iter_rows(named=True):
        times = f"{format_count(row['count'])} x, {format_ns(row['device_ns'])}"
        message = row["message"].removeprefix(f"{row['name']}: ")
        name = f"{row['name']}: " if row["name"] else ""
        parts.append(plain(safe(f"  {name}{message} ({times})"), shape))
    if findings.height > shape.top:
        parts.append(note(f"and {format_count(findings.height - shape.top)} more", shape))
    return parts


_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def amount(value: float | None) -> str:
    """Returns a number with three digits and a decimal prefix."""
    if value is None:
        return "- "
    for size, prefix in _PREFIXES:
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g} {prefix}" if value / size < 999.5 else f"{value / size:.0f} {prefix}"
    return f"{value:.3g} "


def _rate(value: float | None) -> str:
    return "-" if value is None else amount(value).strip() if value == 0 else amount(value)
