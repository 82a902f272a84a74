"""The largest parts of the critical path, and how long steps are if these take other times."""

from typing import Any, NamedTuple

import polars as pl

from kernelscope import analysis
from kernelscope.analysis.dependencies.described import described
from kernelscope.analysis.dependencies.graph import dependencies
from kernelscope.analysis.dependencies.table import step_paths
from kernelscope.analysis.grouping import as_text
from kernelscope.memo import per_trace
from kernelscope.report.names import safe, short
from kernelscope.trace import Trace
from kernelscope.view.parameters import Parameters
from kernelscope.view.places import SHORT

_CLASSES = {
    "data loading": ("dataloader", "Data loading", 150),
    "communication": ("communication", "Communication", 150),
    "copy": ("copy", "Copies and memsets", 150),
    # A launch or a wait cannot be longer than recorded.
    "launch": ("launch", "Launches", 100),
    "synchronisation": ("sync", "Synchronisation", 100),
}
_NAMED = {"compute": ("name", "kernel", "Kernel"), "host": ("op", "op", "Operator")}
_MOST_NAMED = 4


class _Lever(NamedTuple):
    """A change, how it is shown, the time on the path of the steps, and the longest time in percent."""

    change: str
    title: str
    path_ns: int
    most: int


@per_trace
def _levers(trace: Trace) -> list[_Lever]:
    """The classes of the path, and the kernels and operators with most of it; the largest first."""
    path = step_paths(trace)
    events = described(trace, dependencies(trace), ("name", "op"))[path["event"]]
    events = as_text(events.with_columns(path["bound_by"], path["dur_ns"]))

    def largest(of: pl.DataFrame, column: str) -> pl.DataFrame:
        sums = of.drop_nulls(column).group_by(column).agg(pl.col("dur_ns").sum())
        return sums.sort("dur_ns", column, descending=[True, False])

    bounds = dict(largest(events, "bound_by").iter_rows())
    found = [
        _Lever(change, title, bounds[bound_by], most)
        for bound_by, (change, title, most) in _CLASSES.items()
        if bound_by in bounds
    ]
    for bound_by, (column, kind, title) in _NAMED.items():
        named = largest(events.filter(pl.col("bound_by") == bound_by), column)
        found += [
            _Lever(f"{kind}:{name}", f"{title} {name}", path_ns, 150)
            for name, path_ns in named.head(_MOST_NAMED).iter_rows()
        ]
    return sorted(found, key=lambda lever: -lever.path_ns)


def levers(trace: Trace, _asked: Parameters) -> dict[str, Any]:
    """Returns the parts to try out, and the ``mean`` time of a step in ns.

    Each of ``levers`` has a ``title`` with a ``short`` form, its ``path`` (ns on the critical paths) and the
    ``most`` percent of its time that can be asked for.
    """
    steps = analysis.step_times(trace)
    shown = [
        {
            "title": safe(lever.title),
            "short": short(safe(lever.title), SHORT),
            "path": lever.path_ns,
            "most": lever.most,
        }
        for lever in (_levers(trace) if steps.height else [])
    ]
    return {"levers": shown, "mean": steps["total_ns"].mean(), "steps": steps.height}


def what_if(trace: Trace, asked: Parameters) -> dict[str, Any]:
    """Returns the ``mean`` time of a step in ns if each lever takes ``by`` percent of its time.

    ``by`` has a number for each of :func:`levers`, in their order.
    """
    changes = {
        lever.change: min(percent, lever.most) / 100
        for lever, percent in zip(_levers(trace), asked.numbers("by"), strict=False)
        if percent != 100
    }
    found = analysis.what_if(trace, changes)
    complete = analysis.step_times(trace)["step"].implode()
    return {"mean": found.filter(pl.col("step").is_in(complete, nulls_equal=True))["after_ns"].mean()}
