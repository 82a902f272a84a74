"""Flame graphs: time by call stack, and the events of a frame."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from kernelscope.analysis.ops.flame import METRICS, VIEWS
from kernelscope.analysis.ops.flame_tree import FlameTree, flame_tree
from kernelscope.errors import InvalidArgumentError, NotRecordedError
from kernelscope.report.names import safe
from kernelscope.report.parts.cells import texts
from kernelscope.report.views import missing
from kernelscope.trace import Trace
from kernelscope.view.parameters import Parameters
from kernelscope.view.places import event, place, times

MOST_FRAMES = 20_000
"""Maximum number of frames in an answer, the largest first."""

_TITLES = {"op": "operators", "module": "modules", "python": "Python frames"}
_OF = {"self_cuda": "GPU time", "self_cpu": "host time"}
_LACKS = {"module": "modules", "python": "python"}
_LONGEST = 256


def flame(trace: Trace, asked: Parameters) -> dict[str, Any]:
    """Returns the frames of the stacks ``by`` (op, module, python) and ``metric`` (self_cuda, self_cpu).

    Without these, uses the first of the ``choices`` that the trace has. ``frames`` are columns: ``n`` (the
    number for requests), ``parent`` (position in the answer, null for the root of a thread), ``name`` (with
    its ``short`` form), ``category``, ``total`` and ``own`` ns, and ``calls``. ``left`` is the number of
    omitted small frames, ``left_ns`` the time of omitted stacks.
    """
    choices = choices_of(trace)
    by, metric = stacks_of(asked, choices)
    lacks = [note.text for note in missing.notes(trace, "operators", "modules", "python")]
    head = {"by": by, "metric": metric, "choices": choices, "notes": lacks}
    tree = flame_tree(trace, by=by, metric=metric)
    return {**head, **shown(tree.frames), "left_ns": tree.left_ns}


def shown(frames: pl.DataFrame, *more: str) -> dict[str, Any]:
    """Returns the largest of ``frames`` as columns, including those in ``more``.

    ``left`` is the number of omitted ones.

    A frame has at least the time of those below it, so the caller of every kept frame is kept.
    """
    kept = (
        frames.with_row_index("n").sort("total_ns", "n", descending=[True, False]).head(MOST_FRAMES).sort("n")
    )
    position = kept.select(parent="n").with_row_index("at")
    kept = kept.join(position, on="parent", how="left", maintain_order="left")
    names = texts(kept["name"].str.slice(0, _LONGEST))
    columns = {
        "n": kept["n"].to_list(),
        "parent": kept["at"].to_list(),
        "name": names,
        "category": kept["category"].to_list(),
        "total": kept["total_ns"].to_list(),
        "own": kept["own_ns"].to_list(),
        "calls": kept["calls"].to_list(),
        **{name: kept[name].to_list() for name in more},
    }
    return {"frames": columns, "left": frames.height - kept.height}


def frame(trace: Trace, asked: Parameters) -> dict[str, Any]:
    """Returns the events of the frame ``n`` of ``by`` and ``metric``.

    The result has their ``count``, and the places of the ``first`` and the ``longest``, null without events.
    """
    tree, number = _tree(trace, asked), asked.whole("n")
    if not 0 <= number < tree.frames.height:
        raise NotRecordedError(
            f"this flame graph has {tree.frames.height:,} frames; there is no number {number:,}"
        )
    events = tree.events.filter(frame=number)
    timed = times(trace, events["row"]).drop_nulls("start_ns").sort("start_ns", "row")
    first = timed.head(1)
    longest = timed.sort(
        pl.col("dur_ns").fill_null(0), "start_ns", "row", descending=[True, False, False]
    ).head(1)
    return {
        "n": number,
        "count": events.height,
        **{
            name: place(trace, event(trace, rows["row"][0]).values) if rows.height else None
            for name, rows in (("first", first), ("longest", longest))
        },
    }


def framed(trace: Trace, asked: Parameters) -> dict[str, Any]:
    """Returns the frame of the event ``row``: ``by``, ``metric`` and ``n``.

    Raises: NotRecordedError: it is in none, because it has no such time.
    """
    row = asked.whole("row")
    table = event(trace, row).table
    by = "python" if table == "python" else "op"
    metric = "self_cuda" if table == "gpu_ops" else "self_cpu"
    found = flame_tree(trace, by=by, metric=metric).events.filter(row=row)
    if found.is_empty():
        raise NotRecordedError("this event is in no flame graph because it has no own time")
    return {"by": by, "metric": metric, "n": found["frame"][0]}


def choices_of(trace: Trace) -> list[dict[str, str]]:
    """Returns the flame graphs of a trace."""
    metrics = list(_OF) if trace.gpu_ops.height else ["self_cpu"]
    views = [by for by in _TITLES if by not in _LACKS or not missing.notes(trace, _LACKS[by])]
    return [{"by": by, "metric": m, "title": f"{_TITLES[by]}, {_OF[m]}"} for by in views for m in metrics]


def _tree(trace: Trace, asked: Parameters) -> FlameTree:
    by, metric = stacks_of(asked)
    return flame_tree(trace, by=by, metric=metric)


def stacks_of(asked: Parameters, choices: Sequence[Mapping[str, str]] = ()) -> tuple[str, str]:
    """Returns the frames and the metric of stacks, by default the first of ``choices``."""
    by, metric = asked.text("by", ""), asked.text("metric", "")
    if choices and not by and not metric:
        by, metric = choices[0]["by"], choices[0]["metric"]
    for key, value, known in (("by", by, VIEWS), ("metric", metric, METRICS)):
        if value not in known:
            raise InvalidArgumentError(f"{key}= takes {', '.join(known)}, not {safe(value[:40])!r}")
    return by, metric
