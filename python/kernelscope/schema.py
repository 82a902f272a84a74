"""Descriptions of the tables and columns of a trace.

The reader declares each column together with its description, so descriptions always match the contents of a
trace.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kernelscope import _traceparse
from kernelscope.errors import InvalidArgumentError, did_you_mean


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its Polars type, whether it may be null, and its meaning.

    ``role`` is the meaning of its numbers: ``row`` (the event itself), ``link`` (the ``row`` of another
    event), ``track``, ``count``, ``time``, ``duration``, ``id`` (the profiler's own number or word, for which
    the trace has a link, a track or a table), or null for plain values.
    """

    name: str
    dtype: str
    nullable: bool
    doc: str
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its name, the meaning of a row, and its columns in order."""

    name: str
    doc: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """The column ``name``.

        Raises: InvalidArgumentError: the table does not have such a column.
        """
        for column in self.columns:
            if column.name == name:
                return column
        known = ", ".join(column.name for column in self.columns)
        raise InvalidArgumentError(f"table {self.name!r} has no column {name!r}; it has {known}")

    def of_role(self, *roles: str) -> list[str]:
        """The names of the columns with one of ``roles``, in order."""
        return [column.name for column in self.columns if column.role in roles]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A kind of repair, loss or doubt: its code, its severity (info, repaired or lost), and its meaning."""

    code: str
    severity: str
    message: str


def _load() -> Mapping[str, Table]:
    tables = {
        name: Table(name, " ".join(doc.split()), tuple(Column(*_one_line(c)) for c in columns))
        for name, doc, columns in _traceparse.describe_tables()
    }
    return MappingProxyType(tables)


def _one_line(column: tuple[str, str, bool, str, str | None]) -> tuple[str, str, bool, str, str | None]:
    name, dtype, nullable, doc, role = column
    return name, dtype, nullable, " ".join(doc.split()), role


TABLES: Mapping[str, Table] = _load()
"""Every table by name, in the order of ``trace.tables``."""

DIAGNOSTICS: Mapping[str, Diagnostic] = MappingProxyType(
    {code: Diagnostic(code, *rest) for code, *rest in _traceparse.describe_diagnostics()}
)
"""Every diagnostic by code."""


def table(name: str) -> Table:
    """The table ``name``.

    Raises: InvalidArgumentError: there is no such table.

    Example: ``print(ks.schema.table("gpu_ops").column("link").doc)``
    """
    if name not in TABLES:
        meant = did_you_mean(name, TABLES) or f"; the tables are {', '.join(TABLES)}"
        raise InvalidArgumentError(f"there is no table {name!r}{meant}")
    return TABLES[name]
