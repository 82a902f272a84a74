"""The text of torch.profiler's table."""

import math
from dataclasses import dataclass
from typing import Any

import polars as pl

from kernelscope.errors import InvalidArgumentError

_WIDTH = 12
_GAP = "  "
_FLOPS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")
_UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3}
_SORTABLE = {
    "count": "count",
    "flops": "flops",
    "key": "name",
    "cpu_time": "_cpu_mean",
    "device_time": "_device_mean",
    "cpu_time_total": "cpu_total_ns",
    "self_cpu_time_total": "cpu_self_ns",
    "device_time_total": "device_total_ns",
    "self_device_time_total": "device_self_ns",
    "cpu_memory_usage": "cpu_memory_bytes",
    "self_cpu_memory_usage": "cpu_self_memory_bytes",
    "device_memory_usage": "device_memory_bytes",
    "self_device_memory_usage": "device_self_memory_bytes",
}

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What torch's ``table()`` takes."""

    sort_by: str | None
    row_limit: int
    source_width: int | None
    name_width: int | None
    shapes_width: int | None
    header: str | None
    time_unit: str | None
    device_name: str


@dataclass(frozen=True, slots=True)
class _Shown:
    """Which of the optional columns a table has, and what its shares are of."""

    device: bool
    memory: bool
    device_memory: bool
    shapes_width: int | None
    source_width: int | None
    flops_scale: float | None
    cpu_ns: int
    device_ns: int


def render(averages: pl.DataFrame, options: TableOptions) -> str:
    """The table of the frame of :func:`kernelscope.compat.torch_profiler.key_averages`; empty for no rows."""
    if options.time_unit not in (None, *_UNITS):
        raise InvalidArgumentError(f"time_unit must be s, ms or us, not {options.time_unit!r}")
    rows = _printable(_sorted(averages, options.sort_by)).to_dicts()
    if not rows:
        return ""
    least = min((row["flops"] for row in rows if (row["flops"] or 0) > 0), default=None)
    magnitude = None if least is None else min(int(math.log10(least) / 3), len(_FLOPS) - 1)
    shown = _Shown(
        device=any(row["device_self_ns"] > 0 for row in rows),
        memory=rows[0]["cpu_memory_bytes"] is not None,
        device_memory=any((row["device_self_memory_bytes"] or 0) > 0 for row in rows),
        shapes_width=_longest(rows, "input_shapes", options.shapes_width),
        source_width=_longest(rows, "stack", options.source_width),
        flops_scale=None if magnitude is None else pow(10, magnitude * -3.0),
        cpu_ns=sum(row["cpu_self_ns"] for row in rows),
        device_ns=sum(
            row["device_self_ns"] for row in rows if row["device"] == "gpu" and not row["is_annotation"]
        ),
    )
    titles, widths = _titles(rows, shown, options, None if magnitude is None else _FLOPS[magnitude])
    return _lines(rows, titles, widths, shown, options)


def _sorted(averages: pl.DataFrame, sort_by: str | None) -> pl.DataFrame:
    if sort_by is None:
        return averages
    known = sort_by
    for device in ("cuda", "xpu", "privateuse1"):
        known = known.replace(device, "device")
    if known not in _SORTABLE:
        raise InvalidArgumentError(f"cannot sort by {sort_by!r}; known are {', '.join(_SORTABLE)}")
    means = averages.with_columns(
        _cpu_mean=pl.col("cpu_total_ns") / pl.col("count"),
        _device_mean=pl.col("device_total_ns") / pl.col("count"),
    )
    column = _SORTABLE[known]
    # What was not recorded is 0 to torch, and so sorts among the values.
    key = pl.col(column) if column == "name" else pl.col(column).fill_null(0)
    return means.sort(key, descending=True, maintain_order=True)


def _printable(averages: pl.DataFrame) -> pl.DataFrame:
    """Texts with a blank for each character that a terminal would act upon."""
    control = r"[\p{Cc}\p{Cf}\u2028\u2029]"
    clean = pl.col(pl.String).str.replace_all(control, " ")
    frame = averages.with_columns(clean)
    if "stack" not in averages.columns:
        return frame
    return frame.with_columns(pl.col("stack").list.eval(pl.element().str.replace_all(control, " ")))


def _titles(
    rows: list[Row], shown: _Shown, options: TableOptions, flops: str | None
) -> tuple[list[str], list[tuple[int, str]]]:
    """Titles of the columns, and their widths and alignments."""
    name = _limited(max(len(row["name"] or "") for row in rows) + 4, options.name_width)
    device = options.device_name
    titles = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
    if shown.device:
        titles += [f"Self {device}", f"Self {device} %", f"{device} total", f"{device} time avg"]
    if shown.memory:
        titles += ["CPU Mem", "Self CPU Mem"]
        if shown.device_memory:
            titles += [f"{device} Mem", f"Self {device} Mem"]
    titles.append("# of Calls")
    widths = [(name, ">"), *((_WIDTH, ">") for _ in titles[1:])]
    if shown.shapes_width is not None:
        titles.append("Input Shapes")
        widths.append((shown.shapes_width, ">"))
    if shown.source_width is not None:
        titles.append("Source Location")
        widths.append((shown.source_width, "<"))
    if flops is not None:
        titles.append(f"Total {flops}")
        widths.append((_WIDTH, ">"))
    return titles, widths


def _longest(rows: list[Row], column: str, limit: int | None) -> int | None:
    """The width of a column of texts or lists of texts; null if no row has any."""
    values = [row[column] for row in rows if row.get(column)]
    texts = [text for value in values for text in ([value] if isinstance(value, str) else value)]
    return _limited(max(map(len, texts)) + 4, limit) if texts else None


def _limited(width: int, limit: int | None) -> int:
    return width if limit is None else min(width, limit)


def _lines(
    rows: list[Row], titles: list[str], widths: list[tuple[int, str]], shown: _Shown, options: TableOptions
) -> str:
    def line(cells: list[str]) -> str:
        padded = zip(cells, widths, strict=True)
        return "".join(f"{cell:{side}{width}}{_GAP}" for cell, (width, side) in padded)

    rule = "".join("-" * width + _GAP for width, _ in widths)
    lines: list[str] = []
    if options.header is not None:
        lines += ["=" * (len(rule) - len(_GAP)), options.header]
    lines += [rule, line(titles), rule]
    for row in rows if options.row_limit < 0 else rows[: options.row_limit]:
        lines.append(line(_cells(row, shown, options)))
        if shown.source_width is not None:
            # torch writes the other frames below, and an empty line behind them, in the last column.
            blank = [""] * (len(widths) - 1)
            lines += [line([*blank, _end(frame, shown.source_width)]) for frame in row["stack"][1:]]
            lines.append(line([*blank, ""]))
    lines += [rule, f"Self CPU time total: {_time(shown.cpu_ns, options.time_unit)}"]
    if shown.device:
        lines.append(f"Self {options.device_name} time total: {_time(shown.device_ns, options.time_unit)}")
    return "".join(f"{text}\n" for text in lines)


def _cells(row: Row, shown: _Shown, options: TableOptions) -> list[str]:
    unit, name = options.time_unit, row["name"] or ""
    if options.name_width is not None and len(name) >= options.name_width - 3:
        name = name[: options.name_width - 3] + "..."
    cells = [
        name,
        _share(row["cpu_self_ns"], shown.cpu_ns),
        _time(row["cpu_self_ns"], unit),
        _share(row["cpu_total_ns"], shown.cpu_ns),
        _time(row["cpu_total_ns"], unit),
        _time(row["cpu_total_ns"] / row["count"], unit),
    ]
    if shown.device:
        cells += [
            _time(row["device_self_ns"], unit),
            _share(row["device_self_ns"], shown.device_ns),
            _time(row["device_total_ns"], unit),
            _time(row["device_total_ns"] / row["count"], unit),
        ]
    if shown.memory:
        cells += [_memory(row["cpu_memory_bytes"]), _memory(row["cpu_self_memory_bytes"])]
        if shown.device_memory:
            cells += [_memory(row["device_memory_bytes"]), _memory(row["device_self_memory_bytes"])]
    cells.append(str(row["count"]))
    if shown.shapes_width is not None:
        cells.append((row["input_shapes"] or "[]")[: shown.shapes_width])
    # torch fills in FLOPs before the source, whose title stands first; its tables are followed in that.
    if shown.flops_scale is not None:
        flops = row["flops"] or 0
        cells.append(f"{flops * shown.flops_scale:8.3f}" if flops > 0 else "--")
    if shown.source_width is not None:
        cells.append(_end(row["stack"][0], shown.source_width) if row["stack"] else "")
    return cells


def _end(path: str, width: int) -> str:
    """``path`` without its beginning, if it is too long."""
    if len(path) <= width:
        return path
    cut = path[len(path) - width :]
    return "..." + cut[3:] if len(cut) > 3 else cut


def _time(ns: float, unit: str | None) -> str:
    if unit is None:
        unit = "s" if ns >= _UNITS["s"] else "ms" if ns >= _UNITS["ms"] else "us"
    return f"{ns / _UNITS[unit]:.3f}{unit}"


def _share(part: int, whole: int) -> str:
    return "NaN" if whole == 0 else f"{part * 100.0 / whole:.2f}%"


def _memory(size: int) -> str:
    for unit, factor in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(size) >= factor:
            return f"{size / factor:.2f} {unit}"
    return f"{size} B"
