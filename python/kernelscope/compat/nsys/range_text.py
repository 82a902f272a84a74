"""The texts of NVTX ranges as the program gave them."""

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from kernelscope.trace import Trace

TEXT_COLUMNS = ("name", "domain", "op_id", "sequence", "sizes")
"""Columns of ``ranges`` that texts are put together from."""

_APPENDED = {"sequence": "seq", "op_id": "op_id", "sizes": "sizes", "inputs": "input_op_ids"}


def text_keys(trace: "Trace", ranges: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Adds ``inputs`` if any text has such a part, and names the columns that tell texts apart.

    Two ranges have one text if they agree in these, which are much smaller than the text.
    """
    inputs = trace.extra_args.filter(pl.col("key") == "input_op_ids") if trace.extra_args.height else None
    if inputs is not None and inputs.height:
        known = inputs.select("row", inputs="value")
        ranges = ranges.join(known, on="row", how="left", maintain_order="left")
    columns = [name for name in (*TEXT_COLUMNS, "inputs") if name in ranges.columns]
    keys = [name for name in columns if name == "name" or ranges[name].null_count() < ranges.height]
    empty = [name for name in columns if name not in keys]
    return ranges.drop(empty), keys


def range_text(ranges: pl.DataFrame, *, domain: bool = True) -> pl.Series:
    """The text of each range, with its domain in front as ``domain:text``.

    What PyTorch appends to the name of an operator is a column of its own in ``ranges``; here it is
    appended again. Columns of which no text has a part may be missing.
    """
    parts: list[pl.Expr] = []
    if domain and "domain" in ranges.columns:
        parts.append((pl.col("domain").cast(pl.String) + ":").fill_null(""))
    parts.append(pl.col("name").cast(pl.String))
    for column, key in _APPENDED.items():
        if column in ranges.columns:
            parts.append((pl.lit(f", {key} = ") + pl.col(column).cast(pl.String)).fill_null(""))
    # A text without a name is none.
    return ranges.select(text=parts[0] if len(parts) == 1 else pl.concat_str(parts))["text"]
