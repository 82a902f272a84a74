"""Writes reports as ``nsys stats`` does: CSV with its headings and digits, columns, or JSON."""

import json
from collections.abc import Sequence
from typing import IO

import polars as pl

from kernelscope.analysis.nsys import Field, Figure

FORMATS = ("csv", "column", "json", "parquet")
"""The forms of a report."""

_BATCH_ROWS = 1 << 17


def write(frame: pl.DataFrame, fields: Sequence[Field], out: IO[bytes], *, form: str) -> None:
    """Writes ``frame`` in one of the forms ``csv``, ``column``, ``json`` and ``parquet``.

    Raises: KeyError: there is no such form.
    """
    {"csv": write_csv, "column": write_columns, "json": write_json, "parquet": write_parquet}[form](
        frame, fields, out
    )


def write_csv(frame: pl.DataFrame, fields: Sequence[Field], out: IO[bytes]) -> None:
    """Writes ``frame`` as CSV with the headings and the digits of nsys."""
    out.write(_empty(fields).write_csv().encode())
    for start in range(0, frame.height, _BATCH_ROWS):
        shown = as_shown(frame.slice(start, _BATCH_ROWS), fields)
        shown.write_csv(out, include_header=False, float_precision=3)


def write_json(frame: pl.DataFrame, fields: Sequence[Field], out: IO[bytes]) -> None:
    """Writes ``frame`` as a JSON list of objects with the headings and the digits of nsys."""
    out.write(b"[")
    for start in range(0, max(frame.height, 1), _BATCH_ROWS):
        rows = as_numbers(frame.slice(start, _BATCH_ROWS), fields).to_dicts()
        text = ",\n ".join(json.dumps(row, ensure_ascii=False) for row in rows)
        out.write((",\n " if start else "").encode() + text.encode())
    out.write(b"]\n")


def write_columns(frame: pl.DataFrame, fields: Sequence[Field], out: IO[bytes]) -> None:
    """Writes ``frame`` as a table whose columns line up."""
    shown = as_shown(frame, fields)
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


def write_parquet(frame: pl.DataFrame, fields: Sequence[Field], out: IO[bytes]) -> None:
    """Writes ``frame`` with its own column names and nothing rounded."""
    frame.select([field.column for field in fields]).write_parquet(out)


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


def _empty(fields: Sequence[Field]) -> pl.DataFrame:
    return pl.DataFrame(schema={field.heading: pl.String for field in fields})
