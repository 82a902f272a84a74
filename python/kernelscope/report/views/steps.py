"""Time of the steps by category, as text."""

from collections.abc import Mapping
from typing import Any

import polars as pl
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kernelscope import analysis
from kernelscope.analysis import CATEGORIES
from kernelscope.analysis.steps.breakdown import mean_over_gpus
from kernelscope.report.names import short
from kernelscope.report.text.cells import Shape, heading, note, plain
from kernelscope.trace import Trace
from kernelscope.units import format_ns, format_percent

# Title, the letter that stands for it where there is no colour, and the colour.
_LOOKS = {
    "kernel_ns": ("kernel", "K", "green"),
    "memcpy_ns": ("memory copy", "M", "cyan"),
    "memset_ns": ("memory set", "S", "blue"),
    "communication_ns": ("communication", "N", "magenta"),
    "runtime_ns": ("runtime call", "R", "yellow"),
    "dataloader_ns": ("data loading", "D", "red"),
    "cpu_exec_ns": ("other host work", "C", "white"),
    "other_ns": ("nothing recorded", ".", "bright_black"),
}
_WIDEST_BAR = 80
_MOST_STEPS = 20


ORDER = 10
TABLES = ("steps", "gpu_steps")


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Returns the frames of the view, by the names of their files."""
    every = analysis.step_times(trace, include_partial=True)
    return {
        "steps": every.select("step", "name", "start_ns", "total_ns", "is_partial"),
        "breakdown": analysis.step_breakdown(trace),
    }


def text(trace: Trace, shape: Shape) -> list[RenderableType]:
    """Returns the mean step by category, and a bar for each step."""
    found_steps = frames(trace)
    breakdown = mean_over_gpus(found_steps["breakdown"])
    gpus = analysis.mean_steps(trace)
    cut = found_steps["steps"]["is_partial"].sum()
    if breakdown.is_empty():
        text = "The trace has neither steps nor operators."
        return [heading("Steps"), note(text, shape)]
    marked = breakdown["step"].null_count() < breakdown.height
    mean = breakdown.select(pl.col("total_ns", *CATEGORIES).mean()).row(0, named=True)
    title = f"Mean of {breakdown.height} steps" if breakdown.height > 1 else _only(breakdown, marked=marked)
    found: list[RenderableType] = [
        heading(f"{title}: {format_ns(mean['total_ns'])}"),
        _mean(mean, gpus, shape),
    ]
    if gpus.height > 1:
        text = (
            f"Means over {gpus.height} GPUs, and the GPU with the least kernel time, or the most of "
            "other categories."
        )
        found.append(note(text, shape))
    if breakdown.height > 1:
        found += [heading("Steps"), _steps(breakdown, shape)]
    if breakdown.height > _MOST_STEPS:
        text = f"The {_MOST_STEPS} longest of {breakdown.height} steps, in order of time."
        found.append(note(text, shape))
    if cut:
        text = "1 step is" if cut == 1 else f"{cut} steps are"
        found.append(note(f"{text} left out: the recording ends before their GPU operations.", shape))
    if not marked:
        text = "The trace marks no steps and counts as one; --step-range NAME uses an annotation as steps."
        found.append(note(text, shape))
    return found


def _only(breakdown: pl.DataFrame, *, marked: bool) -> str:
    return f"Step {breakdown['step'][0]}" if marked else "The whole trace"


def _mean(mean: dict[str, Any], gpus: pl.DataFrame, shape: Shape) -> Table:
    table = Table.grid(padding=(0, 2))
    for justify in ("left", "right", "right", "left", "left"):
        table.add_column(justify=justify, no_wrap=True)
    total = mean["total_ns"] or 1
    room = min(shape.width - (50 if gpus.height < 2 else 70), _WIDEST_BAR)
    for column in CATEGORIES:
        name, letter, color = _LOOKS[column]
        if not mean[column]:
            continue
        share = mean[column] / total
        bar = _cells(letter, round(share * room), color, shape)
        label = name if shape.color else f"{letter} {name}"
        worst = _worst(gpus, column, total) if gpus.height > 1 else ""
        table.add_row("  " + label, format_ns(mean[column]), format_percent(share), worst, bar)
    return table


def _worst(gpus: pl.DataFrame, column: str, total: float) -> str:
    """The GPU that is worst in a part of the step, with its share."""
    row = gpus.sort(column, descending=column != "kernel_ns", maintain_order=True).row(0, named=True)
    return f"{gpu_label(row, gpus)} {format_percent(row[column] / total)}"


def gpu_label(row: Mapping[str, Any], gpus: pl.DataFrame) -> str:
    """Returns the name of a row of ``mean_steps``: its GPU.

    The process is added if two have GPUs of the same number.
    """
    is_shared = gpus["device"].n_unique() < gpus.height
    of_process = f" of process {row['pid']}" if is_shared else ""
    return f"GPU {row['device']}{of_process}"


def _steps(breakdown: pl.DataFrame, shape: Shape) -> Table:
    shown = breakdown
    if shown.height > _MOST_STEPS:
        shown = shown.top_k(_MOST_STEPS, by="total_ns").sort("start_ns")
    longest = shown["total_ns"].max()
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    room = min(shape.width - 24, _WIDEST_BAR)
    for row in shown.iter_rows(named=True):
        label = str(row["step"]) if row["step"] is not None else short(row["name"], 10)
        table.add_row(plain(f"  {label}", shape), format_ns(row["total_ns"]), _bar(row, longest, room, shape))
    return table


def _bar(row: dict[str, Any], longest: Any, room: int, shape: Shape) -> Text:
    """The parts of a step in order, as long as the step is beside the longest one."""
    bar = Text()
    done = drawn = 0
    for column in CATEGORIES:
        _, letter, color = _LOOKS[column]
        done += row[column]
        # Each end is rounded, not each length, so that the bar is as long as its step.
        until = round(done / longest * room) if longest else 0
        bar.append_text(_cells(letter, until - drawn, color, shape))
        drawn = until
    return bar


def _cells(letter: str, length: int, color: str, shape: Shape) -> Text:
    if shape.color:
        return Text(("█" if shape.unicode else "#") * length, style=color)
    return Text(letter * length)
