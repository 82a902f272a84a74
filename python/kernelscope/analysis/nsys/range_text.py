"""The texts of NVTX ranges as the program gave them."""

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from kernelscope.trace import Trace

TEXT_COLUMNS = ("name", "domain", "op_id", "sequence", "sizes")
"""Columns of ``ranges`` that texts are put together from."""


def range_text(trace: "Trace", ranges: pl.DataFrame, *, domain: bool = True) -> pl.Series:
    """The text of each range, with its domain in front as ``domain:text``.

    What PyTorch appends to the name of an operator is a column of its own in ``ranges``; here it is
    appended again.
    """
    parts: list[pl.Expr] = []
    if domain and ranges["domain"].null_count() < ranges.height:
        parts.append(pl.coalesce(pl.col("domain").cast(pl.String) + ":", pl.lit("")))
    parts.append(pl.col("name").cast(pl.String).fill_null(""))
    for key, column in (("seq", "sequence"), ("op_id", "op_id"), ("sizes", "sizes")):
        if ranges[column].null_count() < ranges.height:
            value = pl.col(column).cast(pl.String)
            parts.append(pl.coalesce(pl.lit(f", {key} = ") + value, pl.lit("")))
    inputs = trace.extra_args.filter(pl.col("key").cast(pl.String) == "input_op_ids")
    if inputs.height:
        known = inputs.select("row", _inputs=pl.lit(", input_op_ids = ") + pl.col("value").cast(pl.String))
        ranges = ranges.join(known, on="row", how="left", maintain_order="left")
        parts.append(pl.col("_inputs").fill_null(""))
    named = pl.any_horizontal(pl.col("name").is_not_null(), pl.col("op_id").is_not_null())
    text = parts[0] if len(parts) == 1 else pl.concat_str(parts)
    return ranges.select(text=pl.when(named).then(text))["text"]
