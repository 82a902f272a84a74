"""Results of SQL statements, as text for people and for programs."""

import io

import polars as pl

from kernelscope.compat.nsys import Field
from kernelscope.escaping import for_csv
from kernelscope.report.compat import nsys
from kernelscope.report.json_document import dump


def flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Returns ``frame`` with lists and similar values as text for table cells: ``256, 1, 1``."""
    return frame.with_columns(
        pl.Series(column.name, [None if value is None else _text(value) for value in column], dtype=pl.String)
        for column in frame.get_columns()
        if column.dtype.is_nested() or isinstance(column.dtype, (pl.Binary, pl.Object))
    )


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, pl.Series) else str(value)


def write_answer(frame: pl.DataFrame, *, form: str, width: int | None = None) -> tuple[str, list[str]]:
    """Returns ``frame`` as ``text``, ``csv`` or ``json``, and the columns that do not fit into ``width``."""
    if form == "json":
        return dump(frame.to_dicts()), []
    plain = flat(frame)
    if form == "csv":
        return for_csv(plain).write_csv(), []
    floats = [
        pl.Series(name, [None if value is None else f"{value:.6g}" for value in plain[name]], dtype=pl.String)
        for name, dtype in plain.schema.items()
        if dtype.is_float()
    ]
    out = io.BytesIO()
    fields = [Field(name, name) for name in plain.columns]
    lacking = nsys.write([plain.with_columns(floats)], fields, out, form="column", width=width)
    return out.getvalue().decode(), lacking
