"""Frames as tables of the page: their columns with titles, units and meaning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import polars as pl

from kernelscope.report.parts import Part
from kernelscope.report.parts.cells import texts, written
from kernelscope.report.parts.columns import COLUMNS

MOST_ROWS = 3_000
"""Maximum number of rows of a table, so that the page stays small."""


@dataclass(frozen=True, slots=True)
class Table(Part):
    """A frame as a table that can be sorted, searched, filtered, copied and saved.

    Rows are in the order of the frame. ``opens`` defines the tables of an opened row: for a title, the id of
    a table of the same view, its key column, and the key column here.
    """

    kind: ClassVar[str] = "table"
    id: str
    title: str
    what: str
    frame: pl.DataFrame
    columns: Sequence[str] | None = None
    """Columns to show, in order (default: all known columns)."""
    opens: Sequence[tuple[str, str, str, str]] = ()
    hidden: bool = False
    """Whether the table is only shown inside opened rows of others."""
    titles: Mapping[str, str] = field(default_factory=dict[str, str])
    all_rows: int | None = None
    """Total number of rows, if the frame has only the first of them."""

    def payload(self) -> dict[str, Any]:
        """Returns the part for the page's script."""
        return {
            **self.head(),
            # Sliced first: a table of a large trace may have a million rows.
            **self.cells(self.frame.head(MOST_ROWS)),
            "opens": [list(entry) for entry in self.opens],
            "hidden": self.hidden,
        }

    def head(self) -> dict[str, Any]:
        """Returns the data above the rows: titles, columns, and the number of rows."""
        return {
            "kind": self.kind,
            "id": self.id,
            "title": self.title,
            "what": self.what,
            "columns": [_column(self.frame[name], self.titles) for name in self.filled()],
            "all": self.all_rows or self.frame.height,
        }

    def cells(self, rows: pl.DataFrame) -> dict[str, Any]:
        """Returns the cells of some ``rows`` of the frame, column by column."""
        columns = rows.select_seq(written(name, rows[name].dtype) for name in self.filled()).get_columns()
        return {
            "data": [texts(column) if _is_text(column) else column.to_list() for column in columns],
            "rows": rows.height,
        }

    def filled(self) -> list[str]:
        """Returns the shown columns: those that are known and not entirely null."""
        given = {series.name: series for series in self.frame.get_columns()}
        shown = [c for c in self.columns or given if c in given and c in COLUMNS]
        return [c for c in shown if given[c].null_count() < self.frame.height or not self.frame.height]


def column_sum(frame: pl.DataFrame, column: str) -> int:
    """Returns the sum of an integer column, 0 for an empty frame."""
    return cast("int | None", frame[column].sum()) or 0


def with_share(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """Adds ``share_pct``, the share of each row in the sum of ``column``."""
    total = column_sum(frame, column) if column in frame.columns else 0
    return frame.with_columns(share_pct=pl.lit(100.0) * pl.col(column) / pl.lit(total or None))


def _column(series: pl.Series, titles: Mapping[str, str]) -> dict[str, str]:
    column = COLUMNS[series.name]
    title = titles.get(series.name, column.title)
    # A GPU is a number in most frames, and named where the host stands beside it.
    unit = ("sentence" if column.unit == "sentence" else "text") if _is_text(series) else column.unit
    return {"key": series.name, "title": title, "unit": unit, "what": column.what}


def _is_text(series: pl.Series) -> bool:
    return isinstance(series.dtype, (pl.String, pl.Categorical, pl.Enum))
