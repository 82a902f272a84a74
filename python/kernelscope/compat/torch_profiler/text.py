"""The text of torch.profiler's table."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import polars as pl

from kernelscope.errors import InvalidArgumentError
from kernelscope.escaping import for_terminal

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
    """Arguments of torch's ``table()``."""

    sort_by: str | None
    row_limit: int
    source_width: int | None
    name_width: int | None
    shapes_width: int | None
    header: str | None
    time_unit: str | None
    device_name: str


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: its title, the text of a row's cell, its width and the side to which it is aligned."""

    title: str
    cell: Callable[[Row], str]
    width: int = 12
    side: str = ">"


def render(averages: pl.DataFrame, options: TableOptions) -> str:
    """Returns the table of a frame of :func:`kernelscope.compat.torch_profiler.key_averages`.

    It is empty if the frame has no rows.
    """
    if options.time_unit not in (None, *_UNITS):
        raise InvalidArgumentError(f"time_unit must be s, ms or us, not {options.time_unit!r}")
    table = _sorted(averages, options.sort_by)
    rows = [{name: _printable(cell) for name, cell in row.items()} for row in table.iter_rows(named=True)]
    if not rows:
        return ""
    cpu_ns = sum(row["cpu_self_ns"] for row in rows)
    device_ns = sum(
        row["device_self_ns"] for row in rows if row["device"] == "gpu" and not row["is_annotation"]
    )
    columns = _columns(rows, options, cpu_ns, device_ns)
    lines = _lines(rows, columns, options)
    lines.append(f"Self CPU time total: {_time(cpu_ns, options.time_unit)}")
    if any(row["device_self_ns"] > 0 for row in rows):
        lines.append(f"Self {options.device_name} time total: {_time(device_ns, options.time_unit)}")
    return "".join(f"{text}\n" for text in lines)


def _sorted(averages: pl.DataFrame, sort_by: str | None) -> pl.DataFrame:
    if sort_by is None:
        return averages
    known = sort_by
    for device in ("cuda", "xpu", "privateuse1"):
        known = known.replace(device, "device")
    if known not in _SORTABLE:
        raise InvalidArgumentError(f"cannot sort by {sort_by!r}; possible are {', '.join(_SORTABLE)}")
    means = averages.with_columns(
        _cpu_mean=pl.col("cpu_total_ns") / pl.col("count"),
        _device_mean=pl.col("device_total_ns") / pl.col("count"),
    )
    column = _SORTABLE[known]
    # What was not recorded is 0 to torch, and so sorts among the values.
    key = pl.col(column) if column == "name" else pl.col(column).fill_null(0)
    return means.sort(key, descending=True, maintain_order=True)


def _printable(value: Any) -> Any:
    """A cell that no terminal acts upon; a stack is a list of them."""
    if isinstance(value, list):
        return [_printable(frame) for frame in cast("list[object]", value)]
    return for_terminal(value) if isinstance(value, str) else value


def _columns(rows: list[Row], options: TableOptions, cpu_ns: int, device_ns: int) -> list[_Column]:
    unit, device, limit = options.time_unit, options.device_name, options.name_width
    width = _limited(max(len(row["name"] or "") for row in rows) + 4, limit)
    columns = [
        _Column("Name", lambda row: _clipped(row["name"] or "", limit), width),
        _Column("Self CPU %", lambda row: _share(row["cpu_self_ns"], cpu_ns)),
        _Column("Self CPU", lambda row: _time(row["cpu_self_ns"], unit)),
        _Column("CPU total %", lambda row: _share(row["cpu_total_ns"], cpu_ns)),
        _Column("CPU total", lambda row: _time(row["cpu_total_ns"], unit)),
        _Column("CPU time avg", lambda row: _time(row["cpu_total_ns"] / row["count"], unit)),
    ]
    if any(row["device_self_ns"] > 0 for row in rows):
        columns += [
            _Column(f"Self {device}", lambda row: _time(row["device_self_ns"], unit)),
            _Column(f"Self {device} %", lambda row: _share(row["device_self_ns"], device_ns)),
            _Column(f"{device} total", lambda row: _time(row["device_total_ns"], unit)),
            _Column(f"{device} time avg", lambda row: _time(row["device_total_ns"] / row["count"], unit)),
        ]
    if rows[0]["cpu_memory_bytes"] is not None:
        columns.append(_Column("CPU Mem", lambda row: _memory(row["cpu_memory_bytes"])))
        columns.append(_Column("Self CPU Mem", lambda row: _memory(row["cpu_self_memory_bytes"])))
        if any((row["device_self_memory_bytes"] or 0) > 0 for row in rows):
            columns.append(_Column(f"{device} Mem", lambda row: _memory(row["device_memory_bytes"])))
            columns.append(
                _Column(f"Self {device} Mem", lambda row: _memory(row["device_self_memory_bytes"]))
            )
    columns.append(_Column("# of Calls", lambda row: str(row["count"])))
    if (shapes := _longest(rows, "input_shapes", options.shapes_width)) is not None:
        columns.append(_Column("Input Shapes", lambda row: (row["input_shapes"] or "[]")[:shapes], shapes))
    counts = [row["flops"] for row in rows if (row["flops"] or 0) > 0]
    magnitude = min(int(math.log10(min(counts, default=1)) / 3), len(_FLOPS) - 1)
    scale = pow(10, magnitude * -3.0)
    flops = _Column(
        f"Total {_FLOPS[magnitude]}",
        lambda row: f"{row['flops'] * scale:8.3f}" if (row["flops"] or 0) > 0 else "--",
    )
    source_width = _longest(rows, "stack", options.source_width)
    if source_width is not None:

        def source(row: Row) -> str:
            return _end(row["stack"][0], source_width) if row["stack"] else ""

        # torch fills in FLOPs before the source, whose title stands first; its tables are followed in that.
        first, last = (flops.cell, source) if counts else (source, flops.cell)
        columns.append(_Column("Source Location", first, source_width, "<"))
        flops = replace(flops, cell=last)
    return [*columns, flops] if counts else columns


def _longest(rows: list[Row], column: str, limit: int | None) -> int | None:
    """The width of a column of texts or lists of texts; null if no row has any."""
    values = [row[column] for row in rows if row.get(column)]
    texts = [text for value in values for text in ([value] if isinstance(value, str) else value)]
    return _limited(max(map(len, texts)) + 4, limit) if texts else None


def _limited(width: int, limit: int | None) -> int:
    return width if limit is None else min(width, limit)


def _lines(rows: list[Row], columns: list[_Column], options: TableOptions) -> list[str]:
    """The table from its first rule to its last."""

    def line(cells: list[str]) -> str:
        padded = zip(cells, columns, strict=True)
        return "".join(f"{cell:{column.side}{column.width}}{_GAP}" for cell, column in padded)

    source_width = next((column.width for column in columns if column.side == "<"), None)
    rule = "".join("-" * column.width + _GAP for column in columns)
    lines = [] if options.header is None else ["=" * (len(rule) - len(_GAP)), options.header]
    lines += [rule, line([column.title for column in columns]), rule]
    for row in rows if options.row_limit < 0 else rows[: options.row_limit]:
        lines.append(line([column.cell(row) for column in columns]))
        if source_width is not None:
            # torch writes the other frames below, and an empty line behind them, in the last column.
            blank = [""] * (len(columns) - 1)
            lines += [line([*blank, _end(frame, source_width)]) for frame in row["stack"][1:]]
            lines.append(line([*blank, ""]))
    return [*lines, rule]


def _clipped(name: str, width: int | None) -> str:
    is_long = width is not None and len(name) >= width - 3
    return name[: width - 3] + "..." if width is not None and is_long else name


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
