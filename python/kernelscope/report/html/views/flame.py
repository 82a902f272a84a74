"""Flame graphs: time by call stack, of Python frames, of operators and of modules."""

import polars as pl

from kernelscope import analysis
from kernelscope.report.html.cells import label
from kernelscope.report.html.charts import ICICLE_LAYOUT, icicle
from kernelscope.report.html.parts import Figure, Group, Note, Part, View
from kernelscope.report.html.sources import Sources
from kernelscope.units import format_ns

_MOST_STACKS = 1_500
_MOST_DEEP = 60
_KINDS = (
    ("op", "self_cuda", "operators, GPU time"),
    ("op", "self_cpu", "operators, host time"),
    ("module", "self_cuda", "modules, GPU time"),
    ("python", "self_cpu", "Python frames, host time"),
)


def view(sources: Sources) -> View:
    """The flame graphs."""
    what = (
        "Time by call stack: a frame is as wide as the time of all that it called. Click one to enlarge it."
    )
    return View("flame", "Flame graph", what, _parts(sources))


def _parts(sources: Sources) -> list[Part]:
    trace, remark = sources.window.trace, sources.window.remark
    choices: list[tuple[str, Part]] = []
    for by, metric, title in _KINDS:
        if (by == "module" and sources.missing("modules")) or (by == "python" and trace.python.is_empty()):
            continue
        stacks = analysis.folded_stacks(trace, by=by, metric=metric).filter(pl.col("value_ns") > 0)
        if stacks.height:
            choices.append((title, _figure(stacks, by, metric, title)))
    lacks = sources.missing("operators", "modules", "python")
    if not choices:
        return [*(lacks or [Note("No event of the trace takes time.", missing=True)])]
    notes: list[Part] = [Note(remark)] if remark else []
    return [*notes, Group("stacks", "Stacks of", choices), *lacks]


def _figure(stacks: pl.DataFrame, by: str, metric: str, title: str) -> Figure:
    nodes = _Tree()
    shown = stacks.head(_MOST_STACKS)
    for stack, value in shown.select("stack", "value_ns").iter_rows():
        nodes.add(stack, value)
    trace = icicle([label(name, 60) for name in nodes.names], nodes.parents, nodes.totals())
    what = "Frames from the outermost on top to the innermost below, with the time spent in each."
    left = stacks.height - shown.height
    if left:
        rest = format_ns(int(stacks["value_ns"][_MOST_STACKS:].sum()))
        what += f" The {left:,} stacks with the least time, {rest} together, are left out."
    return Figure(f"flame-{by}-{metric}", f"Stacks of {title}", what, [trace], ICICLE_LAYOUT, height=560)


class _Tree:
    """Frames by the path that leads to them."""

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.names: list[str] = []
        self._own: list[int] = []
        self._places: dict[str, int] = {}

    def add(self, stack: str, value: int) -> None:
        """Adds the time of a stack, root first, with ``;`` between its frames."""
        if stack.count(";") >= _MOST_DEEP:
            stack = ";".join(stack.split(";", _MOST_DEEP)[:_MOST_DEEP])
        # From the end to the first part that is known: most stacks begin like others.
        new: list[str] = []
        part = stack
        while part and part not in self._places:
            new.append(part)
            part = part.rpartition(";")[0]
        at = self._places[part] if part else -1
        for path in reversed(new):
            self._places[path] = len(self.names)
            self.parents.append(at)
            self.names.append(path.rpartition(";")[2])
            self._own.append(0)
            at = self._places[path]
        if at >= 0:
            self._own[at] += value

    def totals(self) -> list[int]:
        """The time of each frame with what it called."""
        totals = list(self._own)
        # A frame stands behind the one that called it.
        for index in range(len(totals) - 1, -1, -1):
            if self.parents[index] >= 0:
                totals[self.parents[index]] += totals[index]
        return totals
