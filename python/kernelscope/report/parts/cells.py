"""Converts the cells of a frame to values that JSON can represent and a browser can show."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from kernelscope.analysis.grouping import classes_of
from kernelscope.escaping import for_html
from kernelscope.report.names import safe, short

_LABEL_WIDTH = 60
_CELL_WIDTH = 56
EXACT = 2**53
"""From this value on, JavaScript's numbers are not exact."""


def label(name: str | None, width: int = _LABEL_WIDTH) -> str:
    """Returns a name as a label of a figure: short, and escaped for Plotly."""
    return for_html(short(name, width), quote=False)


def written(name: str, dtype: pl.DataType) -> pl.Expr:
    """Returns a column with null for numbers that JSON or JavaScript cannot represent, and plain texts."""
    column = pl.col(name)
    if dtype.is_float():
        return pl.when(column.is_finite()).then(column.round_sig_figs(6))
    if dtype.is_unsigned_integer():
        return pl.when(column < EXACT).then(column)
    return column.cast(pl.String) if isinstance(dtype, (pl.Categorical, pl.Enum)) else column


def texts(series: pl.Series) -> dict[str, list[Any]]:
    """Returns a column of texts as its distinct texts, their short forms, and the index of each row's text.

    A short text has no short form, and a row without a text has no index.
    """
    rows: list[str | None] = series.cast(pl.String).to_list()
    distinct = [text for text in dict.fromkeys(rows) if text is not None]
    places: dict[str | None, int] = {text: place for place, text in enumerate(distinct)}
    shown = [_one_text(text) for text in distinct]
    brief = [short(text, _CELL_WIDTH) if len(text) > _CELL_WIDTH else None for text in distinct]
    return {"texts": shown, "short": brief, "of": [*map(places.get, rows)]}


def texts_of_classes(column: pl.Series) -> tuple[dict[str, list[Any]], pl.Series]:
    """Returns the distinct texts of a long column as in :func:`texts`, and the index of each row's text."""
    classes = classes_of(column.to_frame())
    distinct = texts(classes.keys.to_series())
    return distinct, classes.spread(pl.Series(distinct["of"], dtype=pl.UInt32))


def _one_text(text: str) -> str:
    cut = safe(text)
    return cut if len(cut) == len(text) else f"{cut}{_remark(text, cut)}"


def _remark(text: str, cut: str) -> str:
    left = len(text) - len(cut)
    return f" … ({len(text):,} characters)" if left > 0 and len(cut) >= _LONGEST else ""


_LONGEST = len(safe("x" * 1_000_000))


def joined(values: Sequence[object]) -> str:
    """Returns values as a list in a sentence."""
    return ", ".join(str(value) for value in values)
