"""The views of a report, one module each. Every writer shows all modules in this package.

A view has ``ORDER``, its position among the others, ``TABLES``, the tables of the trace that it uses, and
some of these functions: ``frames(trace)``, by the names of their files and of the keys of JSON;
``more_frames(trace)``, which only a folder of files has; ``text(trace, shape)``, the parts of the text; and
``page(trace)``, the content of the entry ``PAGE`` in the menu of the page. ``TEXT_ORDER`` and ``PAGE_ORDER``
are its positions in the text and on the page if these differ. ``NUMBERS`` has, by table, columns of the
profiler's own numbers that it shows. The text shows a view with ``ON_REQUEST = True`` only on request.
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
"""Roles of columns that a view uses only if it declares them: numbers of the profiler, and the number of
enclosing calls."""


@cache
def every() -> tuple[Any, ...]:
    """Returns the modules of all views, in order."""
    names = (path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
    return tuple(sorted(map(named, names), key=lambda view: view.ORDER))


def named(name: str) -> Any:
    """Returns the module of a view."""
    return import_module(f"{__name__}.{name}")


def on_page() -> list[Any]:
    """Returns the modules of the views of the page, in the order of its menu."""
    shown = [view for view in every() if hasattr(view, "page")]
    return sorted(shown, key=lambda view: getattr(view, "PAGE_ORDER", view.ORDER))


def required_tables(form: str) -> dict[str, list[str]] | None:
    """Returns the tables that a format of a report needs and the columns of each.

    They are the argument ``tables`` of :func:`kernelscope.read`.

    Only the rows of other tables are counted. Null for all tables: Parquet files contain them.
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
    """Returns whether the text shows the view only on request."""
    return getattr(view, "ON_REQUEST", False)


def frames(trace: "Trace", *, more: bool = False) -> "dict[str, pl.DataFrame]":
    """Returns the frames of all views by name. ``more`` adds those that only a folder of files has."""
    found: dict[str, pl.DataFrame] = {}
    for view in every():
        for offer in ("frames", "more_frames") if more else ("frames",):
            if hasattr(view, offer):
                found |= getattr(view, offer)(trace)
    return found
