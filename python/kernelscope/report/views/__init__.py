"""The views of a report, one module each: a module put here is shown by every writer.

A view has ``ORDER``, its place among the others, ``TABLES``, those of the trace that it looks at, and what
it offers of: ``frames(trace)``, by the names of their files and of the keys of JSON; ``more_frames(trace)``,
which only a folder of files has; ``text(trace, shape)``, the parts of the text; and ``page(trace)``, what the
entry ``PAGE`` of the menu of the page shows. ``TEXT_ORDER`` and ``PAGE_ORDER`` are its places in the text and
on the page where these are others. ``NUMBERS`` has, by table, columns of the recorder's own numbers that it
shows. The text shows a view with ``ON_REQUEST = True`` only when asked for.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelscope import schema

if TYPE_CHECKING:
    import polars as pl

    from kernelscope.trace import Trace


_NOT_SHOWN = ("id", "count")
"""Roles of columns that a view looks at only if it says so: numbers of the recorder, and how many calls are
around one."""


@cache
def every() -> tuple[Any, ...]:
    """The modules of all views, in order."""
    names = (path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
    return tuple(sorted(map(named, names), key=lambda view: view.ORDER))


def named(name: str) -> Any:
    """The module of a view."""
    return import_module(f"{__name__}.{name}")


def on_page() -> list[Any]:
    """The modules of the views that the page has, in the order of its menu."""
    shown = [view for view in every() if hasattr(view, "page")]
    return sorted(shown, key=lambda view: getattr(view, "PAGE_ORDER", view.ORDER))


def required_tables(form: str) -> dict[str, list[str]] | None:
    """The tables that a form of a report needs and the columns of each, for ``kernelscope.read(tables=...)``.

    Of tables that no view looks at only the rows are counted. Null for all: Parquet files hold the tables.
    """
    if form == "parquet":
        return None
    needed = {name for view in (on_page() if form == "html" else every()) for name in view.TABLES}
    # What replayed work was when its graph was captured is looked at wherever operators are.
    needed |= {"captured_ops", "captured_nodes"} if "ops" in needed else set()
    numbers: dict[str, set[str]] = {}
    for view in every():
        for name, columns in getattr(view, "NUMBERS", {}).items():
            numbers.setdefault(name, set()).update(columns)
    return {
        name: [c.name for c in table.columns if c.role not in _NOT_SHOWN or c.name in numbers.get(name, ())][
            : None if name in needed else 1
        ]
        for name, table in schema.TABLES.items()
    }


def is_on_request(view: Any) -> bool:
    """Whether the text shows the view only when asked."""
    return getattr(view, "ON_REQUEST", False)


def frames(trace: "Trace", *, more: bool = False) -> "dict[str, pl.DataFrame]":
    """The frames of all views by name, with ``more`` those that only a folder of files has, too."""
    found: dict[str, pl.DataFrame] = {}
    for view in every():
        for offer in ("frames", "more_frames") if more else ("frames",):
            if hasattr(view, offer):
                found |= getattr(view, offer)(trace)
    return found
