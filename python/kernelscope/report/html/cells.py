"""Turns the cells of a frame into what JSON can hold and a browser can show."""

import html
from collections.abc import Sequence
from typing import Any

import polars as pl

from kernelscope.report.names import safe, short

_LABEL_WIDTH = 60
_CELL_WIDTH = 56
# Beyond this, JavaScript's numbers are no longer exact.
_EXACT = 2**53


def label(name: str | None, width: int = _LABEL_WIDTH) -> str:
    """A name as a label of a figure: short, and never markup to Plotly."""
    return html.escape(short(name, width), quote=False)


def numbers(series: pl.Series) -> list[Any]:
    """The values of a column of numbers or flags; what JSON cannot write is null."""
    if series.dtype.is_float():
        series = pl.select(pl.when(series.is_finite()).then(series.round_sig_figs(6))).to_series()
    elif series.dtype.is_integer() and series.dtype.is_unsigned_integer():
        series = pl.select(pl.when(series < _EXACT).then(series)).to_series()
    return series.to_list()


def texts(series: pl.Series) -> dict[str, list[Any]]:
    """A column of texts: its distinct texts, their short forms, and for each row which of them it is.

    A text that is short by itself has no short form, and a row without a text has no number.
    """
    coded = series.cast(pl.String).cast(pl.Categorical)
    distinct = coded.unique(maintain_order=True).drop_nulls()
    places = {text: index for index, text in enumerate(distinct.to_list())}
    shown = [_one_text(text) for text in places]
    brief = [short(text, _CELL_WIDTH) if len(text) > _CELL_WIDTH else None for text in places]
    rows = [None if text is None else places[text] for text in coded.to_list()]
    return {"texts": shown, "short": brief, "of": rows}


def _one_text(text: str) -> str:
    cut = safe(text)
    return cut if len(cut) == len(text) else f"{cut}{_remark(text, cut)}"


def _remark(text: str, cut: str) -> str:
    left = len(text) - len(cut)
    return f" … ({len(text):,} characters)" if left > 0 and len(cut) >= _LONGEST else ""


_LONGEST = len(safe("x" * 1_000_000))


def joined(values: Sequence[object]) -> str:
    """Values as a list in a sentence."""
    return ", ".join(str(value) for value in values)
