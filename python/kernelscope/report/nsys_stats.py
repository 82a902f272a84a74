"""Writes reports as ``nsys stats`` does: CSV with its headings and digits, columns, or JSON."""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import polars as pl
from polars.io.plugins import register_io_source

from kernelscope.compat.nsys import Field, Figure

FORMATS = ("csv", "column", "json", "parquet")
"""The forms of a report."""

_SLICE_ROWS = 1 << 15


def write(parts: Iterable[pl.DataFrame], fields: Sequence[Field], out: IO[bytes], *, form: str) -> None:
    """Writes a report in one of the forms ``csv``, ``column``, ``json`` and ``parquet``.

    Raises: KeyError: there is no such form.
    """
    writers = {"csv": write_csv, "column": write_columns, "json": write_json, "parquet": write_parquet}
    writers[form](parts, fields, out)


def write_csv(parts: Iterable[pl.DataFrame], fields: Sequence[Field], out: IO[bytes]) -> None:
    """Writes a report as CSV with the headings and the digits of nsys."""
    out.write(pl.DataFrame(schema={field.heading: pl.String for field in fields}).write_csv().encode())
    for part in _slices(parts):
        as_shown(part, fields).write_csv(out, include_header=False, float_precision=3)


def write_json(parts: Iterable[pl.DataFrame], fields: Sequence[Field], out: IO[bytes]) -> None:
    """Writes a report as a JSON list of objects with the headings and the digits of nsys."""
    separator = "["
    for part in _slices(parts):
        for row in as_numbers(part, fields).iter_rows(named=True):
            out.write((separator + json.dumps(row, ensure_ascii=False)).encode())
            separator = ",\n "
    out.write(b"[]\n" if separator == "[" else b"]\n")


def write_columns(parts: Iterable[pl.DataFrame], fields: Sequence[Field], out: IO[bytes]) -> None:
    """Writes a report as a table whose columns line up."""
    shown = pl.concat([as_shown(part, fields) for part in parts], how="vertical_relaxed")
    cells = [
        [str(value) if value is not None else "" for value in row] for row in _formatted(shown).iter_rows()
    ]
    headings = [field.heading for field in fields]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    left = [shown.schema[heading] == pl.String and _is_text(shown[heading]) for heading in headings]
    for row in (headings, ["-" * size for size in widths], *cells):
        padded = (
            cell.ljust(size) if flag else cell.rjust(size)
            for cell, size, flag in zip(row, widths, left, strict=True)
        )
        out.write(("  ".join(padded).rstrip() + "\n").encode())


def write_parquet(parts: Iterable[pl.DataFrame], fields: Sequence[Field], out: IO[bytes]) -> None:
    """Writes a report with its own column names and nothing rounded, in row groups of no more than a part."""
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
    """``frame`` with the headings of ``fields``; what has one decimal is text, millions are floats."""
    return frame.select(**{field.heading: _shown(field, frame.schema[field.column]) for field in fields})


def as_numbers(frame: pl.DataFrame, fields: Sequence[Field]) -> pl.DataFrame:
    """``frame`` with the headings of ``fields`` and numbers rounded as nsys rounds them."""
    numbers = {
        field.heading: _tenths(pl.col(field.column)) / 10
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
        text = column.cast(pl.String)
        return pl.when(text != "").then(text)
    return column


def _tenths(value: pl.Expr) -> pl.Expr:
    """``value``, which is not negative, in tenths, halves away from zero, judged on its exact digits.

    The product with ten rounds, so a value just below a half would pass for one. Eight times and
    twice the value are exact, and so is what is left when the half is taken off in between.
    """
    floor = (value.cast(pl.Float64) * 10).floor()
    half = floor + 0.5
    left = (value.cast(pl.Float64) * 8 - half) + value.cast(pl.Float64) * 2
    return floor.cast(pl.Int64) + (left >= 0).cast(pl.Int64)


def _formatted(shown: pl.DataFrame) -> pl.DataFrame:
    return shown.with_columns(
        pl.col(pl.Float64).map_batches(
            lambda s: pl.Series([None if v is None else f"{v:.3f}" for v in s], dtype=pl.String),
            return_dtype=pl.String,
        )
    )


def _is_text(column: pl.Series) -> bool:
    return column.str.contains(r"[^0-9. ]").any()
