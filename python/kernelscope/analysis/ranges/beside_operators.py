"""The ranges that are no operators."""

import polars as pl

from kernelscope.trace import Trace


def ranges_beside_operators(trace: Trace) -> pl.DataFrame:
    """The rows of ``ranges`` but for operators that ``emit_nvtx`` wrote, which are rows of ``ops``, too."""
    if trace.ops.is_empty() or trace.ranges.is_empty():
        return trace.ranges
    return trace.ranges.filter(~pl.col("row").is_in(trace.ops["row"].implode()))
