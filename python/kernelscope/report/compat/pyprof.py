"""PyProf's report as text: aligned columns, CSV in PyProf's format, or values separated by blanks."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from kernelscope.compat.pyprof import COLUMNS, Column
from kernelscope.errors import InvalidArgumentError
from kernelscope.escaping import for_csv
from kernelscope.report.files import filled_file, print_or_write
from kernelscope.report.json_document import dump

_UNKNOWN = "-"


class Layout:
    """Selected columns and their format.

    ``width`` is the width of a line in characters, 0 for values separated by one blank. ``quoted`` quotes
    every value and separates values with commas.

    Raises: InvalidArgumentError: a line of ``width`` is too short for the columns.
    """

    def __init__(self, columns: Sequence[str], *, width: int = 0, quoted: bool = False) -> None:
        self.columns = [COLUMNS[name] for name in columns]
        self.quoted = quoted
        self.width = width
        needed = sum(column.width for column in self.columns)
        if 0 < width < needed:
            raise InvalidArgumentError(
                f"a line of {','.join(columns)} needs at least {needed} characters; pass -w {needed} or more"
            )
        shared = [column.name for column in self.columns if column.width == 0]
        self._flexible = (width - needed) // max(len(set(shared)), 1)

    def header(self) -> str:
        """Returns the header line."""
        headers = pl.DataFrame({column.name: [column.header] for column in self.columns})
        return self._lines(headers, is_header=True).item()

    def lines(self, part: pl.DataFrame) -> pl.Series:
        """Returns the lines of a part of PyProf's table, which has the columns by name."""
        texts = {column.name: self._text(column) for column in self.columns}
        return self._lines(part.select(**texts))

    def _lines(self, texts: pl.DataFrame, *, is_header: bool = False) -> pl.Series:
        if self.quoted:
            cells = [pl.format('"{}"', column.name) for column in self.columns]
            # A header is no text of a trace.
            texts = texts if is_header else for_csv(texts)
        elif self.width:
            cells = [self._padded(column, is_header=is_header) for column in self.columns]
        else:
            cells = [pl.col(column.name) for column in self.columns]
        between = "," if self.quoted else "" if self.width else " "
        return texts.select(pl.concat_str(cells, separator=between)).to_series()

    def _padded(self, column: Column, *, is_header: bool) -> pl.Expr:
        text, width = pl.col(column.name), column.width or self._flexible
        if column.type == pl.Int64 and not is_header:
            return text.str.replace(r"\..*", "").str.pad_start(width) + " "
        return text.str.slice(0, width).str.pad_end(width) + " "

    def _text(self, column: Column) -> pl.Expr:
        value = pl.col(column.name)
        if not isinstance(column.type, pl.List):
            return value.cast(pl.String).fill_null(_UNKNOWN)
        if column.name == "trace" and self.width:
            return value.list.last().str.replace("(?s)^.*/", "").fill_null(_UNKNOWN)
        items = value.cast(pl.List(pl.String)).list.join(_separator(column.name))
        return pl.when(items != "").then(items).otherwise(pl.lit(_UNKNOWN))


def _separator(column: str) -> str:
    return ":" if column == "layer" else ","


def write(frame: pl.DataFrame, form: str, out: Path | None) -> None:
    """Writes columns of PyProf's table as ``csv``, ``json`` or ``parquet``; to stdout without ``out``.

    In CSV, lists are texts and unknown values are empty. JSON is one list of objects.
    """
    if form == "parquet" and out is not None:
        with filled_file(out) as path:
            frame.write_parquet(path)
        return
    text = _csv(frame) if form == "csv" else dump(frame.to_dicts())
    print_or_write(text, out)


def _csv(frame: pl.DataFrame) -> str:
    texts = [
        pl.col(name).cast(pl.List(pl.String)).list.join(_separator(name)).replace("", None)
        if isinstance(dtype, pl.List)
        else pl.col(name)
        for name, dtype in frame.schema.items()
    ]
    return (
        for_csv(frame.select(texts))
        .rename({name: COLUMNS[name].header for name in frame.columns})
        .write_csv()
    )
