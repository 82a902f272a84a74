"""Tables of figures and of promises, for the terminal and for benches/results.json."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Row = tuple[str, ...]
Sample = dict[str, Any]
"""Figures of one measurement by name, or the ``reason`` why there are none."""


class NotMeasuredError(Exception):
    """There is no measurement; the message says why."""


@dataclass(frozen=True)
class Table:
    """Rows of text under a title; a row with fewer cells than there are columns ends with a reason."""

    title: str
    columns: Row
    rows: list[Row]

    def __str__(self) -> str:
        whole = [self.columns, *(row for row in self.rows if len(row) == len(self.columns))]
        widths = [max(map(len, cells)) for cells in zip(*whole, strict=True)]
        widths[0] = max(len(row[0]) for row in [*whole, *self.rows])
        lines = [f"\n{self.title}"]
        for first, *rest in (self.columns, *self.rows):
            cells = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=False))
            lines.append("  ".join((f"  {first.ljust(widths[0])}", *cells)))
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """The table for ``json.dump``, with a cell for every column."""
        rows = [[*row, *[""] * (len(self.columns) - len(row))] for row in self.rows]
        return {"title": self.title, "columns": self.columns, "rows": rows}


def figures_table(title: str, first: str, columns: dict[str, str], samples: Mapping[str, Sample]) -> Table:
    """A row for every sample: its name under ``first``, then its figures.

    ``columns`` has the format under every heading, such as ``{seconds:.3f}``; a missing figure is a dash.
    """

    def cell(form: str, sample: Sample) -> str:
        try:
            return form.format_map(sample)
        except KeyError:
            return "-"

    rows = [
        (name, sample["reason"])
        if "reason" in sample
        else (name, *(cell(form, sample) for form in columns.values()))
        for name, sample in samples.items()
    ]
    return Table(title, (first, *columns), rows)


@dataclass(frozen=True)
class Promise:
    """``value`` is to be at most, or at least, ``bound``."""

    what: str
    on: str
    value: float
    bound: float
    unit: str = "x"
    at_least: bool = False

    @property
    def kept(self) -> bool:
        """Whether it holds."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def promises_table(promises: Iterable[Promise]) -> Table:
    """Every promise with its verdict."""

    def text(value: float, unit: str) -> str:
        digits = 0 if unit in ("MB", "MiB") else 3 if unit == "s" else 2 if value < 10 else 1
        return f"{value:,.{digits}f} {unit}"

    rows = [
        (
            promise.what,
            promise.on,
            text(promise.value, promise.unit),
            f"{'≥' if promise.at_least else '≤'} {text(promise.bound, promise.unit)}",
            "yes" if promise.kept else "NO",
        )
        for promise in promises
    ]
    return Table("Promises", ("Promise", "Input", "Measured", "Promised", "Kept"), rows)
