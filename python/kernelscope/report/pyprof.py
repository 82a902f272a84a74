"""PyProf's report as text: columns side by side, CSV as PyProf writes it, or values with spaces between."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import polars as pl

from kernelscope.compat.pyprof import COLUMNS, Column
from kernelscope.errors import InvalidArgumentError
from kernelscope.report.files import filled_file, print_or_write

_UNKNOWN = "-"


class Layout:
    """Which columns are shown, and how.

    ``width`` is the width of a line in characters, 0 for values with one space between; ``quoted`` puts
    every value into quotation marks with commas between.

    Raises: InvalidArgumentError: a line of ``width`` cannot hold the columns.
    """

    def __init__(self, columns: Sequence[str], *, width: int = 0, quoted: bool = False) -> None:
        self.columns = [COLUMNS[name] for name in columns]
        self.quoted = quoted
        self.width = width
        needed = sum(column.width for column in self.columns)
        if 0 < width < needed:
            raise InvalidArgumentError(
                f"a line of {','.join(columns)} is at least {needed} wide; set -w {needed} or more"
            )
        shared = [column.name for column in self.columns if column.width == 0]
        self._flexible = (width - needed) // max(len(set(shared)), 1)

    def header(self) -> str:
        """The line of headers."""
        return self._line([column.header for column in self.columns], is_header=True)

    def line(self, row: Mapping[str, Any]) -> str:
        """The line of a kernel, whose columns ``row`` has by name."""
        return self._line([self._text(column, row) for column in self.columns])

    def _line(self, texts: list[str], *, is_header: bool = False) -> str:
        if self.quoted:
            return ",".join(f'"{text}"' for text in texts)
        if not self.width:
            return " ".join(texts)
        pairs = zip(self.columns, texts, strict=True)
        return "".join(self._padded(column, text, is_header=is_header) for column, text in pairs)

    def _padded(self, column: Column, text: str, *, is_header: bool) -> str:
        width = column.width or self._flexible
        if column.type == pl.Int64 and not is_header:
            return f"{text.partition('.')[0]:>{width}} "
        return f"{text[:width]:{width}} "

    def _text(self, column: Column, row: Mapping[str, Any]) -> str:
        value = row[column.name]
        if value is None:
            return _UNKNOWN
        if not isinstance(value, (list, tuple)):
            return str(value)
        values = cast("Sequence[object]", value)
        if column.name == "trace" and self.width and values:
            return str(values[-1]).rpartition("/")[2]
        return _separator(column.name).join(map(str, values)) or _UNKNOWN


def _separator(column: str) -> str:
    return ":" if column == "layer" else ","


def write(frame: pl.DataFrame, form: str, out: Path | None) -> None:
    """Writes columns of PyProf's table as ``csv``, ``json`` or ``parquet``; to stdout without ``out``.

    In CSV lists are texts and what is not known is empty; JSON is one list of objects.
    """
    if form == "parquet" and out is not None:
        with filled_file(out) as path:
            frame.write_parquet(path)
        return
    text = _csv(frame) if form == "csv" else frame.write_json() + "\n"
    print_or_write(text, out)


def _csv(frame: pl.DataFrame) -> str:
    texts = [
        pl.col(name).cast(pl.List(pl.String)).list.join(_separator(name)).replace("", None)
        if isinstance(dtype, pl.List)
        else pl.col(name)
        for name, dtype in frame.schema.items()
    ]
    return frame.select(texts).rename({name: COLUMNS[name].header for name in frame.columns}).write_csv()
