"""Views of the report: their facts, notes and tables, with rows sent by page."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import polars as pl

from kernelscope.errors import NotRecordedError, did_you_mean
from kernelscope.escaping import for_csv
from kernelscope.memo import per_trace
from kernelscope.report import views
from kernelscope.report.answers import flat
from kernelscope.report.parts import Figure, Group, Part
from kernelscope.report.parts.tables import Table
from kernelscope.trace import Trace
from kernelscope.view.filters import condition
from kernelscope.view.parameters import Parameters

Lead: TypeAlias = Callable[[pl.DataFrame], list[dict[str, Any] | None]]
"""Returns for each row the reference to its events; null for none."""

_MOST_ROWS = 500
_MOST_LINES = 100_000
_LEVELS = 3
_OWN = (("overview", "Overview"), ("timeline", "Timeline"), ("flame", "Flame graph"), ("sql", "SQL"))
# The viewer's own say it otherwise.
_LEFT_OUT = ("overview", "trace", "flame")
_TEXTS = ("text", "sentence")
_EVENT_NAMES = ("name", "kernel", "call")
"""Columns whose values refer to events of the timeline."""


def menu() -> dict[str, Any]:
    """Returns the views of the viewer: ``id`` and ``title``, in the order of the menu."""
    pages = [view.PAGE for view in views.on_page() if view.PAGE.id not in _LEFT_OUT]
    return {"views": [{"id": page[0], "title": page[1]} for page in (*_OWN, *pages)]}


def view(trace: Trace, asked: Parameters) -> dict[str, Any]:
    """Returns the content of the view ``id``, with tables without their rows."""
    page = _page(asked.text("id")).PAGE
    parts = [head for part in _parts(trace, id=page.id) for head in _heads(part)]
    return {"id": page.id, "title": page.title, "what": page.what, "parts": parts}


def table(trace: Trace, asked: Parameters) -> dict[str, Any]:
    """Returns ``limit`` rows from ``offset`` of a table, of those with ``search`` that all ``filters`` keep.

    Nested rows, such as modules, are included only if their callers are open: down to ``levels``, with the
    state of those in ``turned`` inverted. ``branches`` has for each row its number, its depth, whether it has
    nested rows and whether it is open.

    ``sort`` names a column, and ``descending`` gives the direction; rows without a value come last.
    ``filters`` are lines of a column and a condition separated by a blank. ``matches`` is the number of rows,
    ``leads`` has for each row the reference to its events in the timeline.
    """
    return page_of(_table(trace, asked.text("view"), asked.text("table")), asked, leads)


def page_of(shown: Table, asked: Parameters, lead: Lead) -> dict[str, Any]:
    """Returns the requested rows of a table, like :func:`table`, with references from ``lead``.

    ``keys`` are the columns of ``data``: more may be known than when the head was requested.
    """
    rows = rows_of(shown, asked)
    offset, limit = asked.between("offset", 0, 2**31, 0), asked.between("limit", 1, _MOST_ROWS, 100)
    part = rows.slice(offset, limit)
    return {
        "keys": shown.filled(),
        **shown.cells(part),
        "offset": offset,
        "matches": rows.height,
        "all": shown.frame.height,
        "leads": lead(part),
        **(
            {"branches": part.select("_n", "depth", "_inner", "_open").rows()} if "_n" in rows.columns else {}
        ),
    }


def csv(trace: Trace, asked: Parameters) -> dict[str, Any]:
    """Returns all rows that :func:`table` shows as CSV or, with ``tabs``, as lines of cells."""
    return csv_of(_table(trace, asked.text("view"), asked.text("table")), asked)


def csv_of(shown: Table, asked: Parameters) -> dict[str, Any]:
    """Returns the ``text`` of up to 100,000 rows of a table: ``rows`` of all that match, ``matches``.

    Contains the requested ``columns``, separated by commas, or all that are shown.
    """
    rows = rows_of(shown, asked, folds=False)
    wanted = asked.text("columns", "").split(",")
    names = [name for name in shown.filled() if name in wanted] or shown.filled()
    flattened = flat(rows.select(names).head(_MOST_LINES))
    text = for_csv(flattened).write_csv(separator="\t" if asked.flag("tabs") else ",")
    return {"text": text, "rows": flattened.height, "matches": rows.height}


def rows_of(shown: Table, asked: Parameters, *, folds: bool = True) -> pl.DataFrame:
    """Returns the requested rows of a table in the requested order.

    A table with nested rows contains those whose callers are open, with ``_n`` (its number), ``_inner``
    (whether it has nested rows) and ``_open``. Sorted, searched or filtered, it contains all matching rows.
    """
    units = {column["key"]: column["unit"] for column in shown.head()["columns"]}
    rows = shown.frame
    if folds and "tree" in units and not any(asked.text(n, "") for n in ("search", "filters", "sort")):
        return _unfolded(rows, asked.between("levels", 0, 1_000, _LEVELS), set(asked.numbers("turned")))
    search = asked.text("search", "").strip().lower()
    if search:
        found = [
            pl.col(name).cast(pl.String).str.to_lowercase().str.contains(search, literal=True)
            for name, unit in units.items()
            if unit in _TEXTS
        ]
        rows = rows.filter(pl.any_horizontal(found) if found else pl.lit(value=False))
    for line in filter(None, asked.text("filters", "").split("\n")):
        name, _, written = line.partition(" ")
        rows = rows.filter(condition(name, _known(units, name), written))
    sort = asked.text("sort", "")
    if sort:
        _known(units, sort)
        order = pl.col(sort).cast(pl.String).str.to_lowercase() if units[sort] in _TEXTS else pl.col(sort)
        rows = rows.sort(order, descending=asked.flag("descending"), nulls_last=True, maintain_order=True)
    return rows


def _unfolded(rows: pl.DataFrame, levels: int, turned: set[int]) -> pl.DataFrame:
    """The rows whose callers are open: those above ``levels``, and the others way round of ``turned``."""
    depths: list[int] = rows["depth"].to_list()
    seen: list[int] = []
    closed: int | None = None
    inner = [after > depth for depth, after in zip(depths, [*depths[1:], -1], strict=True)]
    is_open = [(depth < depths[0] + levels) != (number in turned) for number, depth in enumerate(depths)]
    for number, depth in enumerate(depths):
        if closed is not None and depth > closed:
            continue
        seen.append(number)
        closed = None if is_open[number] else depth
    marked = rows.with_columns(
        pl.Series("_n", range(len(depths)), dtype=pl.UInt32),
        pl.Series("_inner", inner, dtype=pl.Boolean),
        pl.Series("_open", is_open, dtype=pl.Boolean),
    )
    return marked[seen]


def _known(units: dict[str, str], name: str) -> str:
    if name not in units:
        raise NotRecordedError(f"this table has no column {name!r}{did_you_mean(name, units)}")
    return units[name]


def _page(id: str) -> Any:  # noqa: A002 - as the views call it
    known = {view.PAGE.id: view for view in views.on_page()}
    if id not in known:
        raise NotRecordedError(f"there is no view {id[:40]!r}{did_you_mean(id[:40], known)}")
    return known[id]


@per_trace
def _parts(trace: Trace, *, id: str) -> Sequence[Part]:  # noqa: A002
    """The parts of a view, which its tables are read from page by page."""
    return _page(id).page(trace)


def _heads(part: Part) -> Iterator[dict[str, Any]]:
    """A part as it is shown before any row is asked for."""
    if isinstance(part, Group):
        choices = [
            {"label": label, "part": head} for label, inside in part.choices for head in _heads(inside)
        ]
        if choices:
            yield {"kind": part.kind, "id": part.id, "title": part.title, "choices": choices}
    elif isinstance(part, Table):
        if not part.hidden:
            yield part.head()
    elif not isinstance(part, Figure):
        yield part.payload()


def _table(trace: Trace, id: str, name: str) -> Table:  # noqa: A002
    found = {table.id: table for part in _parts(trace, id=_page(id).PAGE.id) for table in _tables(part)}
    if name not in found:
        raise NotRecordedError(f"the view {id} has no table {name[:40]!r}{did_you_mean(name[:40], found)}")
    return found[name]


def _tables(part: Part) -> Iterator[Table]:
    if isinstance(part, Group):
        for _, inside in part.choices:
            yield from _tables(inside)
    elif isinstance(part, Table):
        yield part


def leads(rows: pl.DataFrame) -> list[dict[str, Any] | None]:
    """Returns the reference to the events of each row: ``evidence``, ``row`` or ``name``; null for none."""
    if {"id", "device", "cited"} <= set(rows.columns):
        findings = rows.select("id", "device", "cited").iter_rows()
        return [{"evidence": rule, "device": gpu} if cited else None for rule, gpu, cited in findings]
    for column in ("row", "op_row"):
        if column in rows.columns:
            return [None if row is None else {"row": row} for row in rows[column].to_list()]
    for column in _EVENT_NAMES:
        if column in rows.columns:
            return [
                None if name is None else {"name": name} for name in rows[column].cast(pl.String).to_list()
            ]
    return [None] * rows.height
