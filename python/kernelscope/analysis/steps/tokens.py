"""Tokens of each step of training, from the shapes of its batch."""

import math

import polars as pl

from kernelscope.analysis.ranks.joined import PART, part_of
from kernelscope.costs.bind import shape_of_input
from kernelscope.trace import Trace

_EMBEDDING = "aten::embedding"


def embedded_tokens(trace: Trace) -> pl.DataFrame:
    """Returns how many words the forward passes of each step look up.

    They are looked up in the embedding with the largest table, with an index of two dimensions or more: a
    batch of sequences. Recomputation does not count.

    Columns: ``PART``, ``step`` and ``tokens``. Steps without a lookup are left out.
    """
    lookups = trace.ops.filter((pl.col("name") == _EMBEDDING) & (pl.col("phase") == "forward"))
    # With autocast, an operator calls itself.
    inner = pl.col("parent_row").is_in(lookups["row"].implode()).fill_null(value=False)
    lookups = lookups.filter(~inner, pl.col("input_dims").is_not_null())
    lookups = lookups.select(part_of(lookups), "step", pl.col("input_dims").cast(pl.String))
    sizes = [
        (text, table[0], math.prod(index))
        for text in lookups["input_dims"].unique()
        if (table := shape_of_input(text, 0)) and (index := shape_of_input(text, 1)) and len(index) > 1
    ]
    schema = {"input_dims": pl.String, "words": pl.Int64, "tokens": pl.Int64}
    found = lookups.join(pl.DataFrame(sizes, schema, orient="row"), on="input_dims")
    found = found.filter(pl.col("words") == pl.col("words").max().over(PART))
    return found.group_by(PART, "step").agg(pl.col("tokens").sum())
