"""Ranges that are not operators."""

import polars as pl

from kernelscope.trace import Trace


def ranges_beside_operators(trace: Trace) -> pl.DataFrame:
    """Returns the rows of ``ranges`` that are not operators of ``emit_nvtx``.

    Ranges of operators are rows of ``ops``, too.
    """
    if trace.ops.is_empty() or trace.ranges.is_empty():
        return trace.ranges
    return trace.ranges.filter(~pl.col("row").is_in(trace.ops["row"].implode()))
