"""What was repaired, dropped or doubted, one line per kind."""

from dataclasses import dataclass

import polars as pl

_MOST_SOURCES = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """A kind of finding, over all tables of a database that have it."""

    code: str
    severity: str
    count: int
    message: str
    place: str
    """Where the first was met: ``byte 12``, ``TABLE rowid 3``, or the tables; empty if unknown."""


def findings(diagnostics: pl.DataFrame) -> list[Finding]:
    """The rows of the table ``diagnostics`` by kind, in their order."""
    kinds = diagnostics.group_by("code", "severity", "message", maintain_order=True)
    return [
        Finding(
            code=str(code),
            severity=str(severity),
            count=int(rows["count"].sum()),
            message=str(message),
            place=_place(rows),
        )
        for (code, severity, message), rows in kinds
    ]


def _place(rows: pl.DataFrame) -> str:
    first = rows.row(0, named=True)
    if first["first_rowid"] is not None:
        more = f" and {rows.height - 1} more tables" if rows.height > 2 else ""
        more = " and 1 more table" if rows.height == 2 else more
        return f"{first['source']} rowid {first['first_rowid']}{more}"
    if first["first_offset"] is not None:
        return f"byte {first['first_offset']:,}"
    sources = [str(source) for source in rows["source"].drop_nulls().to_list()]
    more = f" and {len(sources) - _MOST_SOURCES} more" if len(sources) > _MOST_SOURCES else ""
    return ", ".join(sources[:_MOST_SOURCES]) + more
