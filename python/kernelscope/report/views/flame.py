"""Flame graphs: time by call stack, of Python frames, of operators and of modules."""

from collections.abc import Iterable

import polars as pl

from kernelscope.analysis.ops.flame import folded_stacks
from kernelscope.report.parts import Figure, Group, Note, Page, Part
from kernelscope.report.parts.cells import label
from kernelscope.report.parts.charts import ICICLE_LAYOUT, icicle
from kernelscope.report.parts.window import window_of
from kernelscope.report.views import missing
from kernelscope.trace import Trace
from kernelscope.units import format_ns

ORDER = 145
TABLES = missing.TABLES
PAGE = Page(
    "flame",
    "Flame graph",
    "Time by call stack. The width of a frame is its time including its calls. Click a frame to enlarge it.",
)
_MOST_STACKS = 1_500
_MOST_DEEP = 60
_MOST_THREADS = 8
_KINDS = {
    "op": {"self_cuda": "operators, GPU time", "self_cpu": "operators, host time"},
    "module": {"self_cuda": "modules, GPU time"},
    "python": {"self_cpu": "Python frames, host time"},
}


def page(trace: Trace) -> list[Part]:
    """Returns the flame graphs."""
    window = window_of(trace)
    choices: list[tuple[str, Part]] = []
    for by, titles in _KINDS.items():
        if by != "op" and missing.notes(trace, {"module": "modules"}.get(by, by)):
            continue
        for metric, title in titles.items():
            for thread, stacks in _stacks(window.trace, by, metric):
                name = f"{title}, {label(thread)}" if thread else title
                choices.append((name, _figure(stacks, f"{by}-{metric}-{len(choices)}", name)))
    lacks = missing.notes(trace, "operators", "modules", "python")
    if not choices:
        return [*(lacks or [Note("No event of the trace has a duration.", missing=True)])]
    notes: list[Part] = [Note(window.remark)] if window.remark else []
    return [*notes, Group("stacks", "Stacks of", choices), *lacks]


def _stacks(trace: Trace, by: str, metric: str) -> list[tuple[str, pl.DataFrame]]:
    """The stacks of GPU time, or of host time thread by thread: threads run beside one another."""
    if metric == "self_cuda":
        stacks = folded_stacks(trace, by=by, metric=metric, most_stacks=_MOST_STACKS)
        return [("", stacks)] if stacks.height else []
    stacks = folded_stacks(trace, by=by, metric=metric, by_thread=True, most_stacks=_MOST_STACKS)
    # The thread that does most, which is not the one that sleeps, in front.
    threads = (
        stacks.group_by("thread")
        .agg(pl.col("events").sum())
        .sort("events", "thread", descending=[True, False])
    )
    names: list[str] = threads["thread"].head(_MOST_THREADS).to_list()
    return [(name, stacks.filter(thread=name)) for name in names]


def _figure(stacks: pl.DataFrame, place: str, title: str) -> Figure:
    shown = stacks.head(_MOST_STACKS)
    parents, names, totals = _frames(shown.select("stack", "value_ns").iter_rows())
    labels = {name: label(name, 60) for name in set(names)}
    trace = icicle([labels[name] for name in names], parents, totals)
    what = "Frames from the outermost at the top to the innermost at the bottom, with the time spent in each."
    left = stacks.height - shown.height
    if left:
        rest = format_ns(int(stacks["value_ns"][_MOST_STACKS:].sum()))
        what += f" The {left:,} smallest stacks, {rest} together, are not shown."
    return Figure(f"flame-{place}", f"Stacks of {title}", what, [trace], ICICLE_LAYOUT, height=560)


def _frames(stacks: Iterable[tuple[str, int]]) -> tuple[list[int], list[str], list[int]]:
    """The frames of ``stacks``, in the order in which they are met: of each its caller, or -1, its name, and
    the time in it and in all that it called. Frames deeper than a page shows count for their callers.
    """
    known: dict[tuple[int, str], int] = {}
    totals: list[int] = []
    for stack, value in stacks:
        at = -1
        for name in stack.split(";")[:_MOST_DEEP] if stack else ():
            at = known.setdefault((at, name), len(known))
            if at == len(totals):
                totals.append(0)
            totals[at] += value
    return [caller for caller, _ in known], [name for _, name in known], totals
