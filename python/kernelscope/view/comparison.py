"""Two traces side by side: their steps, the changes, and the location of these in both timelines."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import polars as pl

from kernelscope.analysis.diff.comparison import SIDES, Comparison, compare
from kernelscope.analysis.diff.host_attribution import claims
from kernelscope.analysis.diff.tables import differences, kernel_differences, operator_differences
from kernelscope.analysis.diff.training import (
    dimension_differences,
    phase_differences,
    rows_of_dimension,
    rows_of_phase,
)
from kernelscope.analysis.steps.breakdown import CATEGORIES
from kernelscope.errors import NotRecordedError, did_you_mean
from kernelscope.memo import per_trace
from kernelscope.report.parts.columns import COLUMNS
from kernelscope.report.parts.tables import Table
from kernelscope.report.parts.window import origin_ns
from kernelscope.trace import Trace
from kernelscope.units import format_count, format_ns
from kernelscope.view.parameters import Parameters
from kernelscope.view.places import event, place, times
from kernelscope.view.tables import csv_of, page_of

Traces: TypeAlias = tuple[Trace, Trace]

_CHANGE = "change"
"""Number of a row of a table, for requests."""

_NAMES = {"changes": ("module", "op", "name"), "operators": ("op",), "kernels": ("name",), "parts": ()}
"""Subject of the rows of each table, in addition to the part of the step."""

_ROWS = {"phases": ("phase", rows_of_phase), "dimensions": ("dimension", rows_of_dimension)}
"""Subject of the rows of other tables, and what finds its events."""

_PARTS = pl.DataFrame({"part": [name.removesuffix("_ns") for name in CATEGORIES]})


def comparison(traces: Traces, _asked: Parameters) -> dict[str, Any]:
    """Returns the changes between two traces.

    The result has a ``verdict``; for each trace ``steps`` (number, start, length; times since its first
    event) and the position of the first compared step, ``first``; ``parts`` of the mean step before and
    after; ``tables`` without their rows, of training only those that have any.
    """
    both = compared(*traces)
    steps, parts = both.steps, differences(both, by="category")
    noise = dict(parts.select("category", "is_noise").iter_rows())
    sums = both.parts.group_by("category").agg(pl.col("before_ns", "after_ns").sum() / steps.height)
    known = {category: (before, after) for category, before, after in sums.iter_rows()}
    return {
        "verdict": _verdict(both, parts),
        "sides": [_steps(trace, steps, side) for trace, side in zip(traces, SIDES, strict=True)],
        "before_ns": steps["before_ns"].mean(),
        "after_ns": steps["after_ns"].mean(),
        "compared": steps.height,
        "parts": [
            {
                "key": category,
                "title": COLUMNS[name].title,
                "what": COLUMNS[name].what,
                "before": before,
                "after": after,
                "is_noise": noise.get(category),
            }
            for name, category in zip(CATEGORIES, _PARTS["part"], strict=True)
            for before, after in (known.get(category, (0.0, 0.0)),)
        ],
        "tables": [
            shown.head()
            for name in _TABLES
            if (shown := _table(*traces, name)).frame.height or name not in _ROWS
        ],
    }


def table(traces: Traces, asked: Parameters) -> dict[str, Any]:
    """Returns rows of the table ``table``; see :func:`kernelscope.view.tables.page_of`.

    The link of a row has the ``table`` and its number there, ``change``, for :func:`events`.
    """
    name = _known(asked.text("table"))

    def lead(rows: pl.DataFrame) -> list[dict[str, Any] | None]:
        return [{"table": name, _CHANGE: number} for number in rows[_CHANGE].to_list()]

    return page_of(_table(*traces, name), asked, lead)


def csv(traces: Traces, asked: Parameters) -> dict[str, Any]:
    """Returns the rows of the table ``table`` as text; see :func:`kernelscope.view.tables.csv_of`."""
    return csv_of(_table(*traces, _known(asked.text("table"))), asked)


def events(traces: Traces, asked: Parameters) -> dict[str, Any]:
    """Returns the location of the row ``change`` of ``table`` in both timelines.

    It is the longest event on each side.

    The table ``parts`` contains the parts of a step.

    The event is the longest of those that begin in the step whose position in ``comparison`` is in ``steps``
    (one for each trace), or if there are none, the longest of all. ``sides`` has for each trace the
    ``place``, null if the trace has no such event, and the ``count`` of candidates.
    """
    both, name = compared(*traces), asked.text("table")
    row = _row(traces, name, asked.whole(_CHANGE))
    chosen = asked.numbers("steps")
    sides = [
        _longest(trace, _meant(both, side, name, row), chosen[at] if at < len(chosen) else None)
        for at, (trace, side) in enumerate(zip(traces, SIDES, strict=True))
    ]
    return {"sides": sides}


def partners(traces: Traces, asked: Parameters) -> dict[str, Any]:
    """Returns the event ``row`` of trace ``side`` (0 or 1) and its counterpart, like :func:`events`."""
    both, side = compared(*traces), asked.between("side", 0, 1)
    row = asked.whole("row")
    event(traces[side], row)
    own, other = SIDES[side], SIDES[1 - side]
    pairs = pl.concat([both.pairs.ops.select(SIDES), both.pairs.work.select(SIDES)])
    found = pairs.filter(pl.col(own) == row)[other]
    rows = [row, found[0] if found.len() else None]
    ordered = rows if side == 0 else rows[::-1]
    return {"sides": [_side(trace, found, 1) for trace, found in zip(traces, ordered, strict=True)]}


def _row(traces: Traces, name: str, number: int) -> dict[str, Any]:
    """A row of a table, or of the ``parts`` of the step."""
    rows = _PARTS if name == "parts" else _table(*traces, _known(name)).frame
    if not 0 <= number < rows.height:
        raise NotRecordedError(f"this table has {rows.height:,} rows; there is no row {number:,}")
    return rows.row(number, named=True)


def _meant(both: Comparison, side: str, name: str, row: dict[str, Any]) -> pl.DataFrame:
    """The events of one trace that a ``row`` of the table ``name`` is about, as ``claims`` gives them."""
    trace, names = both.side(side)
    if name in _ROWS:
        column, rows_of = _ROWS[name]
        return claims(trace).filter(pl.col("row").is_in(rows_of(trace, row[column]).implode()))
    alike = [
        pl.col(column).is_null() if row[column] is None else pl.col(column) == row[column]
        for column in _NAMES[name]
    ]
    of_part = {"operators": pl.col("kind") == "op", "kernels": pl.col("kind") == "work"}
    is_part = of_part[name] if name in of_part else pl.col("category") == row["part"]
    found = claims(trace).filter(is_part)
    return found.join(names.filter(alike), on="row", how="semi") if alike else found


def _longest(trace: Trace, events: pl.DataFrame, step: int | None) -> dict[str, Any]:
    """The longest of ``events``, of those in a step if there are such."""
    steps = _steps_of(trace)
    if step is not None and step < steps.height:
        start, length = steps.row(step)[1:]
        inside = events.filter(pl.col("start_ns").is_between(start, start + length, closed="left"))
        events = inside if inside.height else events
    longest = events.sort(pl.col("end_ns") - pl.col("start_ns"), "row", descending=[True, False]).head(1)
    return _side(trace, longest["row"][0] if longest.height else None, events.height)


def longest_place(trace: Trace, events: pl.DataFrame) -> dict[str, Any]:
    """Returns the ``place`` of the longest of ``events`` (by ``row``), null for none, and their ``count``."""
    timed = times(trace, events["row"])
    longest = timed.sort(pl.col("dur_ns").fill_null(0), "row", descending=[True, False]).head(1)
    return _side(trace, longest["row"][0] if longest.height else None, events.height)


def _side(trace: Trace, row: int | None, count: int) -> dict[str, Any]:
    """Where an event lies; what a replayed graph launched is an operator without a place of its own."""
    try:
        found = None if row is None else place(trace, event(trace, row).values)
    except NotRecordedError:
        found = None
    return {"place": found, "count": 0 if found is None else count}


@per_trace
def compared(before: Trace, after: Trace) -> Comparison:
    """Returns the two aligned traces."""
    return compare(before, after)


def _steps(trace: Trace, compared: pl.DataFrame, side: str) -> dict[str, Any]:
    """The steps of a trace by number, start and length, and the place of the first that is compared."""
    origin, steps = origin_ns(trace), _steps_of(trace)
    at = int((steps["start_ns"] < compared[f"start_{side}"][0]).sum())
    rows = steps.with_columns(pl.col("start_ns") - origin).iter_rows()
    return {"steps": [list(row) for row in rows], "first": min(at, steps.height - 1)}


def _steps_of(trace: Trace) -> pl.DataFrame:
    """The steps that are recorded whole, or what there is: ``step``, ``start_ns``, ``total_ns``."""
    whole = trace.steps.filter(~pl.col("is_partial"))
    steps = whole if whole.height else trace.steps
    return steps.sort("start_ns", "step").select("step", "start_ns", "total_ns")


def _verdict(both: Comparison, parts: pl.DataFrame) -> str:
    """A sentence: by how much the step changed, and which part of it changed most."""
    steps = both.steps
    before, after = (float(steps[f"{side}_ns"].sum()) / steps.height for side in SIDES)
    delta = after - before
    mean = f"the mean of {format_count(steps.height)} steps" if steps.height > 1 else "one step of each"
    took = f"{format_ns(before)} before and {format_ns(after)} after ({mean})"
    if parts.is_empty():
        return f"A step takes {took}: nothing changed."
    share = f" ({100 * delta / before:+.1f} %)" if before else ""
    way = "longer" if delta >= 0 else "shorter"
    first = parts.row(0, named=True)
    title = COLUMNS[f"{first['category']}_ns"].title
    noise = ", within the spread of single steps" if first["is_noise"] else ""
    sign = "+" if first["delta_ns"] >= 0 else "-"
    most = f"{title} changed most, by {sign}{format_ns(abs(first['delta_ns']))}{noise}"
    return f"A step takes {took}: {format_ns(abs(delta))}{share} {way}. {most}."


@per_trace
def _table(before: Trace, after: Trace, name: str) -> Table:
    """A table of what changed, its rows with their numbers."""
    title, what, rows, columns = _TABLES[name]
    frame = rows(compared(before, after)).with_row_index(_CHANGE)
    return Table(name, title, what, frame, columns)


def _known(name: str) -> str:
    if name not in _TABLES:
        raise NotRecordedError(f"two traces have no table {name[:40]!r}{did_you_mean(name[:40], _TABLES)}")
    return name


_Rows: TypeAlias = Callable[[Comparison], pl.DataFrame]
_TABLES: dict[str, tuple[str, str, _Rows, Sequence[str]]] = {
    "changes": (
        "Causes of the difference",
        "Each moment of a step belongs to one row, so the changes sum to the change of the mean step.",
        lambda both: differences(both).rename({"category": "part"}),
        (
            "name", "name_before", "delta_ns", "is_noise", "part", "op", "op_before", "module",
            "module_before", "before_ns", "after_ns", "spread_ns", "calls_before", "calls_after",
        ),
    ),
    "operators": (
        "Operators",
        "Whole times, hidden or not, which do not sum to the change of the step.",
        operator_differences,
        (
            "op", "op_before", "device_delta_ns", "host_delta_ns", "device_ns_before", "device_ns_after",
            "host_ns_before", "host_ns_after", "calls_before", "calls_after", "flops_delta",
            "attained_pct_before", "attained_pct_after",
        ),
    ),
    "kernels": (
        "Kernels",
        "Whole times, hidden or not, which do not sum to the change of the step.",
        kernel_differences,
        (
            "name", "name_before", "total_delta_ns", "total_ns_before", "total_ns_after", "mean_ns_before",
            "mean_ns_after", "calls_before", "calls_after", "attained_pct_before", "attained_pct_after",
        ),
    ),
    "phases": (
        "Phases of training",
        "Whole times of GPU operations and own times of operators, hidden or not.",
        phase_differences,
        (
            "phase", "device_delta_ns", "device_ns_before", "device_ns_after", "host_delta_ns",
            "host_ns_before", "host_ns_after",
        ),
    ),
    "dimensions": (
        "Communication by dimension",
        "Collectives and transfers of each dimension of parallelism.",
        dimension_differences,
        (
            "dimension", "exposed_delta_ns", "exposed_ns_before", "exposed_ns_after", "total_delta_ns",
            "total_ns_before", "total_ns_after", "calls_before", "calls_after",
        ),
    ),
}  # fmt: skip
