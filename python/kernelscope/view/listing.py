"""The list of traces, with rows sent by page."""

from typing import Any

import polars as pl

from kernelscope.report.parts.tables import Table
from kernelscope.view import cluster, parallelism
from kernelscope.view.choice import Choice
from kernelscope.view.parameters import Parameters
from kernelscope.view.tables import Lead, csv_of, page_of

TABLE = "traces"
_NUMBER = "number"


def listing(choice: Choice, _asked: Parameters) -> dict[str, Any]:
    """Returns the head of the list: ``what`` is listed, the table's columns, the progress of reading headers.

    ``cluster`` says whether the traces are ranks, for which there are more views.
    """
    choice.check()
    head = _traces(choice).head()
    known = {"what": choice.catalogue.what, "table": head, "cluster": cluster.is_cluster(choice)}
    return {**known, **choice.progress()}


def table(choice: Choice, asked: Parameters) -> dict[str, Any]:
    """Returns rows of the list; see :func:`kernelscope.view.tables.page_of`. A row links to its number."""
    shown, lead = _table(choice, asked)
    return page_of(shown, asked, lead)


def csv(choice: Choice, asked: Parameters) -> dict[str, Any]:
    """Returns the rows that :func:`table` shows; see :func:`kernelscope.view.tables.csv_of`."""
    return csv_of(_table(choice, asked)[0], asked)


def _table(choice: Choice, asked: Parameters) -> tuple[Table, Lead]:
    choice.check()
    if asked.text("table") == TABLE:
        return _traces(choice), _numbers
    return parallelism.table_of(choice, asked) or cluster.table_of(choice, asked)


def _numbers(rows: pl.DataFrame) -> list[dict[str, Any] | None]:
    return [{"open": number} for number in rows[_NUMBER].to_list()]


def _traces(choice: Choice) -> Table:
    rows = choice.catalogue.rows()
    columns = rows.columns
    return Table(TABLE, "Traces", choice.catalogue.what, rows.with_row_index(_NUMBER), columns)
