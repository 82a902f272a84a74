"""Writes reports in the formats of ``nsys stats``: CSV with its headings and digits, columns, or JSON."""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import IO, Any

import polars as pl
from polars.io.plugins import register_io_source

from kernelscope.analysis.grouping import as_text
from kernelscope.compat.nsys import Field, Figure
from kernelscope.escaping import for_csv, for_terminal
from kernelscope.report.names import short

FORMATS = ("csv", "tsv", "column", "table", "json", "parquet")
"""Formats of a report."""

_SLICE_ROWS = 1 << 15
_LEAST_TEXT = 20
_GAP = "  "
_RULED_GAP = " | "
# A nanosecond in each is the last digit of so many.
_UNIT_DIGITS = {"us": 3, "ms": 6, "s": 9}
_NO_DIGITS_LEFT = 2.0**42


def write(
    parts: Iterable[pl.DataFrame],
    fields: Sequence[Field],
    out: IO[bytes],
    *,
    form: str,
    width: int | None = None,
    time_unit: str = "ns",
) -> list[str]:
    """Writes a report in one of ``FORMATS``, with times in ``ns``, ``us``, ``ms`` or ``s`` and all digits.

    Lines have up to ``width`` characters, or any number if null. Returns the headings of the columns that did
    not fit.
    Raises: KeyError: there is no such format.
    """
    if time_unit != "ns":
        parts = [_in_unit(part, fields, time_unit, as_text=form != "json") for part in parts]
        fields = [_of_unit(field, time_unit) for field in fields]
    if form in ("column", "table"):
        return write_columns(parts, fields, out, width=width, ruled=form == "table")
    writers = {
        "csv": write_csv,
        "tsv": partial(write_csv, separator="\t"),
        "json": write_json,
        "parquet": write_parquet,
    }
    writers[form](parts, fields, out)
    return []


def write_csv(
    parts: Iterable[pl.DataFrame], fields: Sequence[Field], out: IO[bytes], *, separator: str = ","
) -> None:
    """Writes a report as CSV with the headings and digits of nsys, and ``separator`` between values."""
    headings = pl.DataFrame(schema={field.heading: pl.String for field in fields})
    out.write(for_csv(headings).write_csv(separator=separator).encode())
    # Tenths are digits alone.
    texts = [field.heading for field in fields if field.figure is not Figure.TENTHS]
    options: dict[str, Any] = {"include_header": False, "float_precision": 3, "separator": separator}
    for part in _slices(parts):
        for_csv(as_shown(part, fields), texts).write_csv(out, **options)


def write_json(parts: Iterable[pl.DataFrame], fields: Sequence[Field], out: IO[bytes]) -> None:
    """Writes a report as a JSON list of objects with the headings and the digits of nsys."""
    separator = "["
    for part in _slices(parts):
        for row in as_numbers(part, fields).iter_rows(named=True):
            out.write((separator + json.dumps(row)).encode())
            separator = ",\n "
    out.write(b"[]\n" if separator == "[" else b"]\n")


def write_columns(
    parts: Iterable[pl.DataFrame],
    fields: Sequence[Field],
    out: IO[bytes],
    *,
    width: int | None = None,
    ruled: bool = False,
) -> list[str]:
    """Writes a report as an aligned table. Returns the headings of the columns that did not fit.

    ``ruled`` adds lines around it and between its columns.
    """
    shown = as_text(pl.concat([as_shown(part, fields) for part in parts], how="vertical_relaxed"))
    cells = [
        [for_terminal(str(value)) if value is not None else "" for value in row]
        for row in _formatted(shown).iter_rows()
    ]
    headings = [field.heading for field in fields]
    sizes = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    is_text = [shown.schema[heading] == pl.String and _is_text(shown[heading]) for heading in headings]
    if width is None:
        fitting = dict(enumerate(sizes))
    else:
        # What a row is about is said by its name, the last text, and by columns of three numbers.
        names = [at for at, flag in enumerate(is_text) if flag][-1:]
        triples = [at for at, field in enumerate(fields) if field.figure is Figure.TRIPLE]
        least = [min(size, _LEAST_TEXT) if flag else size for size, flag in zip(sizes, is_text, strict=True)]
        gap, edges = (len(_RULED_GAP), 4) if ruled else (len(_GAP), 0)
        fitting = _fitting(sizes, least, [*names, *triples], width - edges, gap)
    rule = ["-" * size for size in fitting.values()]
    lines = [[headings[at] for at in fitting], rule, *([row[at] for at in fitting] for row in cells)]
    for line in [rule, *lines, rule] if ruled else lines:
        if ruled and line is rule:
            out.write(f"+-{'-+-'.join(rule)}-+\n".encode())
            continue
        padded = [
            (short(cell, size) if width is not None else cell).ljust(size)
            if is_text[at]
            else cell.rjust(size)
            for cell, (at, size) in zip(line, fitting.items(), strict=True)
        ]
        text = f"| {_RULED_GAP.join(padded)} |" if ruled else _GAP.join(padded).rstrip()
        out.write((text + "\n").encode())
    return [heading for at, heading in enumerate(headings) if at not in fitting]


def _fitting(
    sizes: Sequence[int], least: Sequence[int], first: Sequence[int], width: int, gap: int
) -> dict[int, int]:
    """The columns that fit into ``width``, and their sizes: those of ``first``, then others from the left.

    ``gap`` characters stand between two. No column is narrower than ``least``; the ones that could be wider
    share the room that is left.
    """
    taken: list[int] = []
    room = width + gap
    for at in (*first, *(at for at in range(len(sizes)) if at not in first)):
        if room < least[at] + gap:
            break
        room -= least[at] + gap
        taken.append(at)
    fitting = {at: least[at] for at in sorted(taken)}
    for at in taken:
        more = min(room, sizes[at] - least[at])
        fitting[at] += more
        room -= more
    return fitting


def write_parquet(parts: Iterable[pl.DataFrame], fields: Sequence[Field], out: IO[bytes]) -> None:
    """Writes a report with its own column names and unrounded values, in row groups of at most one part."""
    columns = [field.column for field in fields]
    waiting = iter(parts)
    first = next(waiting).select(columns)
    schema, empty = first.schema, first.clear()
    given = itertools.chain(
        (first,), (pl.concat([empty, part.select(columns)], how="vertical_relaxed") for part in waiting)
    )
    del first, parts

    def source(
        with_columns: list[str] | None,  # noqa: ARG001 - nothing asks for less than everything
        predicate: pl.Expr | None,  # noqa: ARG001
        n_rows: int | None,  # noqa: ARG001
        batch_size: int | None,  # noqa: ARG001
    ) -> Iterator[pl.DataFrame]:
        yield from given

    register_io_source(source, schema=schema).sink_parquet(out, row_group_size=_SLICE_ROWS)


def _slices(parts: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Parts small enough for their text to be held."""
    for part in parts:
        for start in range(0, part.height, _SLICE_ROWS):
            yield part.slice(start, _SLICE_ROWS)


def as_shown(frame: pl.DataFrame, fields: Sequence[Field]) -> pl.DataFrame:
    """Returns ``frame`` with the headings of ``fields``.

    Values with one decimal are text, millions are floats.
    """
    return frame.select(**{field.heading: _shown(field, frame.schema[field.column]) for field in fields})


def as_numbers(frame: pl.DataFrame, fields: Sequence[Field]) -> pl.DataFrame:
    """Returns ``frame`` with the headings of ``fields`` and numbers rounded as in nsys."""
    numbers = {
        # Polars divides by a product with the reciprocal, which is no tenth.
        field.heading: _shown(field, frame.schema[field.column]).cast(pl.Float64)
        if field.figure is Figure.TENTHS
        else (pl.col(field.column) / 1e6).round(3)
        if field.figure is Figure.MEGABYTES
        else _shown(field, frame.schema[field.column])
        for field in fields
    }
    return frame.select(**numbers)


def _shown(field: Field, dtype: pl.DataType) -> pl.Expr:
    column = pl.col(field.column)
    if field.figure is Figure.TENTHS:
        tenths = _tenths(column)
        return (tenths // 10).cast(pl.String) + "." + (tenths % 10).cast(pl.String)
    if field.figure is Figure.MEGABYTES:
        return column / 1e6
    if field.figure is Figure.TRIPLE:
        numbers = column.cast(pl.String).str.strip_chars("[]").str.split_exact(", ", 2).struct
        padded = [numbers.field(f"field_{at}").str.pad_start(4) for at in range(3)]
        return pl.concat_str(padded, separator=" ")
    if dtype == pl.Categorical or dtype == pl.String:
        return pl.when(column != "").then(column)
    return column


def _of_unit(field: Field, unit: str) -> Field:
    """A field whose times are in another unit, in its heading; what has none stays."""
    if "(ns)" not in field.heading:
        return field
    return Field(field.heading.replace("(ns)", f"({unit})"), field.column)


def _in_unit(part: pl.DataFrame, fields: Sequence[Field], unit: str, *, as_text: bool) -> pl.DataFrame:
    """The times of ``part`` in another unit, as text or as numbers."""
    changed = dict[str, pl.Expr]()
    for field in fields:
        if "(ns)" not in field.heading:
            continue
        has_tenths = field.figure is Figure.TENTHS
        whole = _tenths(pl.col(field.column)) if has_tenths else pl.col(field.column)
        digits = _UNIT_DIGITS[unit] + has_tenths
        size = whole.abs()
        sign = pl.when(whole < 0).then(pl.lit("-")).otherwise(pl.lit(""))
        fraction = (size % 10**digits).cast(pl.String).str.pad_start(digits, "0")
        text = sign + (size // 10**digits).cast(pl.String) + "." + fraction
        changed[field.column] = text if as_text else text.cast(pl.Float64)
    return part.with_columns(**changed)


def _tenths(value: pl.Expr) -> pl.Expr:
    """``value``, which is not negative, in tenths, halves away from zero, as SQLite 3.42 in nsys rounds.

    Before it cuts the digits off, it adds three units in the sixteenth digit, so that a number counts as the
    decimal it was meant as: 1607.35 as a half, though the nearest double is a little less. From 2**42, where
    a double has no such digits, nothing is added.
    """
    # The product with ten rounds; eight times and twice the value are exact, and so is what is left when the
    # half is taken off in between.
    number = value.cast(pl.Float64)
    floor = (number * 10).floor()
    half = floor + 0.5
    left = (number * 8 - half) + number * 2
    added = pl.when(number < _NO_DIGITS_LEFT).then(number * 3e-15).otherwise(0.0)
    # Null for what no whole number holds: times of a damaged file.
    return floor.cast(pl.Int64, strict=False) + (left + added >= 0).cast(pl.Int64)


def _formatted(shown: pl.DataFrame) -> pl.DataFrame:
    return shown.with_columns(
        pl.col(pl.Float64).map_batches(
            lambda s: pl.Series([None if v is None else f"{v:.3f}" for v in s], dtype=pl.String),
            return_dtype=pl.String,
        )
    )


def _is_text(column: pl.Series) -> bool:
    return column.str.contains(r"[^0-9. ]").any()
