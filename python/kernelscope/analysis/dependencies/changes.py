"""Changes of a prediction: the events that take another time, and the factor of each."""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.advice.record import rows_like
from kernelscope.analysis.dependencies.graph import Dependencies
from kernelscope.analysis.dependencies.launching import captured, fused, steps_of_events
from kernelscope.analysis.dependencies.other_gpu import on_gpu
from kernelscope.analysis.dependencies.steps import step_row
from kernelscope.analysis.grouping import classes_of, gather_rows
from kernelscope.analysis.modules.module_calls import EITHER
from kernelscope.analysis.training.backward import in_backward
from kernelscope.errors import InvalidArgumentError, did_you_mean
from kernelscope.trace import Trace

EXAMPLES = "kernel:*gemm*=0.5, op:aten::softmax=0, module:*attention*=0.7, launch=0, gpu=H200 SXM"

FACTORS = ("own", "waiting", "gap", "most_own", "most_gap")
"""Factors of an event: of its own time, of its wait for its launch or for the GPU, and of the time before it
in which its thread is outside of any event or its stream pauses. The last two are ``own`` and ``gap`` for
the longest time that is to be expected."""

# Of a change with a pattern, the tables whose names it matches.
_TABLES = {
    "kernel": ("gpu_ops",),
    "op": ("ops",),
    "module": ("python", "ranges", "ops"),
    "python": ("python",),
    "range": ("ranges", "ops"),
    "call": ("launches",),
    "wait": ("gpu_ops",),
    "fuse": ("ops", "ranges", "python"),
    "graph": ("ops", "ranges", "python"),
}
_WHOLE = ("launch", "dataloader", "communication", "copy", "sync", "graph", "gpu")
OF_RANKS = {"rank": "rank", "host": "host", "stage": "pp", "link": "host"}
"""Changes of several ranks, and the column of the table of ranks that selects these."""
# A launch or a wait of the host cannot be longer than recorded: it might then wait for something else.
_AT_MOST_1 = ("launch", "sync", "graph")


class Factors(NamedTuple):
    """Other lengths of all events, and the changes that match nothing.

    Columns: ``likely`` and ``most`` have the columns of ``DependencyGraph.replay``; ``most`` is for the
        longest time that is to be expected.
    """

    likely: pl.DataFrame
    most: pl.DataFrame
    missing: set[str]


def factors(
    trace: Trace, graph: Dependencies, changes: Mapping[str, float | str], among: pl.Series
) -> Factors:
    """Returns the factors of all events. ``changes`` apply to the events that are ``among``.

    Raises: InvalidArgumentError: a change is unknown, or has an impossible factor.
    """
    ones = pl.repeat(1.0, graph.events.height, eager=True)
    product = pl.DataFrame(dict.fromkeys(FACTORS, ones))
    freed = pl.repeat(value=False, n=graph.events.height, eager=True)
    missing: set[str] = set()
    for change, given in changes.items():
        kind, pattern, factor = _parsed(change, given)
        if kind == "wait":
            named = graph.events["row"].is_in(rows_named(trace, kind, pattern).implode())
            missing |= set() if named.any() else {change}
            freed |= named & among
            continue
        found = _effect(trace, graph, kind, pattern, factor)
        if found is None:
            missing.add(change)
            continue
        product = product.select(
            pl.col(name) * pl.when(among).then(found[name]).otherwise(1.0) for name in FACTORS
        )
    likely = product.select("own", "waiting", "gap")
    most = product.select("waiting", own="most_own", gap="most_gap")
    if freed.any():
        phases = {"freed": freed, "phase": _phases(trace, graph)}
        likely, most = likely.with_columns(**phases), most.with_columns(**phases)
    return Factors(likely, most, missing)


def _effect(
    trace: Trace, graph: Dependencies, kind: str, pattern: str, factor: float | str
) -> pl.DataFrame | None:
    """The factors of one change; None if it matches nothing.

    Columns: ``FACTORS``.
    """
    if isinstance(factor, str):
        return on_gpu(trace, graph, factor)
    if kind in ("fuse", "graph"):
        if pattern:
            named = graph.events["row"].is_in(rows_named(trace, kind, pattern).implode())
            parts = graph.enclosing(named, outermost=True)
        else:
            parts = steps_of_events(trace, graph)
        if parts.null_count() == parts.len():
            return None
        change = fused if kind == "fuse" else captured
        return change(trace, graph, parts, factor)
    marked, waits = _marked(trace, graph, kind, pattern)
    if not marked.any() and not waits.any():
        return None
    own, waiting = _factor(marked, factor), _factor(waits, min(factor, 1.0))
    one = pl.lit(1.0)
    return pl.select(own=own, waiting=waiting, gap=one, most_own=own, most_gap=one)


def check_matches(missing: Collection[str]) -> None:
    """Raises: InvalidArgumentError: there are changes that match nothing."""
    if missing:
        raise InvalidArgumentError(f"nothing in the trace matches {min(missing)}")


def _phases(trace: Trace, graph: Dependencies) -> pl.Series:
    """A number for the step and the phase (forward, backward, optimizer or another) of each GPU operation."""
    phase = gather_rows(trace.gpu_ops["op_row"], trace.ops, "phase")["phase"]
    passes = trace.gpu_ops.select("step", phase=phase).with_columns(
        phase=pl.when(in_backward()).then(pl.lit("backward")).otherwise(pl.col("phase").cast(pl.String))
    )
    of_gpu = classes_of(passes).of
    of_host = pl.repeat(0, graph.events.height - of_gpu.len(), dtype=of_gpu.dtype, eager=True)
    return pl.concat([of_host, of_gpu])


def of_step(trace: Trace, graph: Dependencies, step: int | None) -> pl.Series:
    """Returns which events belong to a step; without one, all do.

    Those are events of the host while it runs, and the GPU operations launched for it.

    Raises: InvalidArgumentError: there is no such step.
    """
    if step is None:
        return pl.repeat(value=True, n=graph.events.height, eager=True)
    row = step_row(trace, step)
    starts = graph.times["start_ns"]
    end_ns = row["host_start_ns"] + row["host_dur_ns"]
    is_inside = starts.is_between(row["host_start_ns"], end_ns, closed="left")
    of_gpu = (trace.gpu_ops["step"] == step).fill_null(value=False)
    return pl.concat([is_inside.head(is_inside.len() - of_gpu.len()), of_gpu])


def _parsed(change: str, factor: float | str) -> tuple[str, str, float | str]:
    """The kind of a change, its pattern ("" for all), and its factor or the name of a GPU."""
    kind, _, pattern = change.partition(":")
    if kind in OF_RANKS and pattern:
        raise InvalidArgumentError(f"{change} needs the traces of several ranks")
    if not (kind in _TABLES if pattern else kind in _WHOLE):
        known = [*_WHOLE, *(f"{name}:" for name in _TABLES)]
        meant = did_you_mean(change, known)
        raise InvalidArgumentError(
            f"there is no change {change!r}{meant}; changes are for example {EXAMPLES}"
        )
    if kind == "gpu":
        if not isinstance(factor, str):
            raise InvalidArgumentError(f"{change} needs the name of a GPU, not {factor}: {change}=H200 SXM")
        return kind, pattern, factor
    if isinstance(factor, str):
        raise InvalidArgumentError(f"{change} needs a number, not {factor!r}; 0.5 halves the time")
    if kind == "wait" and factor != 0:
        raise InvalidArgumentError(f"{change} needs the factor 0, not {factor}: other operations do not wait")
    most = 1.0 if kind in _AT_MOST_1 else float("inf")
    # Not a number is in no range.
    if not 0 <= factor <= most or factor == float("inf"):
        limits = "from 0 to 1" if most == 1 else "of at least 0"
        raise InvalidArgumentError(f"{change} needs a factor {limits}, not {factor}; 0.5 halves the time")
    return kind, pattern, factor


def _factor(marked: pl.Series, factor: float) -> pl.Series:
    return pl.select(pl.when(marked).then(factor).otherwise(1.0)).to_series()


def _marked(trace: Trace, graph: Dependencies, kind: str, pattern: str) -> tuple[pl.Series, pl.Series]:
    """The events with another own time, and the events with other waits."""
    nothing = pl.repeat(value=False, n=graph.events.height, eager=True)
    is_gpu = graph.events["table"] == "gpu_ops"
    if kind == "launch":
        return graph.events["class"] == "launch", is_gpu
    if kind == "sync":
        return graph.events["class"] == "synchronisation", ~is_gpu
    if kind in ("dataloader", "communication", "copy"):
        return graph.events["class"] == ("data loading" if kind == "dataloader" else kind), nothing
    named = graph.events["row"].is_in(rows_named(trace, kind, pattern).implode())
    if kind == "kernel":
        return named & (graph.events["kind"] == "kernel"), nothing
    if kind == "op":
        named &= graph.events["kind"] == "operator"
    named = graph.within(named)
    if kind == "module":
        # Gradients run on another thread, or in no module.
        modules = graph.events["row"].filter(named & (graph.events["table"] == "python"))
        ops = trace.ops.filter(pl.col("module_row").is_in(modules.implode()))["row"]
        named = graph.within(named | graph.events["row"].is_in(ops.implode()))
    # What is launched there waits for its launch, and what is called there may wait for the GPU.
    return named, named


def as_regex(pattern: str, prefix: str = "") -> str:
    """Returns the regular expression of a pattern of a shell, which follows a prefix.

    Upper and lower case are the same.
    """
    wild = {"*": ".*", "?": "."}
    return f"(?is)^{prefix}{''.join(wild.get(letter, re.escape(letter)) for letter in pattern)}$"


def rows_named(trace: Trace, kind: str, pattern: str) -> pl.Series:
    """Returns the row numbers of events of a kind of change, whose names match the pattern of a shell."""
    regex = as_regex(pattern, EITHER if kind == "module" else "")
    return pl.concat([rows_like(trace, table, regex, "row")["row"] for table in _TABLES[kind]])
