"""Repairs, drops and doubts, one line per kind."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from kernelscope.trace import Trace

_MOST_SOURCES = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """A kind of diagnostic, over all tables of a database in which it occurs."""

    code: str
    severity: str
    count: int
    message: str
    place: str
    """Location of the first occurrence: ``byte 12``, ``TABLE rowid 3``, or the tables; empty if unknown."""


def findings(trace: Trace) -> list[Finding]:
    """Returns the rows of the table ``diagnostics`` by kind, in their order."""
    kinds = trace.diagnostics.group_by("code", "severity", "message", maintain_order=True)
    return [
        Finding(
            code=str(code),
            severity=str(severity),
            count=int(rows["count"].sum()),
            message=str(message),
            place=_place(trace, str(code), rows),
        )
        for (code, severity, message), rows in kinds
    ]


def _place(trace: Trace, code: str, rows: pl.DataFrame) -> str:
    if code == "unread_table":
        return _listed(_unread(trace))
    first = rows.row(0, named=True)
    if first["first_rowid"] is not None:
        more = f" and {rows.height - 1} more tables" if rows.height > 2 else ""
        more = " and 1 more table" if rows.height == 2 else more
        return f"{first['source']} rowid {first['first_rowid']}{more}"
    if first["first_offset"] is not None:
        return f"byte {first['first_offset']:,}"
    sources = [str(source) for source in rows["source"].drop_nulls().to_list()]
    if code == "renamed_table":
        return _listed([name for source in sources for name in _unread(trace, f"{source}_")])
    return _listed(sources)


def _unread(trace: Trace, prefix: str = "") -> list[str]:
    """The tables of a database that are not read and begin with ``prefix``, those with most rows first."""
    tables: dict[str, dict[str, Any]] = trace.meta.properties.get("tables", {})
    counts = {
        name: about["rows"] or 0
        for name, about in tables.items()
        if name.startswith(prefix) and not about["read"]
    }
    order = sorted(counts, key=lambda name: (-counts[name], name))
    # Of a view, and of what cannot be read, the rows are not counted.
    return [f"{name} with {counts[name]:,} rows" if counts[name] else name for name in order]


def _listed(sources: list[str]) -> str:
    more = f" and {len(sources) - _MOST_SOURCES} more" if len(sources) > _MOST_SOURCES else ""
    return ", ".join(sources[:_MOST_SOURCES]) + more
