"""The names that summaries show kernels by."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.nsys.range_text import range_text
from kernelscope.analysis.nsys.report import Question

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def kernel_name(trace: "Trace", kernels: pl.DataFrame, question: Question) -> pl.DataFrame:
    """Puts the name that was asked for into ``name``.

    ``base`` is without arguments, ``mangled`` as the compiler wrote it, or in full where that was not
    recorded; ``nvtx-name`` puts the text of the innermost range around the launch in front.
    """
    name = pl.col("name")
    if question.has("base"):
        name = pl.col("short_name")
    elif question.has("mangled"):
        name = (
            pl.coalesce("mangled_name", "name")
            if kernels["mangled_name"].null_count()
            else pl.col("mangled_name")
        )
    named = kernels.with_columns(name=name)
    if not question.has("nvtx-name"):
        return named
    texts = trace.ranges.select(range_row="row", _text=range_text(trace, trace.ranges, domain=False))
    named = named.join(texts, on="range_row", how="left", maintain_order="left")
    text = pl.col("name").cast(pl.String)
    return named.with_columns(name=pl.coalesce(pl.col("_text") + "/" + text, text)).drop("_text")
