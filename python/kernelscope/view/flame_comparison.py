"""The flame graphs of two traces as one: the time of each frame in the mean step before and after."""

from typing import Any, TypeAlias

import polars as pl

from kernelscope.analysis.diff.comparison import SIDES
from kernelscope.analysis.ops.flame_tree import FlameTree, flame_tree
from kernelscope.errors import NotRecordedError
from kernelscope.memo import per_trace
from kernelscope.trace import Trace
from kernelscope.view.comparison import Traces, compared, longest_place
from kernelscope.view.flame import choices_of, shown, stacks_of
from kernelscope.view.parameters import Parameters

_Frame: TypeAlias = tuple[int | None, str]


def flame(traces: Traces, asked: Parameters) -> dict[str, Any]:
    """Returns the frames of both traces, in the compared steps, as one flame graph.

    Threads correspond in the order of their times, frames by name below corresponding frames. ``before`` and
    ``after`` are ns of the mean step, and ``total`` is the larger of the two.
    """
    other = [(one["by"], one["metric"]) for one in choices_of(traces[1])]
    choices = [one for one in choices_of(traces[0]) if (one["by"], one["metric"]) in other]
    by, metric = stacks_of(asked, choices)
    frames = _merged(*traces, by=by, metric=metric)
    return {
        "by": by,
        "metric": metric,
        "choices": choices,
        **shown(frames, *SIDES, "own_before", "own_after"),
    }


def frame(traces: Traces, asked: Parameters) -> dict[str, Any]:
    """Returns the location of the frame ``n`` of ``by`` and ``metric``.

    It is the longest of its events on each side.
    """
    (by, metric), number = stacks_of(asked), asked.whole("n")
    frames = _merged(*traces, by=by, metric=metric)
    if not 0 <= number < frames.height:
        raise NotRecordedError(
            f"these flame graphs have {frames.height:,} frames; there is no number {number:,}"
        )
    row = frames.row(number, named=True)
    sides: list[dict[str, Any]] = []
    for trace, side, tree in zip(traces, SIDES, _trees(*traces, by=by, metric=metric), strict=True):
        own = row[f"frame_{side}"]
        events = tree.events.filter(frame=own) if own is not None else tree.events.clear()
        sides.append(longest_place(trace, events))
    return {"sides": sides}


def _trees(before: Trace, after: Trace, *, by: str, metric: str) -> tuple[FlameTree, FlameTree]:
    """The frames of each trace, of the steps that are compared."""
    steps = compared(before, after).steps
    first, second = (
        flame_tree(
            trace,
            by=by,
            metric=metric,
            spans=tuple(
                (start, start + length)
                for start, length in steps.select(f"start_{side}", f"{side}_ns").rows()
            ),
        )
        for trace, side in zip((before, after), SIDES, strict=True)
    )
    return first, second


@per_trace
def _merged(before: Trace, after: Trace, *, by: str, metric: str) -> pl.DataFrame:
    """The frames of both: as of a tree, with ``before``, ``after``, and the number of each on either side."""
    count = compared(before, after).steps.height
    known: dict[_Frame, int] = {}
    rows: list[dict[str, Any]] = []
    for tree, side in zip(_trees(before, after, by=by, metric=metric), SIDES, strict=True):
        own: list[int] = []
        roots = 0
        for number, one in enumerate(tree.frames.iter_rows(named=True)):
            parent: int | None = one["parent"]
            name: str = one["name"]
            # The numbers of threads differ from run to run.
            key: _Frame = (None, str(roots)) if parent is None else (own[parent], name)
            roots += parent is None
            at = known.setdefault(key, len(known))
            if at == len(rows):
                rows.append({"parent": key[0], "name": name, "category": one["category"]})
            own.append(at)
            rows[at] |= {side: one["total_ns"], f"own_{side}": one["own_ns"], f"frame_{side}": number}
    integers = [f"{kind}{side}" for kind in ("", "own_", "frame_") for side in SIDES]
    schema = {
        "parent": pl.UInt32,
        "name": pl.String,
        "category": pl.String,
        **dict.fromkeys(integers, pl.Int64),
    }
    frames = pl.DataFrame(rows, schema=schema)
    times = [f"{kind}{side}" for kind in ("", "own_") for side in SIDES]
    frames = frames.with_columns((pl.col(name).fill_null(0) / count).round().cast(pl.Int64) for name in times)
    return frames.with_columns(
        total_ns=pl.max_horizontal(SIDES),
        own_ns=pl.max_horizontal("own_before", "own_after"),
        calls=pl.lit(None, pl.Int64),
    )
